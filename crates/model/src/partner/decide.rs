//! Decisions on answers and callbacks of a partner. Pure.
//!
//! Callbacks get lost, repeat, arrive late, early or out of order. Answers arrive after the request is obsolete. No
//! decision here therefore expects a certain order: an [`Observation`] is compared with the current order, and new
//! facts are applied. A booking that is no longer wanted does not change its order.
//!
//! This file contains bookings, polls and the end of an attempt. `observed`: observations of a booking. `cancel`:
//! answers to a cancel. `details`: answers to changed contents.

mod cancel;
mod details;
mod observed;

use std::time::Duration;

use chrono::TimeDelta;

pub use self::{
    cancel::{cancel_confirmed, cancel_missed, cancel_refused},
    details::{details_missed, details_refused, details_sent},
    observed::apply_observation,
};
use super::{PollConfig, choice::PartnerChoice, observation::Observation};
use crate::{
    actor::Actor,
    decide::{Change, Decision},
    messages,
    order::{Booking, BookingState, EventReason, OfferState, OrderStatus, Snapshot},
    policy::DispatchPolicy,
};

#[derive(Debug, Clone, Copy)]
pub struct PartnerRules<'a> {
    pub dispatch: &'a DispatchPolicy,
    pub poll: &'a PollConfig,
    /// Whether the partner's API takes changed contents of a booking.
    pub takes_details: bool,
}

/// Number of attempts after which an ambiguous refusal counts as final.
const BELIEVED_AFTER: i32 = 6;

/// Starts an attempt. The booking and the choice of the partner are stored before the partner is asked.
pub fn start_attempt(s: &Snapshot, choice: &PartnerChoice) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.order.attempt_no += 1;
    change.order.partner = Some(choice.partner.clone());
    change.order.next_attempt_at = None;
    change.order.job_id = None;
    (change.order.poll_no, change.order.next_poll_at) = (0, None);
    change.bookings.push(Booking::new_intent(change.order.attempt_no, choice.partner.clone(), s.now));
    change.record_event(EventReason::AttemptStarted, choice.describe());
    change
}

/// Records that the partner booked. `poll`: whether its job id will be polled.
pub fn booking_succeeded(s: &Snapshot, attempt_no: i32, booking_id: &str, poll: bool, rules: PartnerRules) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.booking_id.is_none()) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    let booking = change.booking_mut(before);
    booking.booking_id = Some(booking_id.to_owned());
    match before.state {
        BookingState::Intent | BookingState::Unknown => {
            booking.set_booked(s.now);
            // The order was changed while the request was open.
            booking.next_try_at = (before.places.is_some() && rules.takes_details).then_some(s.now);
            if poll && is_current(s, before) {
                change.order.next_poll_at = Some(s.now + as_delta(rules.poll.first));
            }
            change.record_event(EventReason::Booked, Some(booking_id.to_owned()));
        }
        // Two requests were sent, and the refusal of one arrived first.
        BookingState::Refused | BookingState::Cancelled => booking.want_cancel(s.now),
        BookingState::Booked | BookingState::CancelWanted | BookingState::Completed => {}
    }
    change.into()
}

/// Records that the partner did not answer. The request is repeated after `pause`.
pub fn booking_unanswered(s: &Snapshot, attempt_no: i32, error: &str, pause: Duration) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.next_try_at.is_some()) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.booking_mut(before).record_failure(error.to_owned(), s.now + as_delta(pause));
    change.into()
}

/// Ends the attempt because the partner refused the booking.
///
/// After an unanswered request, one refusal is not conclusive: the partner may still process that request, or a proxy
/// may have answered. The request is repeated, and the refusal counts as final after several attempts.
pub fn booking_refused(s: &Snapshot, attempt_no: i32, error: &str, pause: Duration, rules: PartnerRules) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.booking_id.is_none()) else {
        return Decision::Unchanged;
    };
    let in_doubt = matches!(before.state, BookingState::Unknown | BookingState::CancelWanted);
    if in_doubt && before.tries < BELIEVED_AFTER {
        return booking_unanswered(s, attempt_no, error, pause);
    }
    let mut change = Change::new(s, Actor::SYSTEM);
    if before.state.is_unanswered() && is_current(s, before) {
        end_attempt(&mut change, s, EventReason::BookingRefused, rules);
    }
    let booking = change.booking_mut(before);
    booking.last_error = Some(error.to_owned());
    booking.close_as(BookingState::Refused, s.now);
    change.into()
}

/// Applies the answer to poll number `polls` about the booking of attempt `o.attempt_no`. The next poll follows after
/// `pause`.
pub fn poll_answered(s: &Snapshot, o: &Observation, polls: i32, pause: Duration, rules: PartnerRules) -> Decision {
    let Decision::Change(mut change) = apply_observation(s, o, rules) else {
        return poll_without_news(s, o.attempt_no, polls, pause, rules);
    };
    if s.order.attempt_no == o.attempt_no && s.order.poll_no == polls - 1 {
        count_ask(&mut change, s);
    }
    // New facts also count as the answer to this poll, unless they set the next poll themselves.
    if change.order.attempt_no == o.attempt_no
        && change.order.poll_no == polls - 1
        && change.order.next_poll_at == s.order.next_poll_at
    {
        change.order.poll_no = polls;
        change.order.next_poll_at = change.order.next_poll_at.map(|_| s.now + as_delta(pause));
    }
    Decision::Change(change)
}

