//! What the log says of a job id that does not come: a warning for each question that is asked again, an error when nothing is
//! asked any more.
//!
//! Source: `logRetryAttempt` and `handleRetrievalFailure` of the design of the job id retrieval, with its fields.

use chrono::{DateTime, Utc};
use humantime::{FormattedDuration, format_duration};
use model::{
    decide::Change,
    order::{Booking, Snapshot},
};

use super::metrics::RetrievalFailure;

/// Logs that the partner is asked again for the job id, or for the booking itself. `attempt` counts the requests, from 1.
pub(crate) fn log_retry(s: &Snapshot, booking: &Booking, attempt: i32, error: &str) {
    tracing::warn!(
        order.id = %s.order.id,
        attempt,
        elapsed = %format_elapsed(booking.created_at, s.now),
        error,
        "Retrying the job id retrieval."
    );
}

/// Logs that a booking's job id is not asked for any more, once the change that ends the questions is committed.
pub(super) fn log_final_failure(before: &Snapshot, change: &Change) {
    let Some(failure) = RetrievalFailure::find(before, change) else { return };
    let begun = before.bookings.iter().map(|b| b.created_at).min().unwrap_or(before.order.created_at);
    let error = match failure {
        RetrievalFailure::OutOfTime => "no job id in time",
        RetrievalFailure::BookingNotFound => "the partner does not know the booking (404)",
    };
    tracing::error!(
        order.id = %change.order.id,
        total_attempts = change.order.job_id_asks,
        total_duration = %format_elapsed(begun, change.at),
        error,
        "Failed to retrieve the job id."
    );
}

/// A clock that was set back in between has it be no time.
fn format_elapsed(since: DateTime<Utc>, now: DateTime<Utc>) -> FormattedDuration {
    format_duration((now - since).to_std().unwrap_or_default())
}
