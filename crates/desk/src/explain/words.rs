//! Text for the state of an order and for the actions that a person can take. Pure.

use jobs::{
    ApplyCallback, CancelBooking, CompensateOrder, DispatchOrder, EscalateAlert, ExpireAttempt, ExpireOrder,
    PollPartner, RefundOrder, RemindDispatchers, SendDetails, SendNotification, StartWave, WarnOfPickup,
};
use model::order::{BookingState, EventReason, HoldCause, OrderStatus};

use super::{JobStanding, OpenPartner, OperatorAdvice, OrderSurroundings, reason::OrderReason};
use orders::query::TimelineEvent;
use queue::Job;

/// Returns what a job of this kind does.
pub fn describe_job(kind: &str) -> &'static str {
    match kind {
        DispatchOrder::KIND => "starts an attempt: offers or books",
        ExpireAttempt::KIND => "ends the attempt if no driver has the order",
        StartWave::KIND => "asks further drivers in a wider circle",
        PollPartner::KIND => "asks the partner for the state of the booking",
        SendDetails::KIND => "sends changed contents of the booking to the partner",
        ApplyCallback::KIND => "processes a callback of the partner",
        ExpireOrder::KIND => "ends the order if it has no driver",
        WarnOfPickup::KIND => "warns dispatchers if the order has no driver before its pickup",
        CompensateOrder::KIND => "settles the payment of the ended order",
        CancelBooking::KIND => "cancels a booking at the partner",
        RefundOrder::KIND => "requests the refund from the payment service",
        SendNotification::KIND => "delivers a message",
        EscalateAlert::KIND => "escalates an alert that was not acknowledged",
        RemindDispatchers::KIND => "reminds the dispatchers",
        _ => "",
    }
}

/// Returns the reason for the order's state.
pub fn explain_status(about: &OrderSurroundings) -> OrderReason {
    let s = &about.snapshot;
    let o = &s.order;
    if let Some(reason) = &o.held_reason {
        return OrderReason::Held { cause: o.hold_cause.clone(), reason: reason.clone() };
    }
    match o.status {
        OrderStatus::Scheduled => {
            let at = o.next_attempt_at.unwrap_or_else(|| o.dispatch_start()).max(o.dispatch_start());
            let is_delayed = o.starts_at.is_some_and(|start| at > start);
            OrderReason::Scheduled { pickup_at: o.pickup_at, at, is_delayed }
        }
        OrderStatus::Dispatching => match (s.live_offer(), o.next_search_at(s.now)) {
            (Some(offer), _) => OrderReason::Asked {
                attempt_no: offer.attempt_no,
                drivers: s.live_offers().map(|offer| offer.driver_id.clone()).collect(),
                since: offer.offered_at,
                until: offer.expires_at,
            },
            (None, Some(at)) if o.attempt_no == 0 && o.round == 1 => OrderReason::New { at },
            (None, Some(at)) => OrderReason::SearchRestarts { attempts: o.attempt_no, round: o.round, at },
            (None, None) => OrderReason::Answered { attempt_no: o.attempt_no },
        },
        OrderStatus::PendingJobId => pending_job_id(about),
        OrderStatus::Assigned => OrderReason::AtPartner {
            attempt_no: o.attempt_no,
            partner: o.partner.clone(),
            job_id: o.job_id.clone(),
            until: o.attempt_deadline,
            choice: find_choice(about),
        },
        OrderStatus::Pending => OrderReason::GaveUp { attempts: o.attempt_no },
        OrderStatus::DriverAssigned => OrderReason::OnTheWay { driver: o.driver_id.clone() },
        OrderStatus::PickedUp => OrderReason::Aboard { driver: o.driver_id.clone() },
        OrderStatus::Compensating => OrderReason::Settling,
        _ => explain_closed(about),
    }
}

fn pending_job_id(about: &OrderSurroundings) -> OrderReason {
    let s = &about.snapshot;
    let o = &s.order;
    let partner = o.partner.clone();
    let Some(booking) = s.live_booking() else {
        let partners = if about.partners.is_empty() { partner.into_iter().collect() } else { about.partners.clone() };
        return OrderReason::ToBeBooked { attempt_no: o.attempt_no + 1, partners, at: o.next_attempt_at };
    };
    let choice = find_choice(about);
    match booking.state {
        BookingState::Intent => OrderReason::BeingBooked { attempt_no: o.attempt_no, partner, choice },
        BookingState::Unknown => OrderReason::Unanswered {
            attempt_no: o.attempt_no,
            partner,
            tries: booking.tries,
            error: booking.last_error.clone(),
            choice,
        },
        _ => OrderReason::WithoutJobId {
            partner,
            booking_id: booking.booking_id.clone(),
            polls: o.poll_no,
            next_poll_at: o.next_poll_at,
            choice,
        },
    }
}

