//! Decisions on the partner's answer to changed places and the contact of a booking.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{super::answer::CallError, as_delta};
use crate::{
    actor::Actor,
    decide::{Change, Decision},
    messages,
    order::{Booking, BookingState, EventReason, Snapshot},
};

/// Returns the booking of this attempt, if its details are still to be sent. `due` is the time that the call was based
/// on: a later change of the order sets another time.
fn open_booking(s: &Snapshot, attempt_no: i32, due: DateTime<Utc>) -> Option<&Booking> {
    s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::Booked && b.next_try_at == Some(due))
}

/// Records that the partner has the details, or needs none.
pub fn details_sent(s: &Snapshot, attempt_no: i32, due: DateTime<Utc>) -> Decision {
    let Some(before) = open_booking(s, attempt_no, due) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    let booking = change.booking_mut(before);
    (booking.tries, booking.next_try_at) = (0, None);
    change.into()
}

/// Records that the partner refused the details. Support is notified, because the driver may go to a wrong place.
pub fn details_refused(s: &Snapshot, attempt_no: i32, due: DateTime<Utc>, error: &CallError) -> Decision {
    let Some(before) = open_booking(s, attempt_no, due) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    let booking = change.booking_mut(before);
    (booking.tries, booking.next_try_at) = (0, None);
    change.record_event(EventReason::BookingNotUpdated, Some(error.to_string()));
    let why = format!(
        "the partner did not accept the contents of attempt {attempt_no}'s booking ({error}); call the partner"
    );
    change.notify(messages::unexpected_state(&change.order, &why, s.now));
    change.into()
}

/// Records that the partner did not answer. The details are sent again after `pause`.
pub fn details_missed(s: &Snapshot, attempt_no: i32, due: DateTime<Utc>, pause: Duration) -> Decision {
    let Some(before) = open_booking(s, attempt_no, due) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    let booking = change.booking_mut(before);
    (booking.tries, booking.next_try_at) = (booking.tries.saturating_add(1), Some(s.now + as_delta(pause)));
    change.into()
}
