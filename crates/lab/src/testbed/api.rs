//! HTTP requests of producers, drivers and operators.
//!
//! All requests can be repeated: creations because of their idempotency key, the others by nature. So a connection
//! error, a 5xx or "a request with this key is running" is retried with backoff before it counts as failed. Retry-After
//! is respected.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use jobs::BindingId;
use model::admission::verdicts::AdmissionSource;
use parking_lot::Mutex;
use rand::random;
use reqwest::{StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};

use super::place_log::{PlaceLog, is_refused_for_area};
use crate::bench::spread::{SamplePercentiles, duration_micros};

const TRIES: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Result of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ApiAnswer {
    /// 2xx.
    Done,
    /// A final refusal with its `error_code`.
    Refused { status: u16, code: String },
    /// No answer in all attempts.
    Failed(String),
}

/// A client of `serve`. Cheap to clone; clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct ApiClient {
    client: reqwest::Client,
    base: String,
    /// Whether a refusal of an overloaded server is final.
    accepts_overload: bool,
    /// Answer times in microseconds, by request kind.
    times: Arc<Mutex<BTreeMap<String, Vec<i64>>>>,
}

impl ApiClient {
    /// Creates a client for a base URL such as `http://127.0.0.1:8080`.
    pub(crate) fn new(base: String) -> anyhow::Result<Self> {
        let client = foundation::outbound::client_builder()
            .no_proxy()
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(64)
            .build()
            .context("cannot create an HTTP client")?;
        Ok(Self { client, base, accepts_overload: false, times: Arc::default() })
    }

    /// Returns a client that does not repeat a request which an overloaded server refused.
    pub(crate) fn accepting_overload(self) -> Self {
        Self { accepts_overload: true, ..self }
    }

    /// Returns the base URL, such as `http://127.0.0.1:8080`.
    pub(crate) fn base_url(&self) -> &str {
        &self.base
    }

