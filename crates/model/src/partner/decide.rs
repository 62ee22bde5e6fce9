//! What a partner's word leads to. Pure.
//!
//! Callbacks get lost, come twice, late, early and out of turn; answers come after the question has lost its point. So
//! nothing here expects an order of arrival: an [`Observation`] is compared with the order as it is now, and whatever it
//! adds is taken. A booking that is no longer wanted gives nothing to its order any more.

use std::time::Duration;

use chrono::TimeDelta;

use super::{
    PollConfig,
    answer::CallError,
    observation::{Observation, Phase, Via},
};
use crate::{
    actor::Actor,
    fleet::policy::DispatchPolicy,
    messages::{self, Method},
    order::{Booking, BookingState, Change, Decision, OfferState, Reason, Snapshot, Status},
};

/// The durations a decision goes by.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    pub dispatch: &'a DispatchPolicy,
    pub poll: &'a PollConfig,
}

/// Attempts after which an ambiguous refusal counts as final.
const BELIEVED_AFTER: i32 = 6;
/// Failed cancels after which support is told.
const TOLD_AFTER: i32 = 15;

/// An attempt begins: its booking is written down before the partner is asked.
pub fn start(s: &Snapshot, partner: &str) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.order.attempt_no += 1;
    change.order.next_attempt_at = None;
    change.order.job_id = None;
    (change.order.poll_no, change.order.next_poll_at) = (0, None);
    change.bookings.push(Booking::intent(change.order.attempt_no, partner.to_owned(), s.now));
    change.record_event(Reason::AttemptStarted, None);
    change
}

/// The partner has booked. `poll` says whether it will be asked for the job id.
pub fn booked(s: &Snapshot, attempt_no: i32, booking_id: &str, poll: bool, rules: Rules) -> Decision {
    let Some(before) = s.booking(attempt_no).filter(|b| b.booking_id.is_none()) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    let booking = change.booking(before);
    booking.booking_id = Some(booking_id.to_owned());
    match before.state {
        BookingState::Intent | BookingState::Unknown => {
            booking.set_booked(s.now);
            if poll && is_current(s, before) {
                change.order.next_poll_at = Some(s.now + as_delta(rules.poll.first));
            }
            change.record_event(Reason::Booked, Some(booking_id.to_owned()));
        }
        // Of two requests one was refused, and that was heard of first.
        BookingState::Refused | BookingState::Cancelled => booking.want_cancel(s.now),
        BookingState::Booked | BookingState::CancelWanted | BookingState::Completed => {}
    }
    change.into()
}

/// The partner did not answer; it is asked again after `pause`.
pub fn booking_unanswered(s: &Snapshot, attempt_no: i32, error: &str, pause: Duration) -> Decision {
    let Some(before) = s.booking(attempt_no).filter(|b| b.next_try_at.is_some()) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.booking(before).missed(error.to_owned(), s.now + as_delta(pause));
    change.into()
}

/// The partner will not take this booking: the attempt is over.
///
/// While an earlier request of it went unanswered a no proves little: the partner may be at work on that one, or a proxy
/// may answer in its place. It is asked again, and believed when it keeps to it.
pub fn refused(s: &Snapshot, attempt_no: i32, error: &str, pause: Duration, rules: Rules) -> Decision {
    let Some(before) = s.booking(attempt_no).filter(|b| b.booking_id.is_none()) else { return Decision::Unchanged };
    let in_doubt = matches!(before.state, BookingState::Unknown | BookingState::CancelWanted);
    if in_doubt && before.tries < BELIEVED_AFTER {
        return booking_unanswered(s, attempt_no, error, pause);
    }
    let mut change = Change::new(s, Actor::SYSTEM);
    if before.state.is_unanswered() && is_current(s, before) {
        end_attempt(&mut change, s, Reason::BookingRefused, rules);
    }
    let booking = change.booking(before);
    booking.last_error = Some(error.to_owned());
    booking.close(BookingState::Refused, s.now);
    change.into()
}

/// The partner answered the `polls`-th question about the booking of attempt `o.attempt_no`. The next comes after `pause`.
pub fn poll_answered(s: &Snapshot, o: &Observation, polls: i32, pause: Duration, rules: Rules) -> Decision {
    let Decision::Change(mut change) = observe(s, o, rules) else {
        return poll_without_news(s, o.attempt_no, polls, pause, rules);
    };
    // What was learnt is also the end of this question, unless it has an end of its own.
    if change.order.attempt_no == o.attempt_no
        && change.order.poll_no == polls - 1
        && change.order.next_poll_at == s.order.next_poll_at
    {
        change.order.poll_no = polls;
        change.order.next_poll_at = change.order.next_poll_at.map(|_| s.now + as_delta(pause));
    }
    Decision::Change(change)
}

