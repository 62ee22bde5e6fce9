//! Redis outages: backoff with jitter, and one log line at the start and one at the end of an outage.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::{retry::RetryPolicy, store::StoreError};

/// Delays of 100 ms, doubling to 2 s.
const BACKOFF: RetryPolicy = RetryPolicy {
    max_tries: u32::MAX,
    initial: Duration::from_millis(100),
    multiplier: 2.0,
    max: Duration::from_secs(2),
    jitter: 0.3,
};

#[derive(Default)]
pub(crate) struct RedisOutage {
    since: Mutex<Option<Instant>>,
}

impl RedisOutage {
    /// Returns the delay before the `n`-th retry of a call, from 1.
    pub(crate) fn retry_delay(n: u32) -> Duration {
        BACKOFF.backoff(n, rand::random())
    }

    pub(crate) fn record_failure(&self, error: &StoreError) {
        let mut since = self.since.lock();
        if since.is_none() {
            *since = Some(Instant::now());
            warn!(%error, "Redis fails; jobs wait, and calls are retried until it answers.");
        }
    }

    pub(crate) fn record_success(&self) {
        let mut since = self.since.lock();
        if let Some(since) = since.take() {
            info!(outage_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX), "Redis answers again.");
        }
    }
}
