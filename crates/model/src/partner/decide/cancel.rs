//! Decisions on a partner's answer to a cancel.

use std::time::Duration;

use super::{super::answer::CallError, BELIEVED_AFTER, as_delta};
use crate::{
    actor::Actor,
    decide::{Change, Decision},
    messages,
    order::{BookingState, EventReason, HoldCause, Snapshot},
};

/// Number of failed cancels after which support is notified.
const TOLD_AFTER: i32 = 15;

/// Records that the partner confirmed the cancel of a booking, or does not know the booking.
pub fn cancel_confirmed(s: &Snapshot, attempt_no: i32) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.booking_mut(before).close_as(BookingState::Cancelled, s.now);
    change.record_event(EventReason::BookingCancelled, before.booking_id.clone());
    change.into()
}

/// Records that the partner refused the cancel because its trip is under way. A passenger may be riding on a trip that
/// the order does not know.
pub fn cancel_refused(s: &Snapshot, attempt_no: i32, error: &str) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let why = format!("attempt {attempt_no}'s booking is being carried out although it is no longer wanted; {error}");
    let mut change = Change::new(s, Actor::SYSTEM);
    if s.order.status.is_searching() && !s.order.held_for_review {
        change.hold_for_review(s, HoldCause::UnwantedTrip, why.clone());
    }
    let booking = change.booking_mut(before);
    booking.last_error = Some(error.to_owned());
    booking.close_as(BookingState::Completed, s.now);
    change.record_event(EventReason::BookingNotCancelled, Some(error.to_owned()));
    change.notify(messages::unexpected_state(&change.order, &why, s.now));
    change.into()
}

/// Records that the partner did not confirm the cancel. It is asked again after `pause`. An alert is raised for a
/// partner that keeps refusing, and for one that is unreachable for long.
pub fn cancel_missed(s: &Snapshot, attempt_no: i32, error: &CallError, pause: Duration) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    let tries = before.tries + 1;
    if matches!(error, CallError::Refused(_)) && tries >= BELIEVED_AFTER {
        let why =
            format!("the partner will not cancel attempt {attempt_no}'s booking ({error}); cancel it there by hand");
        let booking = change.booking_mut(before);
        booking.last_error = Some(error.to_string());
        booking.close_as(BookingState::Refused, s.now);
        change.record_event(EventReason::BookingNotCancelled, Some(error.to_string()));
        change.notify(messages::unexpected_state(&change.order, &why, s.now));
        return change.into();
    }
    change.booking_mut(before).record_failure(error.to_string(), s.now + as_delta(pause));
    if tries == TOLD_AFTER {
        let why =
            format!("attempt {attempt_no}'s booking is still not cancelled at the partner ({error}); retries continue");
        change.notify(messages::unexpected_state(&change.order, &why, s.now));
    }
    change.into()
}
