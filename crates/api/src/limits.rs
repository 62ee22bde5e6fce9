//! Limits: requests per key, failed authentications per address, and load of this process.
//!
//! The first two are token buckets. An address is charged only for requests that failed to authenticate. Many drivers
//! share an address, and a stranger there must not exhaust their limit.

use super::{client::ClientAddress, error::ApiError};
use app::App;
use axum::{
    extract::{Request, State},
    http::{
        StatusCode,
        header::{Entry, RETRY_AFTER},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Middleware that counts answers with status 401, and replaces those above the limit by 429.
pub(super) async fn limit_failures(State(app): State<App>, request: Request, next: Next) -> Response {
    let address = ClientAddress::of_request(&request);
    let answer = next.run(request).await;
    if answer.status() != StatusCode::UNAUTHORIZED {
        return answer;
    }
    match app.accounts.limits.count_failure(address.network()) {
        Ok(()) => answer,
        Err(wait) => ApiError::TooManyFailures(wait).into_response(),
    }
}

/// Middleware that refuses requests immediately while many requests wait for Postgres. A client that times out repeats
/// its request while the first one still waits. A queue that waits longer than the clients' timeout would therefore
/// never shrink.
pub(super) async fn shed_load(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.orders.is_overloaded() {
        return ApiError::Overloaded.into_response();
    }
    next.run(request).await
}

/// Middleware that adds `Retry-After` to 503 answers whose handler did not set it.
pub(super) async fn say_when_to_retry(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE
        && let Entry::Vacant(header) = answer.headers_mut().entry(RETRY_AFTER)
    {
        header.insert(app.accounts.limits.retry_wait().as_secs().into());
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use accounts::request_limits::RequestLimits;
    use settings::{Config, HttpConfig};
    use uuid::Uuid;

    use super::*;

    fn limits(per_key: u32, per_address: u32) -> RequestLimits {
        let http = Config::defaults().http;
        RequestLimits::new(&HttpConfig {
            requests_per_s_per_key: per_key,
            failures_per_min_per_address: per_address,
            ..http
        })
    }

    #[test]
    fn each_key_and_address_has_own_bucket() {
        let limits = limits(1, 2);
        let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
        assert!(limits.count_request(one).is_ok() && limits.count_request(other).is_ok());
        assert!(limits.count_request(one).is_err_and(|wait| wait <= Duration::from_secs(1)));
        let [home, away] = ["192.0.2.1", "192.0.2.2"].map(|text| ClientAddress(text.parse().unwrap()));
        assert!(limits.count_failure(home.network()).is_ok() && limits.count_failure(home.network()).is_ok());
        assert!(limits.count_failure(home.network()).is_err_and(|wait| wait <= Duration::from_secs(30)));
        assert!(limits.count_failure(away.network()).is_ok());
    }

    #[test]
    fn ipv6_network_counts_as_one_client() {
        let limits = limits(0, 1);
        let [first, second, elsewhere] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| ClientAddress(text.parse().unwrap()));
        assert!(limits.count_failure(first.network()).is_ok() && limits.count_failure(second.network()).is_err());
        assert!(limits.count_failure(elsewhere.network()).is_ok());
    }

    #[test]
    fn zero_means_no_limit() {
        let limits = limits(0, 0);
        let key = Uuid::now_v7();
        assert!((0..10_000).all(|_| limits.count_request(key).is_ok()));
    }
}
