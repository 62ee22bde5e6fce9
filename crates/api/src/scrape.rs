//! Helpers for values that are read at each scrape of /metrics or /admin/scale.

use std::{future::Future, time::Duration};

/// Timeout for one value. Prometheus waits 10 s by default, and an unresponsive server must not hide the other values
/// of this process.
pub(super) const SCRAPE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the answer of a server; `None` if it failed or timed out.
pub(super) async fn with_timeout<T, E>(answer: impl Future<Output = Result<T, E>>) -> Option<T> {
    tokio::time::timeout(SCRAPE_TIMEOUT, answer).await.ok()?.ok()
}

/// Returns the value of a gauge; NaN if it is unknown.
#[expect(clippy::cast_precision_loss, reason = "a gauge needs no more than 52 bits")]
pub(super) fn as_gauge(value: Option<u64>) -> f64 {
    value.map_or(f64::NAN, |value| value as f64)
}
