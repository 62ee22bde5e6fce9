//! Decisions on a partner's report about a booking.

use super::{
    super::observation::{BookingPhase, Observation, ObservationSource},
    PartnerRules, as_delta, end_attempt, is_current, pause_before_retry,
};
use crate::{
    actor::Actor,
    decide::{Change, Decision},
    ids::{DriverId, PartnerName},
    messages::{self, RetrievalMethod},
    order::{Booking, BookingState, EventReason, HoldCause, OrderStatus, Snapshot},
};

/// Applies a partner's report to the current order.
pub fn apply_observation(s: &Snapshot, o: &Observation, rules: PartnerRules) -> Decision {
    let Some(before) = s.booking_of_attempt(o.attempt_no) else { return Decision::Unchanged };
    if let (Some(known), Some(said)) = (&before.booking_id, &o.booking_id)
        && known != said
    {
        // A different booking id under our reference: this report is not about our booking.
        return Decision::Unchanged;
    }
    let mut change = Change::new(s, Actor::for_partner(&before.partner));
    learn_ids(&mut change, before, o, rules);
    match before.state {
        BookingState::Intent | BookingState::Unknown | BookingState::Booked if is_current(s, before) => {
            apply_to_current(&mut change, s, before, o, rules);
        }
        // The order has ended, and its booking is about to be marked for cancel.
        BookingState::Intent | BookingState::Unknown | BookingState::Booked => {}
        BookingState::CancelWanted if o.phase == BookingPhase::Cancelled => {
            change.booking_mut(before).close_as(BookingState::Cancelled, s.now);
            change.record_event(EventReason::BookingCancelled, before.booking_id.clone());
        }
        // The booking is closed here but live at the partner, so it is cancelled again. A report that only repeats
        // known facts does not prove that it is live.
        BookingState::Cancelled | BookingState::Refused if booking_lives(before, o) => {
            change.booking_mut(before).want_cancel(s.now);
        }
        BookingState::Completed if o.via == ObservationSource::Callback => {
            record_late_word(&mut change, &before.partner, o, "completed");
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

/// Stores missing ids of a booking in every state, because a cancel needs them.
fn learn_ids(change: &mut Change, before: &Booking, o: &Observation, rules: PartnerRules) {
    if before.booking_id.is_none()
        && let Some(id) = &o.booking_id
    {
        let at = change.at;
        let booking = change.booking_mut(before);
        booking.booking_id = Some(id.clone());
        if before.state.is_unanswered() {
            // The callback arrived before the answer to the booking request. Facts that it lacks are polled.
            booking.set_booked(at);
            booking.next_try_at = (before.places.is_some() && rules.takes_details).then_some(at);
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

fn apply_to_current(change: &mut Change, s: &Snapshot, before: &Booking, o: &Observation, rules: PartnerRules) {
    if s.order.is_past_lifetime(s.now) {
        // The lifetime job is about to end the order, so a driver found now is too late.
        return;
    }
    take_job_id(change, s, before, o, rules);
    match o.phase {
        BookingPhase::Searching => {}
        BookingPhase::DriverAssigned => take_driver(change, before, o, rules),
        BookingPhase::PickedUp => {
            take_driver(change, before, o, rules);
            pick_up(change, o, rules);
        }
        BookingPhase::Completed => {
            take_driver(change, before, o, rules);
            pick_up(change, o, rules);
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
                // The booking is already cancelled at the partner.
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
            // The partner has made progress, but the job id is missing. Poll immediately.
            change.order.next_poll_at = Some(change.at);
            if let Some(word) = trip_word(o.phase) {
                let detail = format!("{word} came before job_id_assigned");
                change.record_event(EventReason::CallbackOutOfOrder, Some(detail));
            }
        }
        return;
    };
    if change.order.status == OrderStatus::PendingJobId {
        let at = change.at;
        let tells_contact = s.order.has_details && rules.takes_details;
        let booking = change.booking_mut(before);
        booking.assigned_at = Some(at);
        if tells_contact && booking.state == BookingState::Booked {
            booking.next_try_at = Some(at);
        }
        change.order.job_id = Some(job.clone());
        let deadline = (change.at + as_delta(rules.dispatch.attempt)).min(change.order.lifetime_deadline);
        change.order.attempt_deadline = Some(deadline);
        let polls = change.order.poll_no + i32::from(o.via == ObservationSource::Poll);
        // A job id from a poll means that a callback was lost, and more may get lost. The driver is therefore polled
        // too.
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
            // The two job ids conflict. The partner is polled, and its answer is final.
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
            // A driver without an id counts as a driver. A later report may name the driver.
            change.order.driver_id = Some(driver.unwrap_or_else(|| unnamed_driver(partner)));
            let detail = describe_early(o, BookingPhase::DriverAssigned);
            change.transition_to(OrderStatus::DriverAssigned, EventReason::DriverFound, detail);
            change.order.next_poll_at = Some(change.at + as_delta(rules.poll.follow));
        }
        OrderStatus::DriverAssigned if driver.is_some() && driver != change.order.driver_id => {
            change.order.driver_id = driver;
            change.record_event(EventReason::DriverChanged, None);
        }
        // After pickup the driver stays the same. Only a missing driver id is added.
        OrderStatus::PickedUp if o.phase == BookingPhase::DriverAssigned && o.via == ObservationSource::Callback => {
            record_late_word(change, partner, o, "picked_up");
        }
        _ => {}
    }
}

/// Records a callback that arrives after its successor `later`. It only adds a missing driver id.
fn record_late_word(change: &mut Change, partner: &PartnerName, o: &Observation, later: &str) {
    let Some(word) = trip_word(o.phase).filter(|word| *word != later) else { return };
    let driver = o.driver_id.as_ref().map(|id| DriverId::of_partner(partner, id));
    let named = driver.as_ref().map_or_else(String::new, |driver| format!(": {driver}"));
    if change.order.driver_id.as_ref() == Some(&unnamed_driver(partner)) && driver.is_some() {
        change.order.driver_id = driver;
    }
    change.record_event(EventReason::CallbackOutOfOrder, Some(format!("{word} came after {later}{named}")));
}

/// Describes a callback that arrived before the one for `step`.
fn describe_early(o: &Observation, step: BookingPhase) -> Option<String> {
    let is_early = o.phase != step && o.via == ObservationSource::Callback;
    let (word, missing) = trip_word(o.phase).filter(|_| is_early).zip(trip_word(step))?;
    Some(format!("{word} came before {missing}"))
}

/// Returns the id that represents a partner's driver until the partner names the driver.
fn unnamed_driver(partner: &PartnerName) -> DriverId {
    DriverId::of_partner(partner, "unknown")
}

/// Returns the callback type that starts a phase of the trip, as in docs/PARTNER.md.
fn trip_word(phase: BookingPhase) -> Option<&'static str> {
    match phase {
        BookingPhase::DriverAssigned => Some("driver_assigned"),
        BookingPhase::PickedUp => Some("picked_up"),
        BookingPhase::Completed => Some("completed"),
        BookingPhase::Searching | BookingPhase::NoDriver | BookingPhase::DriverCancelled | BookingPhase::Cancelled => {
            None
        }
    }
}

fn pick_up(change: &mut Change, o: &Observation, rules: PartnerRules) {
    if change.order.status == OrderStatus::DriverAssigned {
        let detail = describe_early(o, BookingPhase::PickedUp);
        change.transition_to(OrderStatus::PickedUp, EventReason::PickedUp, detail);
        change.order.next_poll_at = Some(change.at + as_delta(rules.poll.follow));
    }
}

/// Records that the partner no longer has a driver for the order.
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
            let why = "the partner ended the trip after pickup";
            change.hold_for_review(s, HoldCause::BrokenTrip, why);
            change.notify(messages::unexpected_state(&change.order, why, change.at));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        order::{Snapshot, order::fixture},
        partner::{PollConfig, RetrievalFailure},
        policy::example_policy,
    };

    fn observe(s: &Snapshot, attempt_no: i32, phase: BookingPhase, job_id: Option<&str>) -> Snapshot {
        let rules = PartnerRules { dispatch: &example_policy(), poll: &PollConfig::default(), takes_details: false };
        let (via, job_id) = (ObservationSource::Callback, job_id.map(str::to_owned));
        let told = Observation { via, attempt_no, booking_id: None, job_id, driver_id: None, phase };
        match apply_observation(s, &told, rules) {
            Decision::Change(change) => s.apply(&change),
            other => panic!("{other:?}"),
        }
    }

    /// Returns an order whose first booking has ended, and whose second waits for its job id.
    fn second_attempt() -> Snapshot {
        let mut s = fixture::partner_snapshot();
        for attempt_no in [1, 2] {
            let mut booking = Booking::new_intent(attempt_no, "bbd".into(), s.now);
            booking.booking_id = Some(format!("B-{attempt_no}"));
            booking.set_booked(s.now);
            s.bookings.push(booking);
        }
        s.bookings[0].close_as(BookingState::Cancelled, s.now);
        (s.order.attempt_no, s.order.next_attempt_at, s.order.job_id_asks) = (2, None, 3);
        s
    }

    fn failure_at_end(mut s: Snapshot) -> Option<RetrievalFailure> {
        s.order.status = OrderStatus::Compensating;
        RetrievalFailure::of_ended(&s)
    }

    // Rule L1: A job id of an earlier attempt, or one that arrives after the lifetime, does not become the job id of
    // the order.
    #[test]
    fn late_job_id_does_not_count() {
        let s = observe(&second_attempt(), 1, BookingPhase::Searching, Some("J-1"));
        assert_eq!((s.bookings[0].job_id.as_deref(), s.had_job_id()), (Some("J-1"), false));
        assert_eq!(failure_at_end(s.clone()), Some(RetrievalFailure::Timeout));
        let in_time = observe(&s, 2, BookingPhase::Searching, Some("J-2"));
        assert_eq!((in_time.order.status, in_time.had_job_id()), (OrderStatus::Assigned, true));
        assert_eq!(failure_at_end(in_time), None);

        let mut late = second_attempt();
        late.now = late.order.lifetime_deadline;
        let late = observe(&late, 2, BookingPhase::Searching, Some("J-2"));
        assert_eq!(failure_at_end(late), Some(RetrievalFailure::Timeout));
    }

    // Rule F45: `completed` before `picked_up` is noted, and a callback of the trip after `completed` is recorded.
    #[test]
    fn early_completion_and_late_callbacks_are_recorded() {
        let assigned = observe(&second_attempt(), 2, BookingPhase::DriverAssigned, Some("J-2"));
        assert_eq!(assigned.order.status, OrderStatus::DriverAssigned);
        let rules = PartnerRules { dispatch: &example_policy(), poll: &PollConfig::default(), takes_details: false };
        let details = |s: &Snapshot, phase| {
            let (via, driver_id) = (ObservationSource::Callback, Some("D-7".to_owned()));
            let told = Observation { via, attempt_no: 2, booking_id: None, job_id: None, driver_id, phase };
            match apply_observation(s, &told, rules) {
                Decision::Change(change) => {
                    let told = change.events.iter().map(|e| (e.reason, e.detail.clone().unwrap_or_default())).collect();
                    (told, s.apply(&change))
                }
                _ => (Vec::new(), s.clone()),
            }
        };
        let (told, completed) = details(&assigned, BookingPhase::Completed);
        let early = (EventReason::PickedUp, "completed came before picked_up".to_owned());
        assert_eq!(told[1..], [early, (EventReason::Completed, String::new())]);
        for (phase, word) in [
            (BookingPhase::PickedUp, "picked_up came after completed: bbd:D-7"),
            (BookingPhase::DriverAssigned, "driver_assigned came after completed: bbd:D-7"),
        ] {
            assert_eq!(details(&completed, phase).0, [(EventReason::CallbackOutOfOrder, word.to_owned())]);
        }
        assert_eq!(details(&completed, BookingPhase::Completed).0, [], "the same again");
    }
}
