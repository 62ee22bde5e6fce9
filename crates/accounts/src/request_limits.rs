//! Token buckets: how many requests a key may make, and how often an address may fail to authenticate. And how long clients are
//! to wait who cannot be served now.

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

/// With more buckets than this, full ones are forgotten.
const MANY: usize = 10_000;
/// What clients are told to wait who cannot be served now: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// The buckets of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestLimits(Arc<LimitBuckets>);

/// `None`: no limit.
#[derive(Debug)]
struct LimitBuckets {
    keys: Option<DefaultKeyedRateLimiter<Uuid>>,
    failures: Option<DefaultKeyedRateLimiter<IpAddr>>,
    retry_wait: Mutex<RetryWait>,
}

/// How long those are to wait who cannot be served now: about as long as that has lasted already, so that they do not
/// come back again and again while the process recovers.
#[derive(Debug, Default)]
struct RetryWait {
    wait: Duration,
    /// Since when that is said.
    since: Option<Instant>,
}

impl RetryWait {
    /// Doubles as soon as what was said last has passed and clients still cannot be served; begins again when all of them were
    /// for as long.
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

    /// How long a client is to wait that cannot be served now, in whole seconds: 1, and twice as many while that lasts, up to 8.
    pub fn retry_wait(&self) -> Duration {
        self.0.retry_wait.lock().next(Instant::now())
    }

    /// Counts a request of this key, or returns how long it has to wait.
    pub fn count_request(&self, key: Uuid) -> Result<(), Duration> {
        take_token(self.0.keys.as_ref(), key)
    }

    /// Counts a failed authentication of this network, or returns how long it has to wait.
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
    fn the_wait_grows_while_clients_cannot_be_served() {
        let start = Instant::now();
        let mut wait = RetryWait::default();
        let mut said = |millis| wait.next(start + Duration::from_millis(millis)).as_secs();
        assert_eq!([0, 500, 999].map(&mut said), [1, 1, 1]);
        assert_eq!([1_000, 1_500, 2_999].map(&mut said), [2, 2, 2]);
        assert_eq!([3_000, 7_000, 15_000, 23_000].map(&mut said), [4, 8, 8, 8], "8 s at most");
        assert_eq!([39_000, 39_500, 40_000].map(&mut said), [1, 1, 2], "none was refused for 16 s");
    }
}
