//! Counters of changes. The requirement documents fix the names and labels; labels never identify a person or an order.
//!
//! The process that committed a change counts it after the commit. If the process dies in between, the change is not
//! counted.

use chrono::TimeDelta;
use metrics::{counter, histogram};
use model::{
    decide::Change,
    order::{Booking, EventReason, Order, OrderStatus, Snapshot},
    partner::RetrievalFailure,
};

use crate::write_error::WriteError;
use areas::label;
use foundation::db;

/// Pause between polls for a job id without callbacks and backoff. It is the baseline for the number of saved calls.
const BASELINE_PAUSE_MS: u64 = 2_000;

pub(super) fn record_change(before: &Snapshot, change: &Change, failure: Option<RetrievalFailure>) {
    record_statuses(before, change);
    record_attempts(before, change);
    record_search(before, change);
    record_job_id(before, change, failure);
}

/// Attempted updates of order rows, by result.
pub const UPDATES: &str = "dispatchq_order_updates_total";

/// Records whether the final status of a compensated order could be written.
pub(super) fn record_status_update(error: Option<&WriteError>) {
    let result = match error {
        None => "success",
        Some(WriteError::Database(error)) if db::is_transient(error) => "unreachable",
        Some(WriteError::Database(_)) => "failed",
        // Another change was written first, so the update did not fail.
        Some(WriteError::Conflict | WriteError::NoRoom | WriteError::Refused(_)) => return,
    };
    counter!("dispatchq_status_updates_total", "result" => result).increment(1);
}

/// Records an attempted update of an order row: written, or in conflict with another change.
pub(super) fn record_update(written: bool) {
    let result = if written { "written" } else { "conflict" };
    counter!(UPDATES, "result" => result).increment(1);
}

fn record_statuses(before: &Snapshot, change: &Change) {
    // Other programs also create orders in SQL. The first change of each order is made here, so the creation is counted
    // with it.
    let track = track_of(&change.order);
    if change.version == 0 {
        counter!("order_status_count", "status" => before.order.status.as_str(), "track" => track).increment(1);
    }
    for event in change.events.iter().filter(|event| event.from != event.to) {
        counter!("order_status_count", "status" => event.to.as_str(), "track" => track).increment(1);
    }
}

/// Values of the label `track`.
pub const TRACKS: [&str; 2] = ["fleet", "partner"];

/// Returns whether our own fleet or a partner serves the order. Alerts about partners use this.
fn track_of(order: &Order) -> &'static str {
    if order.partner.is_none() { TRACKS[0] } else { TRACKS[1] }
}

/// Records the end of an attempt: "assigned", or "timeout" for every end without a driver. An attempt that was
/// withdrawn because the order was cancelled is not counted.
fn record_attempts(before: &Snapshot, change: &Change) {
    if let Some(ended) = change.events.iter().find(|event| event.reason.ends_attempt()) {
        let result = match ended.reason {
            EventReason::OfferAccepted | EventReason::DriverFound => Some("assigned"),
            EventReason::AttemptWithdrawn if !has_reason(change, EventReason::LifetimeTimeout) => None,
            _ => Some("timeout"),
        };
        if let Some(result) = result {
            counter!("dispatcher_attempt_total", &labels_with(change, "result", result)).increment(1);
        }
        let offered = before.live_offer().map(|offer| offer.offered_at);
        if let Some(begun) = offered.or(before.live_booking().map(|booking| booking.created_at)) {
            histogram!("dispatcher_attempt_duration_seconds", &service_labels(change))
                .record(as_seconds(change.at - begun));
        }
    }
    if has_reason(change, EventReason::AttemptStarted) && change.order.attempt_no > 1 {
        counter!("dispatcher_retry_count_total", &service_labels(change)).increment(1);
    }
}

