//! Counters of what changes. Names and labels are those of the requirement documents; no label names a person or order.

use metrics::{counter, histogram};

use super::{Change, Reason, Snapshot, Status};

/// Records a committed change.
pub(super) fn record(before: &Snapshot, change: &Change) {
    let area = change.order.area_id.clone().unwrap_or_default();
    let service = change.order.service_type.clone();
    let labels = [("area_id", area.clone()), ("service_type", service.clone())];
    let with = |name: &'static str, value: &'static str| {
        [("area_id", area.clone()), ("service_type", service.clone()), (name, value.to_owned())]
    };
    for event in &change.events {
        if event.from != event.to {
            counter!("order_status_count", "status" => event.to.as_str()).increment(1);
        }
        match event.reason {
            Reason::OfferAccepted | Reason::DriverFound => {
                counter!("dispatcher_attempt_total", &with("result", "assigned")).increment(1);
            }
            Reason::AttemptTimeout
            | Reason::OfferDeclined
            | Reason::NoDriver
            | Reason::BookingRefused
            | Reason::BookingNotFound => {
                counter!("dispatcher_attempt_total", &with("result", "timeout")).increment(1);
            }
            Reason::AttemptStarted if change.order.attempt_no > 1 => {
                counter!("dispatcher_retry_count_total", &labels).increment(1);
            }
            Reason::CancelledByUser => counter!("dispatcher_cancel_total", &with("reason", "user")).increment(1),
            Reason::LifetimeTimeout => {
                counter!("dispatcher_cancel_total", &with("reason", "lifetime_timeout")).increment(1);
            }
            _ => {}
        }
        if event.reason.ends_attempt()
            && let Some(begun) =
                before.live_offer().map(|offer| offer.offered_at).or(before.live_booking().map(|b| b.created_at))
        {
            histogram!("dispatcher_attempt_duration_seconds", &labels).record(seconds(change.at - begun));
        }
    }
    record_job_id(before, change);
    let result = match (before.order.status.is_searching(), change.order.status) {
        (true, Status::DriverAssigned) => "assigned",
        (true, Status::Compensating) => "cancelled_timeout",
        (true, Status::CancelledByUser) => "cancelled_user",
        _ => return,
    };
    let age = seconds(change.at - change.order.created_at);
    histogram!("dispatcher_order_lifetime_seconds", &with("result", result)).record(age);
}

/// The job id's way to us. A retrieval is one booking's asking, however often; it begins with the first question.
fn record_job_id(before: &Snapshot, change: &Change) {
    if change.order.poll_no == 1 && before.order.poll_no == 0 {
        counter!("job_id_retrieval_attempts_total").increment(1);
    }
    let Some(booking) = before.booking(before.order.attempt_no) else { return };
    let has = |reason| change.events.iter().any(|event| event.reason == reason);
    let (callback, proactive) = (has(Reason::JobIdViaCallback), has(Reason::JobIdViaProactive));
    if callback || proactive {
        counter!("job_id_total").increment(1);
        let took = change.at - booking.booked_at.unwrap_or(booking.created_at);
        histogram!("job_id_retrieval_duration_seconds").record(seconds(took));
    }
    let polls = f64::from(change.order.poll_no);
    if callback {
        counter!("job_id_via_callback_total").increment(1);
    }
    if proactive {
        counter!("job_id_via_proactive_total").increment(1);
        counter!("job_id_retrieval_success_total").increment(1);
        histogram!("job_id_retrieval_attempts").record(polls);
    }
    let given_up = before.order.status == Status::PendingJobId && change.order.status == Status::Compensating;
    if given_up && before.order.poll_no > 0 {
        counter!("job_id_retrieval_failed_total").increment(1);
        if has(Reason::LifetimeTimeout) {
            counter!("job_id_retrieval_max_retries_exceeded_total").increment(1);
        }
    }
}

fn seconds(delta: chrono::TimeDelta) -> f64 {
    delta.to_std().unwrap_or_default().as_secs_f64()
}
