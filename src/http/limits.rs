//! How many requests a key may make, and how many an address whose keys or signatures are wrong.
//!
//! Both are token buckets. An address pays only for requests that failed to authenticate: many drivers share one, and the good
//! among them must not pay for a stranger.

use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use governor::{
    DefaultKeyedRateLimiter, Quota,
    clock::{Clock, DefaultClock},
};
use uuid::Uuid;

use super::{client::ClientAddress, error::ApiError};
use crate::{app::App, config::HttpConfig};

/// With more buckets than this, full ones are forgotten.
const MANY: usize = 10_000;

/// The buckets of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestLimits(Arc<Buckets>);

/// `None`: no limit.
#[derive(Debug)]
struct Buckets {
    keys: Option<DefaultKeyedRateLimiter<Uuid>>,
    failures: Option<DefaultKeyedRateLimiter<IpAddr>>,
}

impl RequestLimits {
    pub fn new(config: &HttpConfig) -> Self {
        let keys = NonZeroU32::new(config.requests_per_s_per_key).map(Quota::per_second);
        let failures = NonZeroU32::new(config.failures_per_min_per_address).map(Quota::per_minute);
        Self(Arc::new(Buckets {
            keys: keys.map(DefaultKeyedRateLimiter::keyed),
            failures: failures.map(DefaultKeyedRateLimiter::keyed),
        }))
    }

    /// Counts a request of this key, or returns how long it has to wait.
    pub fn count_request(&self, key: Uuid) -> Result<(), Duration> {
        count(self.0.keys.as_ref(), key)
    }

    /// Counts a failed authentication of this address, or returns how long it has to wait.
    pub fn count_failure(&self, address: ClientAddress) -> Result<(), Duration> {
        count(self.0.failures.as_ref(), address.network())
    }
}

fn count<K: Clone + Eq + std::hash::Hash>(
    buckets: Option<&DefaultKeyedRateLimiter<K>>,
    owner: K,
) -> Result<(), Duration> {
    let Some(buckets) = buckets else { return Ok(()) };
    if buckets.len() > MANY {
        buckets.retain_recent();
    }
    buckets.check_key(&owner).map_err(|refused| refused.wait_time_from(DefaultClock::default().now()))
}

/// Middleware: counts answers that say 401, and turns those above the limit into 429.
pub(super) async fn failures(State(app): State<App>, request: Request, next: Next) -> Response {
    let address = ClientAddress::of(&request);
    let answer = next.run(request).await;
    if answer.status() != StatusCode::UNAUTHORIZED {
        return answer;
    }
    match app.limits.count_failure(address) {
        Ok(()) => answer,
        Err(wait) => ApiError::TooManyFailures(wait).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn limits(per_key: u32, per_address: u32) -> RequestLimits {
        let http = Config::defaults().http;
        RequestLimits::new(&HttpConfig {
            requests_per_s_per_key: per_key,
            failures_per_min_per_address: per_address,
            ..http
        })
    }

    #[test]
    fn each_key_and_each_address_has_a_bucket_of_its_own() {
        let limits = limits(1, 2);
        let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
        assert!(limits.count_request(one).is_ok() && limits.count_request(other).is_ok());
        assert!(limits.count_request(one).is_err_and(|wait| wait <= Duration::from_secs(1)));
        let [home, away] = ["192.0.2.1", "192.0.2.2"].map(|text| ClientAddress(text.parse().unwrap()));
        assert!(limits.count_failure(home).is_ok() && limits.count_failure(home).is_ok());
        assert!(limits.count_failure(home).is_err_and(|wait| wait <= Duration::from_secs(30)));
        assert!(limits.count_failure(away).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let limits = limits(0, 1);
        let [first, second, elsewhere] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| ClientAddress(text.parse().unwrap()));
        assert!(limits.count_failure(first).is_ok() && limits.count_failure(second).is_err());
        assert!(limits.count_failure(elsewhere).is_ok());
    }

    #[test]
    fn nought_is_no_limit() {
        let limits = limits(0, 0);
        let key = Uuid::now_v7();
        assert!((0..10_000).all(|_| limits.count_request(key).is_ok()));
    }
}
