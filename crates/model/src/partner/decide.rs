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
    choice::PartnerChoice,
    observation::{BookingPhase, Observation, ObservationSource},
};
use crate::{
    actor::Actor,
    decide::{Change, Decision},
    ids::DriverId,
    messages::{self, RetrievalMethod},
    order::{Booking, BookingState, EventReason, HoldCause, OfferState, OrderStatus, Snapshot},
    policy::DispatchPolicy,
};

/// The durations a decision goes by.
#[derive(Debug, Clone, Copy)]
pub struct PartnerRules<'a> {
    pub dispatch: &'a DispatchPolicy,
    pub poll: &'a PollConfig,
}

/// Attempts after which an ambiguous refusal counts as final.
const BELIEVED_AFTER: i32 = 6;
/// Failed cancels after which support is told.
const TOLD_AFTER: i32 = 15;

/// An attempt begins: its booking is written down before the partner is asked, with the choice of the partner.
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

/// The partner has booked. `poll` says whether it will be asked for the job id.
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
            if poll && is_current(s, before) {
                change.order.next_poll_at = Some(s.now + as_delta(rules.poll.first));
            }
            change.record_event(EventReason::Booked, Some(booking_id.to_owned()));
        }
        // Of two requests one was refused, and that was heard of first.
        BookingState::Refused | BookingState::Cancelled => booking.want_cancel(s.now),
        BookingState::Booked | BookingState::CancelWanted | BookingState::Completed => {}
    }
    change.into()
}

/// The partner did not answer; it is asked again after `pause`.
pub fn booking_unanswered(s: &Snapshot, attempt_no: i32, error: &str, pause: Duration) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.next_try_at.is_some()) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.booking_mut(before).record_failure(error.to_owned(), s.now + as_delta(pause));
    change.into()
}

/// The partner will not take this booking: the attempt is over.
///
/// While an earlier request of it went unanswered a no proves little: the partner may be at work on that one, or a proxy
/// may answer in its place. It is asked again, and believed when it keeps to it.
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

/// The partner answered the `polls`-th question about the booking of attempt `o.attempt_no`. The next comes after `pause`.
pub fn poll_answered(s: &Snapshot, o: &Observation, polls: i32, pause: Duration, rules: PartnerRules) -> Decision {
    let Decision::Change(mut change) = apply_observation(s, o, rules) else {
        return poll_without_news(s, o.attempt_no, polls, pause, rules);
    };
    if s.order.attempt_no == o.attempt_no && s.order.poll_no == polls - 1 {
        count_ask(&mut change, s);
    }
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

/// Counts a question for the job id. Questions about an order that has its job id are none.
fn count_ask(change: &mut Change, s: &Snapshot) {
    if s.order.status == OrderStatus::PendingJobId {
        change.order.job_id_asks = s.order.job_id_asks.saturating_add(1);
    }
}

/// The partner knows nothing of a booking it had. Without a job id the order ends: the design of the job id retrieval
/// takes this for permanent. With one the attempt is over. With a driver under way a dispatcher must find out.
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
        // The driver goes on whatever the partner's system says; people are told, once, and it is asked again.
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

/// The attempt's time is over, and the partner has found no driver as far as we know.
pub fn attempt_timed_out(s: &Snapshot, rules: PartnerRules) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    end_attempt(&mut change, s, EventReason::AttemptTimeout, rules);
    change
}

/// The attempt's time is over, and this is what the partner says of it.
pub fn attempt_timed_out_unless(s: &Snapshot, o: &Observation, rules: PartnerRules) -> Decision {
    let runs = s.order.attempt_deadline.is_some() && s.order.attempt_no == o.attempt_no;
    match apply_observation(s, o, rules) {
        Decision::Change(change) if !runs || change.order.status != OrderStatus::Assigned => Decision::Change(change),
        _ if runs => attempt_timed_out(s, rules).into(),
        decision => decision,
    }
}

/// The partner confirmed that a booking is cancelled, or does not know it.
pub fn cancel_confirmed(s: &Snapshot, attempt_no: i32) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.booking_mut(before).close_as(BookingState::Cancelled, s.now);
    change.record_event(EventReason::BookingCancelled, before.booking_id.clone());
    change.into()
}

/// The partner does not cancel: its trip is under way. A passenger rides in a trip that the order does not know of.
pub fn cancel_refused(s: &Snapshot, attempt_no: i32, error: &str) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let why = format!("attempt {attempt_no}'s booking is carried out though it is no longer wanted; {error}");
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

