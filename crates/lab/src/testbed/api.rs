//! The HTTP calls that producers and drivers make.
//!
//! Everything here may be repeated: creating orders by its idempotency key, the rest by nature. So a connection error, a
//! 5xx or "a request with this key is running" is tried again with backoff, and only then given up.

use std::time::Duration;

use anyhow::Context;
use rand::random;
use reqwest::{StatusCode, header::RETRY_AFTER};
use serde_json::Value;

const TRIES: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(10);

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ApiAnswer {
    /// 2xx.
    Done,
    /// A considered no, by its `error_code`.
    Refused { status: u16, code: String },
    /// No answer in all tries.
    Failed(String),
}

/// A client of `serve`. Cheap to clone; clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct ApiClient {
    client: reqwest::Client,
    base: String,
}

impl ApiClient {
    /// `base` as in `http://127.0.0.1:8080`.
    pub(crate) fn new(base: String) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(64)
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self { client, base })
    }

    /// As in `http://127.0.0.1:8080`.
    pub(crate) fn base_url(&self) -> &str {
        &self.base
    }

    /// Is the server ready to answer?
    pub(crate) async fn is_ready(&self) -> bool {
        let answer = self.client.get(format!("{}/readyz", self.base)).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    pub(crate) async fn create_order(&self, key: &str, id: &str, body: &Value) -> ApiAnswer {
        match self.post_until_answered("/api/v1/orders", key, Some(id), body).await {
            // No other client creates orders here: it is ours, made by a try whose answer got lost.
            ApiAnswer::Refused { code, .. } if code == "ORDER_EXISTS" => ApiAnswer::Done,
            answer => answer,
        }
    }

    /// `action` as in `accept`.
    pub(crate) async fn order_action(&self, key: &str, order: &str, action: &str, body: &Value) -> ApiAnswer {
        self.post_until_answered(&format!("/api/v1/orders/{order}/{action}"), key, None, body).await
    }

    async fn post_until_answered(
        &self,
        path: &str,
        key: &str,
        idempotency_key: Option<&str>,
        body: &Value,
    ) -> ApiAnswer {
        let mut pause = FIRST_PAUSE;
        let mut last = String::new();
        for attempt in 1..=TRIES {
            let mut request = self.client.post(format!("{}{path}", self.base)).bearer_auth(key).json(body);
            if let Some(key) = idempotency_key {
                request = request.header("Idempotency-Key", key);
            }
            match request.send().await {
                Ok(answer) if answer.status().is_success() => return ApiAnswer::Done,
                Ok(answer) => {
                    let status = answer.status();
                    let told_to_wait = answer.headers().contains_key(RETRY_AFTER);
                    let code = error_code(answer).await;
                    if !(is_passing(status, &code) || told_to_wait) {
                        return ApiAnswer::Refused { status: status.as_u16(), code };
                    }
                    last = format!("{status} {code}");
                }
                Err(error) => last = error.without_url().to_string(),
            }
            if attempt < TRIES {
                tokio::time::sleep(pause.mul_f64(0.5 + random::<f64>() / 2.0)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        ApiAnswer::Failed(format!("{last} (tried {TRIES} times)"))
    }
}

/// Worth another try: nothing was decided.
fn is_passing(status: StatusCode, code: &str) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
        || matches!(code, "RESERVATION_IN_PROGRESS" | "IDEMPOTENCY_KEY_IN_USE")
}

/// Of an answer that says no.
pub(crate) async fn error_code(answer: reqwest::Response) -> String {
    let body: Value = answer.json().await.unwrap_or_default();
    body["error_code"].as_str().unwrap_or("NO_ERROR_CODE").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_decided_nothing_is_tried_again() {
        assert!(is_passing(StatusCode::SERVICE_UNAVAILABLE, ""));
        assert!(is_passing(StatusCode::TOO_MANY_REQUESTS, ""));
        assert!(is_passing(StatusCode::CONFLICT, "RESERVATION_IN_PROGRESS"));
        assert!(!is_passing(StatusCode::CONFLICT, "ALREADY_ASSIGNED"));
        assert!(!is_passing(StatusCode::GONE, "OFFER_EXPIRED"));
        assert!(!is_passing(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_REQUEST"));
    }
}
