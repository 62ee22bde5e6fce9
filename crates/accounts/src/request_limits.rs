//! Token buckets: requests per key and failed authentications per network. Also the `Retry-After` time for clients that
//! cannot be served now.

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use governor::{
    DefaultKeyedRateLimiter, Quota,
    clock::{Clock, DefaultClock},
};
use parking_lot::Mutex;
use uuid::Uuid;

use settings::HttpConfig;

/// Number of buckets above which full ones are removed.
const MANY: usize = 10_000;
/// First and longest wait for clients that cannot be served now.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// The token buckets of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestLimits(Arc<LimitBuckets>);

/// `None`: no limit.
#[derive(Debug)]
struct LimitBuckets {
    keys: Option<DefaultKeyedRateLimiter<Uuid>>,
    failures: Option<DefaultKeyedRateLimiter<IpAddr>>,
    retry_wait: Mutex<RetryWait>,
}

/// Wait for clients that cannot be served now. It is about as long as the outage so far, so that clients do not retry
/// again and again while the process recovers.
#[derive(Debug, Default)]
struct RetryWait {
    wait: Duration,
    /// Time since which `wait` has its present value.
    since: Option<Instant>,
}

impl RetryWait {
    /// Returns the current wait. It doubles when a wait has passed and clients still cannot be served. It starts again
    /// at the first value after one wait without a refused client.
    fn next(&mut self, now: Instant) -> Duration {
        let said_for = self.since.map(|since| now.saturating_duration_since(since));
        match said_for {
            Some(time) if time < self.wait => return self.wait,
            Some(time) if time < self.wait * 2 => self.wait = (self.wait * 2).min(LONGEST_WAIT),
            _ => self.wait = FIRST_WAIT,
        }
        self.since = Some(now);
        self.wait
    }
}

impl RequestLimits {
    pub fn new(config: &HttpConfig) -> Self {
        let keys = NonZeroU32::new(config.requests_per_s_per_key).map(Quota::per_second);
        let failures = NonZeroU32::new(config.failures_per_min_per_address).map(Quota::per_minute);
        Self(Arc::new(LimitBuckets {
            keys: keys.map(DefaultKeyedRateLimiter::keyed),
            failures: failures.map(DefaultKeyedRateLimiter::keyed),
            retry_wait: Mutex::default(),
        }))
    }

    /// Returns the wait for a client that cannot be served now, in whole seconds. It starts at 1 and doubles up to 8
    /// during an outage.
    pub fn retry_wait(&self) -> Duration {
        self.0.retry_wait.lock().next(Instant::now())
    }

    /// Counts a request of this key. Returns the wait if the key is over its limit.
    pub fn count_request(&self, key: Uuid) -> Result<(), Duration> {
        take_token(self.0.keys.as_ref(), key)
    }

    /// Counts a failed authentication from this network. Returns the wait if the network is over its limit.
    pub fn count_failure(&self, network: IpAddr) -> Result<(), Duration> {
        take_token(self.0.failures.as_ref(), network)
    }
}

fn take_token<K: Clone + Eq + std::hash::Hash>(
    buckets: Option<&DefaultKeyedRateLimiter<K>>,
    owner: K,
) -> Result<(), Duration> {
    let Some(buckets) = buckets else { return Ok(()) };
    if buckets.len() > MANY {
        buckets.retain_recent();
    }
    buckets.check_key(&owner).map_err(|refused| refused.wait_time_from(DefaultClock::default().now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_wait_doubles_during_outage() {
        let start = Instant::now();
        let mut wait = RetryWait::default();
        let mut said = |millis| wait.next(start + Duration::from_millis(millis)).as_secs();
        assert_eq!([0, 500, 999].map(&mut said), [1, 1, 1]);
        assert_eq!([1_000, 1_500, 2_999].map(&mut said), [2, 2, 2]);
        assert_eq!([3_000, 7_000, 15_000, 23_000].map(&mut said), [4, 8, 8, 8], "8 s at most");
        assert_eq!([39_000, 39_500, 40_000].map(&mut said), [1, 1, 2], "none was refused for 16 s");
    }
}