/// The partner did not confirm the cancel; it is asked again after `pause`. A partner that keeps refusing will not change its
/// mind, one that is away for long needs a person: of both an alert is raised.
pub fn cancel_missed(s: &Snapshot, attempt_no: i32, error: &CallError, pause: Duration) -> Decision {
    let Some(before) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Decision::Unchanged;
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    let tries = before.tries + 1;
    if matches!(error, CallError::Refused(_)) && tries >= BELIEVED_AFTER {
        let why =
            format!("the partner will not cancel attempt {attempt_no}'s booking ({error}); see to it there by hand");
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
            format!("attempt {attempt_no}'s booking is still not cancelled at the partner ({error}); it is tried on");
        change.notify(messages::unexpected_state(&change.order, &why, s.now));
    }
    change.into()
}

/// What the partner says, compared with the order as it is.
pub fn apply_observation(s: &Snapshot, o: &Observation, rules: PartnerRules) -> Decision {
    let Some(before) = s.booking_of_attempt(o.attempt_no) else { return Decision::Unchanged };
    if let (Some(known), Some(said)) = (&before.booking_id, &o.booking_id)
        && known != said
    {
        // Another booking under our reference: not the one we hold, so none of ours.
        return Decision::Unchanged;
    }
    let mut change = Change::new(s, Actor::for_partner(&before.partner));
    learn_ids(&mut change, before, o, rules);
    match before.state {
        BookingState::Intent | BookingState::Unknown | BookingState::Booked if is_current(s, before) => {
            apply_to_current(&mut change, s, before, o, rules);
        }
        // A cancelled order's booking that was just about to be marked so.
        BookingState::Intent | BookingState::Unknown | BookingState::Booked => {}
        BookingState::CancelWanted if o.phase == BookingPhase::Cancelled => {
            change.booking_mut(before).close_as(BookingState::Cancelled, s.now);
            change.record_event(EventReason::BookingCancelled, before.booking_id.clone());
        }
        // It is over as far as we know, and lives: cancel it (again). A mere echo of what we know is no sign of life.
        BookingState::Cancelled | BookingState::Refused if booking_lives(before, o) => {
            change.booking_mut(before).want_cancel(s.now);
        }
        BookingState::CancelWanted | BookingState::Cancelled | BookingState::Refused | BookingState::Completed => {}
    }
    if change.is_nothing(&s.order) { Decision::Unchanged } else { change.into() }
}

fn booking_lives(before: &Booking, o: &Observation) -> bool {
    let new_job = o.job_id.is_some() && o.job_id != before.job_id;
    match o.phase {
        BookingPhase::DriverAssigned | BookingPhase::PickedUp => true,
        BookingPhase::Searching => new_job,
        BookingPhase::NoDriver | BookingPhase::DriverCancelled | BookingPhase::Completed | BookingPhase::Cancelled => {
            false
        }
    }
}

/// The ids a booking lacks are kept whatever has become of it: cancelling needs them.
fn learn_ids(change: &mut Change, before: &Booking, o: &Observation, rules: PartnerRules) {
    if before.booking_id.is_none()
        && let Some(id) = &o.booking_id
    {
        let at = change.at;
        let booking = change.booking_mut(before);
        booking.booking_id = Some(id.clone());
        if before.state.is_unanswered() {
            // The callback was quicker than the answer to our request. What it does not say is asked for.
            booking.set_booked(at);
            change.record_event(EventReason::Booked, Some(id.clone()));
            if change.order.status == OrderStatus::PendingJobId && change.order.attempt_no == before.attempt_no {
                change.order.next_poll_at = Some(at + as_delta(rules.poll.first));
            }
        }
    }
    if before.job_id.is_none()
        && let Some(job) = &o.job_id
    {
        change.booking_mut(before).job_id = Some(job.clone());
    }
}

/// Does the order go by this booking?
fn is_current(s: &Snapshot, booking: &Booking) -> bool {
    booking.attempt_no == s.order.attempt_no
        && matches!(
            s.order.status,
            OrderStatus::PendingJobId | OrderStatus::Assigned | OrderStatus::DriverAssigned | OrderStatus::PickedUp
        )
}

fn apply_to_current(change: &mut Change, s: &Snapshot, before: &Booking, o: &Observation, rules: PartnerRules) {
    if s.order.is_past_lifetime(s.now) {
        // Its lifetime's job is about to end it; a driver found now has come too late.
        return;
    }
    take_job_id(change, s, before, o, rules);
    match o.phase {
        BookingPhase::Searching => {}
        BookingPhase::DriverAssigned => take_driver(change, before, o, rules),
        BookingPhase::PickedUp => {
            take_driver(change, before, o, rules);
            pick_up(change, rules);
        }
        BookingPhase::Completed => {
            take_driver(change, before, o, rules);
            pick_up(change, rules);
            if change.order.status == OrderStatus::PickedUp {
                change.release_hold();
                change.transition_to(OrderStatus::Completed, EventReason::Completed, None);
                let at = change.at;
                change.booking_mut(before).close_as(BookingState::Completed, at);
            }
        }
        BookingPhase::NoDriver | BookingPhase::DriverCancelled | BookingPhase::Cancelled => {
            lose_partner_driver(change, s, before, rules);
            if o.phase == BookingPhase::Cancelled {
                // Nothing is left to cancel.
                let at = change.at;
                change.booking_mut(before).close_as(BookingState::Cancelled, at);
            }
        }
    }
}

