//! Token buckets: requests per key, failed authentications per network, and requests for the page of customers per
//! network. Also the `Retry-After` time for clients that cannot be served now.

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

/// Number of buckets from which on full ones, which limit no client, are removed.
const MANY: usize = 10_000;
/// Requests per minute of one network for the page on which customers follow their orders.
const TRACKING_PER_MIN: NonZeroU32 = NonZeroU32::new(60).expect("not zero");
/// First and longest wait for clients that cannot be served now.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// The token buckets of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestLimits(Arc<LimitBuckets>);

/// Buckets of each key and address. `None`: no limit.
#[derive(Debug)]
struct LimitBuckets {
    keys: Option<DefaultKeyedRateLimiter<Uuid>>,
    failures: Option<DefaultKeyedRateLimiter<IpAddr>>,
    tracking: DefaultKeyedRateLimiter<IpAddr>,
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
    /// Returns the current wait. Doubles it if clients are still refused after it has passed. Resets it to the first
    /// value after a wait in which no client was refused.
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
            tracking: DefaultKeyedRateLimiter::keyed(Quota::per_minute(TRACKING_PER_MIN)),
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
        self.0.keys.as_ref().map_or(Ok(()), |keys| take_token(keys, key))
    }

    /// Counts a failed authentication from this network. Returns the wait if the network is over its limit.
    pub fn count_failure(&self, network: IpAddr) -> Result<(), Duration> {
        self.0.failures.as_ref().map_or(Ok(()), |failures| take_token(failures, network))
    }

    /// Counts a request of this network for the page of customers. Returns whether the network is within its limit.
    pub fn count_tracking(&self, network: IpAddr) -> bool {
        take_token(&self.0.tracking, network).is_ok()
    }
}

fn take_token<K: Clone + Eq + std::hash::Hash>(buckets: &DefaultKeyedRateLimiter<K>, owner: K) -> Result<(), Duration> {
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