/// Returns why this partner was chosen for the running attempt, or `None` if there was no choice.
fn find_choice(about: &OrderSurroundings) -> Option<String> {
    let attempt_no = Some(about.snapshot.order.attempt_no);
    let is_start = |e: &&TimelineEvent| e.attempt_no == attempt_no && e.reason == EventReason::AttemptStarted.as_str();
    about.timeline.iter().rev().find(is_start).and_then(|event| event.detail.clone())
}

fn explain_closed(about: &OrderSurroundings) -> OrderReason {
    let status = about.snapshot.order.status;
    let entered = about.timeline.iter().rev().find(|e| e.to_status == status && e.from_status != Some(status));
    match entered {
        None => OrderReason::Untold { status },
        Some(TimelineEvent { at, actor, reason, detail, .. }) => {
            OrderReason::Ended { status, at: *at, actor: actor.clone(), reason: reason.clone(), detail: detail.clone() }
        }
    }
}

/// Returns the actions that a person can take.
pub fn advise_operator(about: &OrderSurroundings) -> Vec<OperatorAdvice> {
    let s = &about.snapshot;
    let o = &s.order;
    let id = &o.id;
    let mut advice = Vec::new();
    let mut say = |text: &str, command: Option<String>| advice.push(OperatorAdvice { text: text.to_owned(), command });

    for job in &about.next {
        match &job.state {
            JobStanding::Dead { error } => {
                say(&format!("{} is dead: {error}", job.job), Some(format!("dispatchq dead show {}", job.job)));
            }
            JobStanding::Missing => {
                say(
                    &format!("{} is missing; the reconciler enqueues it within seconds, or run it now", job.job),
                    Some("dispatchq reconcile run".to_owned()),
                );
            }
            JobStanding::Waiting { .. }
            | JobStanding::Parked { .. }
            | JobStanding::Running { .. }
            | JobStanding::Unknown => {}
        }
    }
    if !s.alerts.is_empty() {
        say(
            "an alert waits for a person to acknowledge it",
            Some(format!("dispatchq alert ack --order {id} --reason TEXT --yes")),
        );
    }
    for queue in &about.paused {
        say(&format!("{queue} is paused"), Some(format!("dispatchq queue resume {queue}")));
    }
    for (queue, cause) in &about.unserved {
        say(&cause.describe(queue), Some(cause.remedy().to_owned()));
    }
    for OpenPartner { name, open_secs, why } in &about.partners_open {
        let text = format!("partner {name} is not called for {open_secs} s more: {why}");
        say(&text, Some("dispatchq partner list".to_owned()));
    }
    let assign = || Some(format!("dispatchq order assign {id} --driver ID"));
    let redispatch = || Some(format!("dispatchq order redispatch {id}"));
    let cancel = || Some(format!("dispatchq order cancel {id}"));
    let ours = o.partner.is_none();
    if o.hold_cause == Some(HoldCause::ByHand) {
        say("resume it", Some(format!("dispatchq order resume {id} --reason TEXT")));
    }
    match o.status {
        OrderStatus::DriverAssigned if ours => {
            let release = format!("dispatchq order release {id} --reason TEXT");
            say("if the driver does not come, release the order", Some(release));
        }
        OrderStatus::Pending => {
            say("assign a driver", assign());
            say("or search again", redispatch());
            say("or cancel it", cancel());
        }
        OrderStatus::Scheduled => say("if the order is not wanted, cancel it", cancel()),
        OrderStatus::Dispatching | OrderStatus::PendingJobId | OrderStatus::Assigned if o.held_for_review => {
            say("search again", redispatch());
            say("or cancel it", cancel());
        }
        OrderStatus::Compensating if o.held_for_review => {
            say("end it after the payment is settled", cancel());
        }
        OrderStatus::CancelledBySystemAfterPayment => {
            say("pay the money back and record it", Some(format!("dispatchq order refund start {id}")));
        }
        OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver if o.owes_refund() => {
            say("pay the money back and record it", Some(format!("dispatchq order refund start {id}")));
        }
        OrderStatus::RefundPending => {
            say("after the money is paid back", Some(format!("dispatchq order refund done {id}")));
        }
        _ => {}
    }
    advice
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::explain::NextJob;
    use foundation::worker_drains::Unserved;
    use model::{
        decide::timers,
        messages,
        order::{Booking, PendingAlert, PendingCallback, PendingMessage, Snapshot, order::fixture},
    };

    fn about(snapshot: Snapshot) -> OrderSurroundings {
        OrderSurroundings {
            snapshot,
            timeline: Vec::new(),
            next: Vec::new(),
            paused: Vec::new(),
            unserved: Vec::new(),
            partners: Vec::new(),
            partners_open: Vec::new(),
        }
    }

    fn commands(about: &OrderSurroundings) -> Vec<String> {
        advise_operator(about).into_iter().filter_map(|a| a.command).collect()
    }

    #[test]
    fn scheduled_order_explains_its_start() {
        let mut s = fixture::scheduled_snapshot();
        let explain = |s: &Snapshot| explain_status(&about(s.clone())).to_string();
        assert_eq!(
            explain(&s),
            "Scheduled for pickup at 2027-01-15T09:00:00Z: dispatch starts at 2027-01-15T08:40:00Z."
        );
        s.order.next_attempt_at = s.order.starts_at.map(|start| start + TimeDelta::minutes(1));
        assert!(
            explain(&s).ends_with("Its area has no room; dispatch starts at 2027-01-15T08:41:00Z at the earliest.")
        );
    }

    #[test]
    fn offered_order_needs_no_advice() {
        let about = about(fixture::offered_snapshot());
        let why = explain_status(&about).to_string();
        assert!(why.starts_with("Attempt 1: driver D1 was asked at"), "{why}");
        assert_eq!(commands(&about), Vec::<String>::new());
    }

    #[test]
    fn blocked_order_gets_a_command_per_cause() {
        let mut about = about(fixture::offered_snapshot());
        about.paused = vec![jobs::queues::DISPATCH_TIMEOUT.to_owned()];
        about.unserved = vec![
            (jobs::queues::LIFETIME_CANCEL.to_owned(), Unserved::NoWorker),
            (jobs::queues::DISPATCH_TIMEOUT.to_owned(), Unserved::Drained),
        ];
        about.next.push(NextJob {
            job: "timeout:ORD-1:1".to_owned(),
            queue: jobs::queues::DISPATCH_TIMEOUT.to_owned(),
            does: describe_job(ExpireAttempt::KIND),
            at: about.snapshot.now,
            state: JobStanding::Dead { error: "panicked".to_owned() },
        });
        let commands = commands(&about);
        assert_eq!(
            commands,
            [
                "dispatchq dead show timeout:ORD-1:1",
                "dispatchq queue resume dispatch-timeout-queue",
                "dispatchq work",
                "dispatchq worker resume ID",
            ]
        );
    }

    #[test]
    fn booking_without_job_id_explains_the_polling() {
        let mut s = fixture::partner_snapshot();
        assert!(explain_status(&about(s.clone())).to_string().contains("Attempt 1 will be booked at bbd"));
        let mut booking = Booking::new_intent(1, "bbd".into(), s.now);
        booking.booking_id = Some("B-1".to_owned());
        booking.set_booked(s.now);
        s.order.attempt_no = 1;
        s.order.next_attempt_at = None;
        s.bookings.push(booking);
        s.order.poll_no = 3;
        s.order.next_poll_at = Some(s.now + TimeDelta::seconds(8));
        assert!(
            explain_status(&about(s.clone()))
                .to_string()
                .contains("Booked at bbd as B-1; its job id is not known yet, polled 3 times")
        );
        s.order.next_poll_at = None;
        assert!(explain_status(&about(s)).to_string().contains("the callback must bring it"));
    }

    #[test]
    fn paid_ended_order_advises_refund() {
        let mut s = fixture::created_snapshot();
        s.order.status = OrderStatus::CancelledBySystemAfterPayment;
        assert_eq!(commands(&about(s.clone())), ["dispatchq order refund start ORD-1"]);
        s.order.status = OrderStatus::CancelledByUser;
        assert_eq!(commands(&about(s)), Vec::<String>::new());
    }

    #[test]
    fn every_job_of_an_order_has_a_description() {
        let mut s = fixture::offered_snapshot();
        (s.order.next_poll_at, s.order.next_wave_at, s.order.warn_at) = (Some(s.now), Some(s.now), Some(s.now));
        s.bookings.push(Booking::new_intent(1, "bbd".into(), s.now));
        s.callbacks.push(PendingCallback { id: 1, received_at: s.now });
        s.messages.push(PendingMessage { id: 1, next_attempt_at: s.now });
        for kind in [messages::DISPATCH_FAILED, messages::MANUAL_REFUND_REQUIRED] {
            s.alerts.push(PendingAlert { id: 1, kind: kind.to_owned(), next_escalation_at: s.now });
        }
        for timer in timers::derive_timers(&s) {
            assert_ne!(describe_job(timer.id().kind()), "", "{}", timer.id());
        }
    }
}