fn take_job_id(change: &mut Change, s: &Snapshot, before: &Booking, o: &Observation, rules: PartnerRules) {
    let Some(job) = &o.job_id else {
        if o.phase != BookingPhase::Searching
            && s.order.status == OrderStatus::PendingJobId
            && o.via == ObservationSource::Callback
        {
            // Things go on there, and we lack the job id: ask at once.
            change.order.next_poll_at = Some(change.at);
        }
        return;
    };
    if change.order.status == OrderStatus::PendingJobId {
        change.order.job_id = Some(job.clone());
        let deadline = (change.at + as_delta(rules.dispatch.attempt)).min(change.order.lifetime_deadline);
        change.order.attempt_deadline = Some(deadline);
        let polls = change.order.poll_no + i32::from(o.via == ObservationSource::Poll);
        // Where callbacks got lost once they may again: the driver is asked for, too.
        change.order.poll_no = polls;
        change.order.next_poll_at = (o.via == ObservationSource::Poll)
            .then(|| change.at + as_delta(rules.poll.initial.mul_f64(rules.poll.multiplier)));
        change.transition_to(
            OrderStatus::Assigned,
            o.via.history_reason(),
            Some(format!("{job}, after {polls} polls")),
        );
        let method = match o.via {
            ObservationSource::Callback => RetrievalMethod::Callback,
            ObservationSource::Poll => RetrievalMethod::Proactive,
        };
        let took = (change.at - before.created_at).to_std().unwrap_or_default();
        change.notify(messages::job_id_retrieved(&s.order.id, job, polls.unsigned_abs(), took, method, change.at));
    } else if s.order.job_id.as_ref() != Some(job) {
        match o.via {
            // Who is right? The partner is asked; its answer holds.
            ObservationSource::Callback if change.order.status == OrderStatus::Assigned => {
                change.order.next_poll_at = Some(change.at);
                change.record_event(EventReason::JobIdConflict, Some(job.clone()));
            }
            ObservationSource::Callback => {}
            ObservationSource::Poll => {
                change.order.job_id = Some(job.clone());
                change.booking_mut(before).job_id = Some(job.clone());
                change.record_event(EventReason::JobIdChanged, Some(job.clone()));
            }
        }
    }
}

fn take_driver(change: &mut Change, before: &Booking, o: &Observation, rules: PartnerRules) {
    let partner = &before.partner;
    let driver = o.driver_id.as_ref().map(|id| DriverId::of_partner(partner, id));
    match change.order.status {
        OrderStatus::Assigned => {
            // A driver without a name is a driver; the next answer may name it.
            change.order.driver_id = Some(driver.unwrap_or_else(|| DriverId::of_partner(partner, "unknown")));
            change.transition_to(OrderStatus::DriverAssigned, EventReason::DriverFound, None);
            change.order.next_poll_at = Some(change.at + as_delta(rules.poll.follow));
        }
        OrderStatus::DriverAssigned if driver.is_some() && driver != change.order.driver_id => {
            change.order.driver_id = driver;
            change.record_event(EventReason::DriverChanged, None);
        }
        _ => {}
    }
}

fn pick_up(change: &mut Change, rules: PartnerRules) {
    if change.order.status == OrderStatus::DriverAssigned {
        change.transition_to(OrderStatus::PickedUp, EventReason::PickedUp, None);
        change.order.next_poll_at = Some(change.at + as_delta(rules.poll.follow));
    }
}

/// The partner has no driver for the order any more.
fn lose_partner_driver(change: &mut Change, s: &Snapshot, before: &Booking, rules: PartnerRules) {
    match change.order.status {
        OrderStatus::PendingJobId | OrderStatus::Assigned => end_attempt(change, s, EventReason::NoDriver, rules),
        OrderStatus::DriverAssigned => {
            let at = change.at;
            change.booking_mut(before).want_cancel(at);
            change.order.next_poll_at = None;
            if change.at < change.order.lifetime_deadline {
                change.order.driver_id = None;
                change.order.job_id = None;
                change.transition_to(OrderStatus::PendingJobId, EventReason::DriverCancelled, None);
                change.order.next_attempt_at = Some(change.at + as_delta(pause_before_retry(change, rules)));
            } else {
                change.end_without_driver(EventReason::DriverCancelled, None);
            }
        }
        OrderStatus::PickedUp if !s.order.held_for_review => {
            let why = "the partner broke the trip off after pick-up";
            change.hold_for_review(s, HoldCause::BrokenTrip, why);
            change.notify(messages::unexpected_state(&change.order, why, change.at));
        }
        _ => {}
    }
}

/// The running attempt is over; the next begins after the pause, if the lifetime lasts.
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
