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
            Reason::OfferAccepted => counter!("dispatcher_attempt_total", &with("result", "assigned")).increment(1),
            Reason::AttemptTimeout | Reason::OfferDeclined => {
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
            && let Some(offer) = before.live_offer()
        {
            histogram!("dispatcher_attempt_duration_seconds", &labels).record(seconds(change.at - offer.offered_at));
        }
    }
    let result = match (before.order.status.is_searching(), change.order.status) {
        (true, Status::DriverAssigned) => "assigned",
        (true, Status::Compensating) => "cancelled_timeout",
        (true, Status::CancelledByUser) => "cancelled_user",
        _ => return,
    };
    let age = seconds(change.at - change.order.created_at);
    histogram!("dispatcher_order_lifetime_seconds", &with("result", result)).record(age);
}

fn seconds(delta: chrono::TimeDelta) -> f64 {
    delta.to_std().unwrap_or_default().as_secs_f64()
}
