//! Log lines about missing job ids: a warning for each repeated poll, an error for an order that ends without a job id,
//! and a line for its final status.
//!
//! Source: `logRetryAttempt` and `handleRetrievalFailure` of the design of the job id retrieval, with its fields.

use chrono::{DateTime, Utc};
use humantime::{FormattedDuration, format_duration};
use model::{
    order::{Booking, OrderStatus, Snapshot},
    partner::RetrievalFailure,
};

/// Logs that the partner is asked again for the job id, or for the booking itself. `attempt` counts the requests, from
/// 1.
pub fn log_retry(s: &Snapshot, booking: &Booking, attempt: i32, error: &str) {
    tracing::warn!(
        order.id = %s.order.id,
        attempt,
        elapsed = %format_elapsed(booking.created_at, s.now),
        error,
        "Retrying the job id retrieval."
    );
}

/// Logs the failure of a retrieval after the change that ends it was committed.
pub(super) fn log_failure(after: &Snapshot, failure: RetrievalFailure) {
    let begun = after.bookings.iter().map(|b| b.created_at).min().unwrap_or(after.order.created_at);
    let error = match failure {
        RetrievalFailure::Timeout => "no job id in time",
        RetrievalFailure::NotFound => "the partner does not know the booking (404)",
        RetrievalFailure::NeverBooked => "the partner confirmed no booking",
        RetrievalFailure::NotPolled => "no callback came, and the partner was not asked",
    };
    tracing::error!(
        order.id = %after.order.id,
        reason = failure.as_str(),
        total_attempts = after.order.job_id_asks,
        total_duration = %format_elapsed(begun, after.order.updated_at),
        error,
        "Failed to retrieve the job id."
    );
}

/// Logs the final status after a compensation was committed. The design fixes the texts.
pub(super) fn log_compensation(before: &Snapshot, after: &Snapshot) {
    if before.order.status != OrderStatus::Compensating {
        return;
    }
    let order_id = &after.order.id;
    match after.order.status {
        OrderStatus::CancelledBySystemAfterPayment => {
            tracing::warn!(%order_id, "Order cancelled after payment - manual refund required");
        }
        OrderStatus::CancelledBySystem => tracing::info!(%order_id, "Order cancelled (no payment)"),
        _ => {}
    }
}

/// Formats the elapsed time, or zero if the clock was set back.
fn format_elapsed(since: DateTime<Utc>, now: DateTime<Utc>) -> FormattedDuration {
    format_duration((now - since).to_std().unwrap_or_default())
}