/// Records the end of a search for a driver.
fn record_search(before: &Snapshot, change: &Change) {
    let lifetime_over = has_reason(change, EventReason::LifetimeTimeout);
    for (ended, reason) in
        [(has_reason(change, EventReason::CancelledByUser), "user"), (lifetime_over, "lifetime_timeout")]
    {
        if ended {
            counter!("dispatcher_cancel_total", &labels_with(change, "reason", reason)).increment(1);
        }
    }
    let result = match change.order.status {
        _ if !before.order.status.is_searching() => return,
        OrderStatus::DriverAssigned | OrderStatus::PickedUp | OrderStatus::Completed => "assigned",
        OrderStatus::Compensating if lifetime_over => "cancelled_timeout",
        OrderStatus::CancelledByUser => "cancelled_user",
        _ => return,
    };
    let age = as_seconds(change.at - change.order.dispatch_start());
    histogram!("dispatcher_order_lifetime_seconds", &labels_with(change, "result", result)).record(age);
    histogram!("dispatchq_attempts_per_order", &service_labels(change)).record(f64::from(change.order.attempt_no));
}

/// Counts job ids and retrievals. A retrieval belongs to an order that never had a job id. It starts with the first
/// poll, or with the failure of an order that was never polled. If a callback or a cancellation comes first, it neither
/// succeeds nor fails.
fn record_job_id(before: &Snapshot, change: &Change, failure: Option<RetrievalFailure>) {
    let has_begun = before.order.job_id_asks == 0 && change.order.job_id_asks > 0 && !before.had_job_id();
    let failed_unasked = failure.is_some() && change.order.job_id_asks == 0;
    if has_begun || failed_unasked {
        counter!("job_id_retrieval_attempts_total").increment(1);
    }
    if let Some(failure) = failure {
        counter!("job_id_retrieval_failed_total", "reason" => failure.as_str()).increment(1);
        if failure == RetrievalFailure::Timeout {
            counter!("job_id_retrieval_max_retries_exceeded_total").increment(1);
        }
    }
    if before.order.status == OrderStatus::PendingJobId
        && let Some(booking) = before.booking_of_attempt(before.order.attempt_no)
    {
        record_learnt_job_id(before, booking, change);
    }
}

/// Counts the job id that a booking got with this change, if any.
fn record_learnt_job_id(before: &Snapshot, booking: &Booking, change: &Change) {
    let via_proactive = has_reason(change, EventReason::JobIdViaProactive);
    let via_callback = has_reason(change, EventReason::JobIdViaCallback);
    if !via_callback && !via_proactive {
        return;
    }
    let is_first = !before.had_job_id();
    counter!("job_id_total").increment(1);
    if is_first {
        counter!("dispatchq_orders_with_job_id_total").increment(1);
    }
    let took = change.at - booking.booked_at.unwrap_or(booking.created_at);
    histogram!("job_id_retrieval_duration_seconds").record(as_seconds(took));
    let asked = if via_proactive { change.order.poll_no } else { before.order.poll_no };
    counter!("dispatchq_job_id_questions_total").increment(u64::from(asked.unsigned_abs()));
    counter!("dispatchq_job_id_questions_baseline_total").increment(count_baseline(took));
    if via_callback {
        counter!("job_id_via_callback_total").increment(1);
    }
    if via_proactive {
        counter!("job_id_via_proactive_total").increment(1);
        histogram!("job_id_retrieval_attempts").record(f64::from(change.order.poll_no));
        if is_first {
            counter!("job_id_retrieval_success_total").increment(1);
        }
    }
}

/// Returns the number of polls until then at the pace of the baseline, at least one.
fn count_baseline(took: TimeDelta) -> u64 {
    took.num_milliseconds().max(1).unsigned_abs().div_ceil(BASELINE_PAUSE_MS)
}

fn has_reason(change: &Change, reason: EventReason) -> bool {
    change.events.iter().any(|event| event.reason == reason)
}

fn service_labels(change: &Change) -> [(&'static str, String); 2] {
    let area = label::label_of(change.order.area_id.as_ref());
    [("area_id", area), ("service_type", change.order.service_type.to_string())]
}

fn labels_with(change: &Change, name: &'static str, value: &str) -> [(&'static str, String); 3] {
    let [area, service] = service_labels(change);
    [area, service, (name, value.to_owned())]
}

fn as_seconds(delta: TimeDelta) -> f64 {
    delta.to_std().unwrap_or_default().as_secs_f64()
}