/// The partner was asked how attempt `attempt_no`'s booking stands, and said nothing new: again after `pause`.
pub fn poll_without_news(s: &Snapshot, attempt_no: i32, polls: i32, pause: Duration, rules: Rules) -> Decision {
    let waits = s.order.attempt_no == attempt_no && s.order.poll_no == polls - 1 && s.order.next_poll_at.is_some();
    let Some(booking) = s.live_booking().filter(|_| waits) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.order.poll_no = polls;
    change.order.next_poll_at = Some(s.now + as_delta(pause));
    let begun = booking.booked_at.unwrap_or(booking.created_at);
    if s.order.status == Status::PendingJobId && s.now >= begun + as_delta(rules.poll.budget) {
        change.order.next_poll_at = None;
        change.record_event(Reason::PollingEnded, Some(format!("{polls} polls")));
    }
    change.into()
}

/// The partner knows nothing of a booking it had. Without a job id the order ends: the design of the job id retrieval
/// takes this for permanent. With one the attempt is over. With a driver under way a dispatcher must find out.
pub fn booking_not_found(s: &Snapshot, attempt_no: i32, rules: Rules) -> Decision {
    let Some(before) = s.booking(attempt_no).filter(|b| b.state == BookingState::Booked && is_current(s, b)) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    match s.order.status {
        Status::PendingJobId => {
            change.withdraw_bookings(s);
            change.transition_to(Status::Compensating, Reason::BookingNotFound, None);
        }
        Status::Assigned => end_attempt(&mut change, s, Reason::BookingNotFound, rules),
        // The driver goes on whatever the partner's system says; people are told, once, and it is asked again.
        _ => {
            if before.last_error.is_none() {
                let why = "the partner does not know the booking of a trip under way";
                change.booking(before).last_error = Some(why.to_owned());
                change.notify(messages::unexpected_state(&change.order, why, s.now));
            }
            change.order.poll_no += 1;
            change.order.next_poll_at = Some(s.now + as_delta(rules.poll.follow));
            return change.into();
        }
    }
    let booking = change.booking(before);
    booking.last_error = Some("the partner does not know this booking".to_owned());
    booking.close(BookingState::Refused, s.now);
    change.into()
}

/// The attempt's time is over, and the partner has found no driver as far as we know.
pub fn timeout(s: &Snapshot, rules: Rules) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    end_attempt(&mut change, s, Reason::AttemptTimeout, rules);
    change
}

/// The attempt's time is over, and this is what the partner says of it.
pub fn timeout_unless(s: &Snapshot, o: &Observation, rules: Rules) -> Decision {
    let runs = s.order.attempt_deadline.is_some() && s.order.attempt_no == o.attempt_no;
    match observe(s, o, rules) {
        Decision::Change(change) if !runs || change.order.status != Status::Assigned => Decision::Change(change),
        _ if runs => timeout(s, rules).into(),
        decision => decision,
    }
}