    /// Returns whether the server is ready.
    pub(crate) async fn is_ready(&self) -> bool {
        let answer = self.client.get(format!("{}/readyz", self.base)).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Creates an order. Records the admission result in `log`.
    pub(crate) async fn create_order(&self, key: &str, id: &str, body: &Value, log: &PlaceLog) -> ApiAnswer {
        let (began, told) = (Instant::now(), Some((log, AdmissionSource::Create)));
        let answer = self.post_until_answered("/api/v1/orders", key, Some(id), body, told).await;
        self.record_time("create", began.elapsed());
        match answer {
            // No other client creates orders here, so the order was created by an attempt whose answer was lost.
            ApiAnswer::Refused { code, .. } if code == "ORDER_EXISTS" => ApiAnswer::Done,
            answer => answer,
        }
    }

    /// Checks whether there is room for this order. Records the result in `log`.
    pub(crate) async fn check_availability(&self, key: &str, order: &Value, log: &PlaceLog) -> ApiAnswer {
        let question = json!({
            "pickup_location": order["pickup"],
            "service_type": order["service_type"],
            "loyalty_level": order["loyalty_level"],
        });
        let told = Some((log, AdmissionSource::Check));
        self.post_until_answered("/api/v1/dispatcher/availability-check", key, None, &question, told).await
    }

    /// Posts an action on an order, such as `accept`.
    pub(crate) async fn order_action(&self, key: &str, order: &str, action: &str, body: &Value) -> ApiAnswer {
        let began = Instant::now();
        let answer = self.post_until_answered(&format!("/api/v1/orders/{order}/{action}"), key, None, body, None).await;
        self.record_time(action, began.elapsed());
        answer
    }

    fn record_time(&self, asked: &str, took: Duration) {
        let mut times = self.times.lock();
        times.entry(asked.to_owned()).or_default().push(duration_micros(took));
    }

    /// Returns percentiles of answer times, retries included, by request kind such as `create` or `accept`.
    pub(crate) fn answer_times(&self) -> BTreeMap<String, Value> {
        let times = self.times.lock();
        let of = |seen: &Vec<i64>| SamplePercentiles::from_samples(seen.clone()).to_json_ms();
        times.iter().map(|(asked, seen)| (asked.clone(), of(seen))).collect()
    }

    /// Posts an action on a binding, such as `stop`.
    pub(crate) async fn binding_action(&self, key: &str, binding: &BindingId, action: &str) -> ApiAnswer {
        self.post_until_answered(&format!("/api/v1/bindings/{binding}/{action}"), key, None, &json!({}), None).await
    }

    async fn post_until_answered(
        &self,
        path: &str,
        key: &str,
        idempotency_key: Option<&str>,
        body: &Value,
        places: Option<(&PlaceLog, AdmissionSource)>,
    ) -> ApiAnswer {
        let mut pause = FIRST_PAUSE;
        let mut last = String::new();
        for attempt in 1..=TRIES {
            let mut told = None;
            let mut request = self.client.post(format!("{}{path}", self.base)).bearer_auth(key).json(body);
            if let Some(key) = idempotency_key {
                request = request.header("Idempotency-Key", key);
            }
            match request.send().await {
                Ok(answer) if answer.status().is_success() => {
                    if let Some((log, source)) = places {
                        let body: reqwest::Result<Value> = answer.json().await;
                        record_place(log, source, &body);
                    }
                    return ApiAnswer::Done;
                }
                Ok(answer) => {
                    let status = answer.status();
                    told = retry_after(&answer);
                    let body: reqwest::Result<Value> = answer.json().await;
                    if let Some((log, source)) = places {
                        record_place(log, source, &body);
                    }
                    let code = code_of(&body.unwrap_or_default());
                    let is_final = is_refused_for_area(&code) || self.accepts_overload && is_overload(&code);
                    if is_final || !(is_passing(status, &code) || told.is_some()) {
                        return ApiAnswer::Refused { status: status.as_u16(), code };
                    }
                    last = format!("{status} {code}");
                }
                Err(error) => {
                    if let Some((log, _)) = places {
                        log.record_silence();
                    }
                    last = error.without_url().to_string();
                }
            }
            if attempt < TRIES {
                sleep_before_retry(pause, told).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        ApiAnswer::Failed(format!("{last} (tried {TRIES} times)"))
    }
}

/// Returns the Retry-After of an answer.
pub(crate) fn retry_after(answer: &reqwest::Response) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Sleeps for the time the server `told`, or for the client's `own` pause. Adds jitter, so that not all clients return
/// at once.
pub(crate) async fn sleep_before_retry(own: Duration, told: Option<Duration>) {
    let share = random::<f64>() / 2.0;
    tokio::time::sleep(told.map_or(own.mul_f64(0.5 + share), |told| told.mul_f64(1.0 + share))).await;
}

/// Returns whether the answer is temporary, so that a retry is worthwhile.
pub(crate) fn is_passing(status: StatusCode, code: &str) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
        || matches!(code, "RESERVATION_IN_PROGRESS" | "IDEMPOTENCY_KEY_IN_USE")
}

/// Returns whether an overloaded server refused a creation with this code and did nothing.
pub(crate) fn is_overload(code: &str) -> bool {
    matches!(code, "OVERLOADED" | "UNAVAILABLE")
}

/// Returns the code and message of an error.
pub(crate) async fn error_and_detail(answer: reqwest::Response) -> (String, String) {
    let body: Value = answer.json().await.unwrap_or_default();
    (code_of(&body), body["message"].as_str().unwrap_or_default().to_owned())
}

pub(crate) fn code_of(body: &Value) -> String {
    body["error_code"].as_str().unwrap_or("NO_ERROR_CODE").to_owned()
}

/// Records the admission result of an answer. An answer that was cut off counts as no answer.
fn record_place(log: &PlaceLog, source: AdmissionSource, body: &reqwest::Result<Value>) {
    match body {
        Ok(body) => log.record_answer(source, body),
        Err(_) => log.record_silence(),
    }
}