/// Records a poll about the booking of attempt `attempt_no` that returned nothing new. The next poll follows after
/// `pause`.
pub fn poll_without_news(s: &Snapshot, attempt_no: i32, polls: i32, pause: Duration, rules: PartnerRules) -> Decision {
    let waits = s.order.attempt_no == attempt_no && s.order.poll_no == polls - 1 && s.order.next_poll_at.is_some();
    let Some(booking) = s.live_booking().filter(|_| waits) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    count_ask(&mut change, s);
    change.order.poll_no = polls;
    change.order.next_poll_at = Some(s.now + as_delta(pause));
    let begun = booking.booked_at.unwrap_or(booking.created_at);
    if s.order.status == OrderStatus::PendingJobId && s.now >= begun + as_delta(rules.poll.budget) {
        change.order.next_poll_at = None;
        change.record_event(EventReason::PollingEnded, Some(format!("{polls} polls")));
    }
    change.into()
}

/// Counts a poll for the job id. Polls about an order that has its job id do not count.
fn count_ask(change: &mut Change, s: &Snapshot) {
    if s.order.status == OrderStatus::PendingJobId {
        change.order.job_id_asks = s.order.job_id_asks.saturating_add(1);
    }
}

/// Handles a partner that no longer knows a booking it had. Without a job id, the order ends: the job id retrieval
/// design treats this error as permanent. With a job id, the attempt ends. With a driver on the way, support is
/// notified.
pub fn booking_not_found(s: &Snapshot, attempt_no: i32, rules: PartnerRules) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::Booked && is_current(s, b))
    else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    match s.order.status {
        OrderStatus::PendingJobId => {
            count_ask(&mut change, s);
            change.withdraw_bookings(s);
            change.transition_to(OrderStatus::Compensating, EventReason::BookingNotFound, None);
        }
        OrderStatus::Assigned => end_attempt(&mut change, s, EventReason::BookingNotFound, rules),
        // The driver continues whatever the partner's system reports. Support is notified once, and polling continues.
        _ => {
            if before.last_error.is_none() {
                let why = "the partner does not know the booking of a trip under way";
                change.booking_mut(before).last_error = Some(why.to_owned());
                change.notify(messages::unexpected_state(&change.order, why, s.now));
            }
            change.order.poll_no += 1;
            change.order.next_poll_at = Some(s.now + as_delta(rules.poll.follow));
            return change.into();
        }
    }
    let booking = change.booking_mut(before);
    booking.last_error = Some("the partner does not know this booking".to_owned());
    booking.close_as(BookingState::Refused, s.now);
    change.into()
}

/// Ends an attempt whose time is over. As far as known, the partner has found no driver.
pub fn attempt_timed_out(s: &Snapshot, rules: PartnerRules) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    end_attempt(&mut change, s, EventReason::AttemptTimeout, rules);
    change
}

/// Ends an attempt whose time is over, unless the partner's answer has already changed the state of the order.
pub fn attempt_timed_out_unless(s: &Snapshot, o: &Observation, rules: PartnerRules) -> Decision {
    let runs = s.order.attempt_deadline.is_some() && s.order.attempt_no == o.attempt_no;
    match apply_observation(s, o, rules) {
        Decision::Change(change) if !runs || change.order.status != OrderStatus::Assigned => Decision::Change(change),
        _ if runs => attempt_timed_out(s, rules).into(),
        decision => decision,
    }
}

/// Returns whether this is the booking of the current attempt and the order still depends on it.
fn is_current(s: &Snapshot, booking: &Booking) -> bool {
    booking.attempt_no == s.order.attempt_no
        && matches!(
            s.order.status,
            OrderStatus::PendingJobId | OrderStatus::Assigned | OrderStatus::DriverAssigned | OrderStatus::PickedUp
        )
}

/// Ends the running attempt. The next one starts after the pause, if the lifetime is not over.
fn end_attempt(change: &mut Change, s: &Snapshot, reason: EventReason, rules: PartnerRules) {
    if change.order.status == OrderStatus::Assigned {
        change.withdraw_bookings(s);
        (change.order.attempt_deadline, change.order.job_id) = (None, None);
        change.transition_to(OrderStatus::PendingJobId, reason, None);
    } else {
        change.end_attempt(s, OfferState::Withdrawn, reason);
    }
    change.order.next_attempt_at = Some(change.at + as_delta(pause_before_retry(change, rules)));
}

fn pause_before_retry(change: &Change, rules: PartnerRules) -> Duration {
    rules.dispatch.retry_after(change.order.attempt_no)
}

fn as_delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