/// The partner confirmed that a booking is cancelled, or does not know it.
pub fn cancelled(s: &Snapshot, attempt_no: i32) -> Decision {
    let Some(before) = s.booking(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.booking(before).close(BookingState::Cancelled, s.now);
    change.record_event(Reason::BookingCancelled, before.booking_id.clone());
    change.into()
}

/// The partner does not cancel: its trip is under way. A passenger rides in a trip that the order does not know of.
pub fn not_cancelled(s: &Snapshot, attempt_no: i32, error: &str) -> Decision {
    let Some(before) = s.booking(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let why = format!("attempt {attempt_no}'s booking is carried out though it is no longer wanted; {error}");
    let mut change = Change::new(s, Actor::SYSTEM);
    if s.order.status.is_searching() && !s.order.held_for_review {
        change.hold(s, why.clone());
    }
    let booking = change.booking(before);
    booking.last_error = Some(error.to_owned());
    booking.close(BookingState::Completed, s.now);
    change.record_event(Reason::BookingNotCancelled, Some(error.to_owned()));
    change.notify(messages::unexpected_state(&change.order, &why, s.now));
    change.into()
}

/// The partner did not confirm the cancel; it is asked again after `pause`. A partner that keeps refusing will not change its
/// mind, one that is away for long needs a person: of both an alert is raised.
pub fn cancel_missed(s: &Snapshot, attempt_no: i32, error: &CallError, pause: Duration) -> Decision {
    let Some(before) = s.booking(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    let tries = before.tries + 1;
    if matches!(error, CallError::Refused(_)) && tries >= BELIEVED_AFTER {
        let why =
            format!("the partner will not cancel attempt {attempt_no}'s booking ({error}); see to it there by hand");
        let booking = change.booking(before);
        booking.last_error = Some(error.to_string());
        booking.close(BookingState::Refused, s.now);
        change.record_event(Reason::BookingNotCancelled, Some(error.to_string()));
        change.notify(messages::unexpected_state(&change.order, &why, s.now));
        return change.into();
    }
    change.booking(before).missed(error.to_string(), s.now + as_delta(pause));
    if tries == TOLD_AFTER {
        let why =
            format!("attempt {attempt_no}'s booking is still not cancelled at the partner ({error}); it is tried on");
        change.notify(messages::unexpected_state(&change.order, &why, s.now));
    }
    change.into()
}

/// What the partner says, compared with the order as it is.
pub fn observe(s: &Snapshot, o: &Observation, rules: Rules) -> Decision {
    let Some(before) = s.booking(o.attempt_no) else { return Decision::Unchanged };
    if let (Some(known), Some(said)) = (&before.booking_id, &o.booking_id)
        && known != said
    {
        // Another booking under our reference: not the one we hold, so none of ours.
        return Decision::Unchanged;
    }
    let mut change = Change::new(s, Actor::partner(&before.partner));
    learn_ids(&mut change, before, o, rules);
    match before.state {
        BookingState::Intent | BookingState::Unknown | BookingState::Booked if is_current(s, before) => {
            apply_to_current(&mut change, s, before, o, rules);
        }
        // A cancelled order's booking that was just about to be marked so.
        BookingState::Intent | BookingState::Unknown | BookingState::Booked => {}
        BookingState::CancelWanted if o.phase == Phase::Cancelled => {
            change.booking(before).close(BookingState::Cancelled, s.now);
            change.record_event(Reason::BookingCancelled, before.booking_id.clone());
        }
        // It is over as far as we know, and lives: cancel it (again). A mere echo of what we know is no sign of life.
        BookingState::Cancelled | BookingState::Refused if booking_lives(before, o) => {
            change.booking(before).want_cancel(s.now);
        }
        BookingState::CancelWanted | BookingState::Cancelled | BookingState::Refused | BookingState::Completed => {}
    }
    if change.is_nothing(&s.order) { Decision::Unchanged } else { change.into() }
}

fn booking_lives(before: &Booking, o: &Observation) -> bool {
    let new_job = o.job_id.is_some() && o.job_id != before.job_id;
    match o.phase {
        Phase::DriverAssigned | Phase::PickedUp => true,
        Phase::Searching => new_job,
        Phase::NoDriver | Phase::DriverCancelled | Phase::Completed | Phase::Cancelled => false,
    }
}

/// The ids a booking lacks are kept whatever has become of it: cancelling needs them.
fn learn_ids(change: &mut Change, before: &Booking, o: &Observation, rules: Rules) {
    if before.booking_id.is_none()
        && let Some(id) = &o.booking_id
    {
        let at = change.at;
        let booking = change.booking(before);
        booking.booking_id = Some(id.clone());
        if before.state.is_unanswered() {
            // The callback was quicker than the answer to our request. What it does not say is asked for.
            booking.set_booked(at);
            change.record_event(Reason::Booked, Some(id.clone()));
            if change.order.status == Status::PendingJobId && change.order.attempt_no == before.attempt_no {
                change.order.next_poll_at = Some(at + as_delta(rules.poll.first));
            }
        }
    }
    if before.job_id.is_none()
        && let Some(job) = &o.job_id
    {
        change.booking(before).job_id = Some(job.clone());
    }
}

/// Does the order go by this booking?
fn is_current(s: &Snapshot, booking: &Booking) -> bool {
    booking.attempt_no == s.order.attempt_no
        && matches!(s.order.status, Status::PendingJobId | Status::Assigned | Status::DriverAssigned | Status::PickedUp)
}

fn apply_to_current(change: &mut Change, s: &Snapshot, before: &Booking, o: &Observation, rules: Rules) {
    if s.order.is_past_lifetime(s.now) {
        // Its lifetime's job is about to end it; a driver found now has come too late.
        return;
    }
    take_job_id(change, s, before, o, rules);
    match o.phase {
        Phase::Searching => {}
        Phase::DriverAssigned => take_driver(change, s, o, rules),
        Phase::PickedUp => {
            take_driver(change, s, o, rules);
            pick_up(change, rules);
        }
        Phase::Completed => {
            take_driver(change, s, o, rules);
            pick_up(change, rules);
            if change.order.status == Status::PickedUp {
                change.release_hold();
                change.transition_to(Status::Completed, Reason::Completed, None);
                let at = change.at;
                change.booking(before).close(BookingState::Completed, at);
            }
        }
        Phase::NoDriver | Phase::DriverCancelled | Phase::Cancelled => {
            give_back(change, s, before, rules);
            if o.phase == Phase::Cancelled {
                // Nothing is left to cancel.
                let at = change.at;
                change.booking(before).close(BookingState::Cancelled, at);
            }
        }
    }
}

fn take_job_id(change: &mut Change, s: &Snapshot, before: &Booking, o: &Observation, rules: Rules) {
    let Some(job) = &o.job_id else {
        if o.phase != Phase::Searching && s.order.status == Status::PendingJobId && o.via == Via::Callback {
            // Things go on there, and we lack the job id: ask at once.
            change.order.next_poll_at = Some(change.at);
        }
        return;
    };
    if change.order.status == Status::PendingJobId {
        change.order.job_id = Some(job.clone());
        let deadline = (change.at + as_delta(rules.dispatch.attempt)).min(change.order.lifetime_deadline);
        change.order.attempt_deadline = Some(deadline);
        let polls = change.order.poll_no + i32::from(o.via == Via::Poll);
        // Where callbacks got lost once they may again: the driver is asked for, too.
        change.order.poll_no = polls;
        change.order.next_poll_at =
            (o.via == Via::Poll).then(|| change.at + as_delta(rules.poll.initial.mul_f64(rules.poll.multiplier)));
        change.transition_to(Status::Assigned, o.via.reason(), Some(format!("{job}, after {polls} polls")));
        let method = match o.via {
            Via::Callback => Method::Callback,
            Via::Poll => Method::Proactive,
        };
        let took = (change.at - before.created_at).to_std().unwrap_or_default();
        change.notify(messages::job_id_retrieved(&s.order.id, job, polls.unsigned_abs(), took, method, change.at));
    } else if s.order.job_id.as_ref() != Some(job) {
        match o.via {
            // Who is right? The partner is asked; its answer holds.
            Via::Callback if change.order.status == Status::Assigned => {
                change.order.next_poll_at = Some(change.at);
                change.record_event(Reason::JobIdConflict, Some(job.clone()));
            }
            Via::Callback => {}
            Via::Poll => {
                change.order.job_id = Some(job.clone());
                change.booking(before).job_id = Some(job.clone());
                change.record_event(Reason::JobIdChanged, Some(job.clone()));
            }
        }
    }
}

fn take_driver(change: &mut Change, s: &Snapshot, o: &Observation, rules: Rules) {
    let Some(partner) = &s.order.partner else { return };
    let driver = o.driver_id.as_ref().map(|id| format!("{partner}:{id}"));
    match change.order.status {
        Status::Assigned => {
            // A driver without a name is a driver; the next answer may name it.
            change.order.driver_id = Some(driver.unwrap_or_else(|| format!("{partner}:unknown")));
            change.transition_to(Status::DriverAssigned, Reason::DriverFound, None);
            change.order.next_poll_at = Some(change.at + as_delta(rules.poll.follow));
        }
        Status::DriverAssigned if driver.is_some() && driver != change.order.driver_id => {
            change.order.driver_id = driver;
            change.record_event(Reason::DriverChanged, None);
        }
        _ => {}
    }
}

fn pick_up(change: &mut Change, rules: Rules) {
    if change.order.status == Status::DriverAssigned {
        change.transition_to(Status::PickedUp, Reason::PickedUp, None);
        change.order.next_poll_at = Some(change.at + as_delta(rules.poll.follow));
    }
}

/// The partner has no driver for the order any more.
fn give_back(change: &mut Change, s: &Snapshot, before: &Booking, rules: Rules) {
    match change.order.status {
        Status::PendingJobId | Status::Assigned => end_attempt(change, s, Reason::NoDriver, rules),
        Status::DriverAssigned => {
            let at = change.at;
            change.booking(before).want_cancel(at);
            change.order.next_poll_at = None;
            if change.at < change.order.lifetime_deadline {
                change.order.driver_id = None;
                change.order.job_id = None;
                change.transition_to(Status::PendingJobId, Reason::DriverCancelled, None);
                change.order.next_attempt_at = Some(change.at + as_delta(pause_before_retry(change, rules)));
            } else {
                change.end_without_driver(Reason::DriverCancelled, None);
            }
        }
        Status::PickedUp if !s.order.held_for_review => {
            let why = "the partner broke the trip off after pick-up";
            change.hold(s, why);
            change.notify(messages::unexpected_state(&change.order, why, change.at));
        }
        _ => {}
    }
}

/// The running attempt is over; the next begins after the pause, if the lifetime lasts.
fn end_attempt(change: &mut Change, s: &Snapshot, reason: Reason, rules: Rules) {
    if change.order.status == Status::Assigned {
        change.withdraw_bookings(s);
        (change.order.attempt_deadline, change.order.job_id) = (None, None);
        change.transition_to(Status::PendingJobId, reason, None);
    } else {
        change.end_attempt(s, OfferState::Withdrawn, reason);
    }
    change.order.next_attempt_at = Some(change.at + as_delta(pause_before_retry(change, rules)));
}

fn pause_before_retry(change: &Change, rules: Rules) -> Duration {
    rules.dispatch.retry_after(change.order.attempt_no)
}

fn as_delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
