//! Token buckets: how many requests a key may make, and how often an address may fail to authenticate.

use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

use governor::{
    DefaultKeyedRateLimiter, Quota,
    clock::{Clock, DefaultClock},
};
use uuid::Uuid;

use crate::config::HttpConfig;

/// With more buckets than this, full ones are forgotten.
const MANY: usize = 10_000;

/// The buckets of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestLimits(Arc<LimitBuckets>);

/// `None`: no limit.
#[derive(Debug)]
struct LimitBuckets {
    keys: Option<DefaultKeyedRateLimiter<Uuid>>,
    failures: Option<DefaultKeyedRateLimiter<IpAddr>>,
}

impl RequestLimits {
    pub fn new(config: &HttpConfig) -> Self {
        let keys = NonZeroU32::new(config.requests_per_s_per_key).map(Quota::per_second);
        let failures = NonZeroU32::new(config.failures_per_min_per_address).map(Quota::per_minute);
        Self(Arc::new(LimitBuckets {
            keys: keys.map(DefaultKeyedRateLimiter::keyed),
            failures: failures.map(DefaultKeyedRateLimiter::keyed),
        }))
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
