//! Requests of clients that need an answer. They are sent again, to any API process, until there is one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::claims::ClaimLedger;
use crate::testbed::api::{code_of, is_passing, retry_after, sleep_before_retry};

const TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Time after which a client gives up. No fault excuses that.
const GIVE_UP: Duration = Duration::from_secs(120);

/// Result of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChaosAnswer {
    /// 2xx, with the body.
    Done(Value),
    /// A final refusal.
    Refused,
    /// No answer before the client gave up.
    Nothing,
}

/// One request, which may be sent any number of times.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChaosRequest<'a> {
    /// Request kind for counts, such as `create` or `accept`.
    pub(super) what: &'static str,
    /// Path below `/api/v1`.
    pub(super) path: &'a str,
    /// Bearer key of the caller.
    pub(super) key: &'a str,
    pub(super) idempotency_key: Option<&'a str>,
    pub(super) body: &'a Value,
}

/// A client of all API processes. Cheap to clone; clones share connections and the rotation.
#[derive(Debug, Clone)]
pub(in crate::bench) struct ChaosClient {
    http: reqwest::Client,
    bases: Arc<Mutex<Vec<String>>>,
    turn: Arc<AtomicUsize>,
    ledger: ClaimLedger,
}

impl ChaosClient {
    /// Creates a client for base URLs such as `http://127.0.0.1:8080`.
    pub(in crate::bench) fn new(bases: &[String], ledger: ClaimLedger) -> anyhow::Result<Self> {
        let http = foundation::outbound::client_builder()
            .no_proxy()
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(64)
            .build()
            .context("cannot create an HTTP client")?;
        Ok(Self { http, bases: Arc::new(Mutex::new(bases.to_vec())), turn: Arc::default(), ledger })
    }

    /// Replaces the API processes. There must be at least one.
    pub(in crate::bench) fn set_bases(&self, bases: Vec<String>) {
        *self.bases.lock() = bases;
    }

    /// Returns the next API process in rotation.
    pub(super) fn next_base(&self) -> String {
        let bases = self.bases.lock();
        bases[self.turn.fetch_add(1, Ordering::Relaxed) % bases.len()].clone()
    }

    pub(super) fn ledger(&self) -> &ClaimLedger {
        &self.ledger
    }

    pub(super) fn http_client(&self) -> &reqwest::Client {
        &self.http
    }

    /// Sends a request until it is answered.
    pub(super) async fn send_until_answered(&self, request: ChaosRequest<'_>) -> ChaosAnswer {
        let begin = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let mut told = None;
            let mut last = match self.send_once(request).await {
                Ok(answer) if answer.status().is_success() => match answer.json().await {
                    Ok(body) => {
                        self.ledger.lock_claims().requests.entry(request.what).or_default().done += 1;
                        return ChaosAnswer::Done(body);
                    }
                    // The answer was cut off.
                    Err(error) => error.without_url().to_string(),
                },
                Ok(answer) => {
                    told = retry_after(&answer);
                    match self.classify_answer(request, answer, told.is_some()).await {
                        Ok(answer) => return answer,
                        Err(last) => last,
                    }
                }
                Err(error) => error.without_url().to_string(),
            };
            if begin.elapsed() > GIVE_UP {
                last.truncate(200);
                let mut claims = self.ledger.lock_claims();
                claims.requests.entry(request.what).or_default().unanswered += 1;
                claims
                    .wrong
                    .push(format!("{} {}: no answer within {GIVE_UP:?}; last: {last}", request.what, request.path));
                return ChaosAnswer::Nothing;
            }
            self.ledger.lock_claims().requests.entry(request.what).or_default().retries += 1;
            sleep_before_retry(pause, told).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn send_once(&self, request: ChaosRequest<'_>) -> Result<reqwest::Response, reqwest::Error> {
        let url = format!("{}/api/v1{}", self.next_base(), request.path);
        let mut send = self.http.request(Method::POST, url).bearer_auth(request.key).json(request.body);
        if let Some(key) = request.idempotency_key {
            send = send.header("Idempotency-Key", key);
        }
        send.send().await
    }

    /// Classifies an answer. `Err` means that nothing was decided and the request should be retried.
    async fn classify_answer(
        &self,
        request: ChaosRequest<'_>,
        answer: reqwest::Response,
        told_to_wait: bool,
    ) -> Result<ChaosAnswer, String> {
        let status = answer.status();
        let body: Value = answer.json().await.unwrap_or_default();
        let code = code_of(&body);
        self.ledger.record_failure(request.what, status);
        if told_to_wait || is_passing(status, &code) {
            return Err(format!("{status} {code}"));
        }
        let mut claims = self.ledger.lock_claims();
        claims.requests.entry(request.what).or_default().refused += 1;
        *claims.refusals.entry(format!("{} {} {code}", request.what, status.as_u16())).or_default() += 1;
        // Key, path and body are valid, so such an answer is wrong.
        if matches!(status.as_u16(), 400 | 401 | 403 | 405 | 413 | 415 | 422) {
            claims.wrong.push(format!("{} {}: answered {status} {code}", request.what, request.path));
        }
        Ok(ChaosAnswer::Refused)
    }
}
