//! Requests of clients who want an answer: sent again, to any of the API processes, until there is one.

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
/// A client that has no answer for so long gives up, which no fault excuses.
const GIVE_UP: Duration = Duration::from_secs(120);

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChaosAnswer {
    /// 2xx, with the body.
    Done(Value),
    /// A considered no.
    Refused,
    /// No answer in all that time.
    Nothing,
}

/// One request, which may be sent any number of times.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChaosRequest<'a> {
    /// What is asked, for counts: `create`, `accept`.
    pub(super) what: &'static str,
    /// After `/api/v1`.
    pub(super) path: &'a str,
    /// The caller's bearer key.
    pub(super) key: &'a str,
    pub(super) idempotency_key: Option<&'a str>,
    pub(super) body: &'a Value,
}

/// A client of all API processes. Cheap to clone; clones share connections and the turn.
#[derive(Debug, Clone)]
pub(in crate::bench) struct ChaosClient {
    http: reqwest::Client,
    /// A std mutex: it is never held across an await.
    bases: Arc<Mutex<Vec<String>>>,
    turn: Arc<AtomicUsize>,
    ledger: ClaimLedger,
}

impl ChaosClient {
    /// `bases` as in `http://127.0.0.1:8080`.
    pub(in crate::bench) fn new(bases: &[String], ledger: ClaimLedger) -> anyhow::Result<Self> {
        let http = foundation::outbound::client_builder()
            .no_proxy()
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(64)
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self { http, bases: Arc::new(Mutex::new(bases.to_vec())), turn: Arc::default(), ledger })
    }

    /// From now on requests go to these API processes, of which there is one at least.
    pub(in crate::bench) fn set_bases(&self, bases: Vec<String>) {
        *self.bases.lock() = bases;
    }

    /// The API process whose turn it is.
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
                    // Cut off in its middle.
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

    /// `Err`: nothing was decided, and it is worth another try.
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
        // The key is good, and so are path and body.
        if matches!(status.as_u16(), 400 | 401 | 403 | 405 | 413 | 415 | 422) {
            claims.wrong.push(format!("{} {}: answered {status} {code}", request.what, request.path));
        }
        Ok(ChaosAnswer::Refused)
    }
}
