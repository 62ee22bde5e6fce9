//! Tests of the simulated provider over real HTTP: its contract in docs/PROVIDER.md, its faults, and its judge.

use std::{sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};
use clap::Args;
use provider_sim::{ProviderKnobs, ProviderSim, ProviderSimOptions};
use reqwest::{RequestBuilder, header::RETRY_AFTER};
use serde_json::{Value, json};

const KEY: &str = "provider-sim-key";

#[derive(Debug, Clone, PartialEq)]
struct Answer {
    status: u16,
    body: Value,
    text: String,
    retry_after: Option<String>,
}

impl Answer {
    fn error(&self) -> (u16, &str) {
        (self.status, self.body["error_code"].as_str().unwrap_or("none"))
    }

    fn standing(&self) -> (&str, &str) {
        let word = |field: &str| self.body[field].as_str().unwrap_or("none");
        (word("status"), word("reason"))
    }
}

/// A running provider and its client.
struct Provider {
    sim: ProviderSim,
    client: reqwest::Client,
}

/// One call of binding `binding`, whose account has the same name.
struct Call {
    server: &'static str,
    operation: &'static str,
    binding: &'static str,
    cycle: i64,
    fence: i64,
    until: TimeDelta,
    key: String,
    otp: Option<&'static str>,
}

fn start(binding: &'static str, cycle: i64, fence: i64) -> Call {
    Call {
        server: "S1",
        operation: "start_transaction",
        binding,
        cycle,
        fence,
        until: TimeDelta::seconds(30),
        key: format!("{binding}:{cycle}"),
        otp: None,
    }
}

fn status(binding: &'static str, cycle: i64, fence: i64) -> Call {
    Call { operation: "status", key: String::new(), ..start(binding, cycle, fence) }
}

fn otp(cycle: i64, fence: i64, try_no: u32, otp: &'static str) -> Call {
    Call { operation: "otp", key: format!("B:{cycle}:otp:{try_no}"), otp: Some(otp), ..start("B", cycle, fence) }
}

impl Provider {
    async fn start(knobs: Value) -> Self {
        // No URL here uses TLS, but the client requires a crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = ProviderSimOptions {
            knobs: ProviderKnobs { latency: "0s".parse().unwrap(), ..ProviderKnobs::default() },
            ..ProviderSimOptions::default()
        };
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
        let provider = Self { sim: ProviderSim::start(&options).await.unwrap(), client };
        provider.turn(knobs).await;
        provider
    }

    async fn turn(&self, knobs: Value) -> Answer {
        let url = format!("{}/_sim/knobs", self.sim.control_url());
        let answer = read(self.client.post(url).json(&knobs)).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    fn request(&self, call: &Call) -> RequestBuilder {
        let until = Utc::now() + call.until;
        let mut body = json!({
            "trx_id": format!("{}.{}", call.binding, call.cycle), "binding_id": call.binding,
            "account_id": call.binding, "cycle": call.cycle,
        });
        if let Some(otp) = call.otp {
            body["otp"] = otp.into();
        }
        self.client
            .post(format!("{}/{}", self.sim.server_url(call.server), call.operation))
            .bearer_auth(KEY)
            .header("idempotency-key", &call.key)
            .header("fence", call.fence)
            .header("call-until", until.to_rfc3339())
            .json(&body)
    }

    async fn try_call(&self, call: &Call) -> reqwest::Result<Answer> {
        read(self.request(call)).await
    }

    async fn call(&self, call: &Call) -> Answer {
        self.try_call(call).await.unwrap()
    }

    /// Waits until this many calls are open.
    async fn reaches_open(&self, open: u64) {
        let reached = async {
            while self.sim.read_report().open != open {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), reached).await;
        waited.unwrap_or_else(|_| panic!("never {open} calls are open: {:?}", self.sim.read_report()));
    }
}

async fn read(request: RequestBuilder) -> reqwest::Result<Answer> {
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER).map(|v| v.to_str().unwrap().to_owned());
    let text = answer.text().await?;
    Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or_default(), text, retry_after })
}

#[tokio::test]
async fn each_key_starts_one_transaction() {
    let provider = Provider::start(json!({})).await;
    let first = provider.call(&start("B", 1, 1)).await;
    assert_eq!((first.status, first.standing()), (200, ("SUKSES", "none")));
    assert_eq!(provider.call(&start("B", 1, 2)).await, first, "fence and Call-Until are no content");
    let other = Call { key: "B:1".to_owned(), ..start("B", 1, 3) };
    let request = provider.request(&other).json(&json!({
        "trx_id": "B.1", "binding_id": "B", "account_id": "another", "cycle": 1,
    }));
    assert_eq!(read(request).await.unwrap().error(), (422, "IDEMPOTENCY_KEY_REUSED"));
    assert_eq!(provider.call(&status("B", 1, 4)).await.body, first.body);
    assert_eq!(provider.call(&status("B", 2, 5)).await.error(), (404, "UNKNOWN_TRANSACTION"));
    let report = provider.sim.read_report();
    assert_eq!((report.transactions.started, report.judge.duplicates, report.judge.keys_differing), (1, 1, 1));
    assert_eq!((report.judge.calls, report.open), (5, 0));
}

#[tokio::test]
async fn transactions_follow_the_knobs() {
    let provider = Provider::start(json!({ "processing_rate": 1.0, "processing_duration": "1h" })).await;
    assert_eq!(provider.call(&start("B", 1, 1)).await.standing(), ("PROCESSING", "none"));
    assert_eq!(provider.call(&status("B", 1, 2)).await.standing(), ("PROCESSING", "none"));
    provider.turn(json!({ "processing_duration": "0s" })).await;
    assert_eq!(provider.call(&start("B", 2, 3)).await.standing(), ("SUKSES", "none"));
    provider.turn(json!({ "processing_rate": 0.0, "failures": "account_locked=1" })).await;
    assert_eq!(provider.call(&start("B", 3, 4)).await.standing(), ("GAGAL", "account_locked"));
}

#[tokio::test]
async fn balances_decrease_and_can_be_set() {
    let provider = Provider::start(json!({ "balance": 2 })).await;
    let mut said = Vec::new();
    for cycle in 1..=3 {
        said.push(provider.call(&start("B", cycle, cycle)).await.standing().1.to_owned());
    }
    assert_eq!(said, ["none", "none", "insufficient_balance_before_start"]);
    let url = format!("{}/_sim/accounts/B", provider.sim.control_url());
    let filled = read(provider.client.post(&url).json(&json!({ "balance": 1 }))).await.unwrap();
    assert_eq!(filled.body, json!({ "account_id": "B", "balance": 1 }));
    assert_eq!(provider.call(&start("B", 4, 4)).await.standing(), ("SUKSES", "none"));
    assert_eq!(read(provider.client.get(&url)).await.unwrap().body["balance"], 0);
    assert_eq!(provider.sim.read_report().transactions.insufficient, 1);
}

#[tokio::test]
async fn otp_is_tried_once_per_key() {
    let provider = Provider::start(json!({ "otp_rate": 1.0, "otp_code": "4711" })).await;
    assert_eq!(provider.call(&start("B", 1, 1)).await.standing(), ("WAITING_OTP", "none"));
    for fence in [2, 3] {
        assert_eq!(provider.call(&otp(1, fence, 1, "0000")).await.standing(), ("GAGAL", "wrong_otp"));
    }
    assert_eq!(provider.call(&otp(1, 4, 1, "4711")).await.error(), (422, "IDEMPOTENCY_KEY_REUSED"));
    assert_eq!(provider.call(&status("B", 1, 5)).await.standing(), ("WAITING_OTP", "none"));
    assert_eq!(provider.call(&otp(1, 6, 2, "4711")).await.standing(), ("SUKSES", "none"));
    let transactions = provider.sim.read_report().transactions;
    assert_eq!((transactions.otps_wrong, transactions.otps_right), (1, 1));
    provider.turn(json!({ "otp_lifetime": "0s" })).await;
    assert_eq!(provider.call(&start("B", 2, 7)).await.standing(), ("GAGAL", "otp_expired"));
}

#[tokio::test]
async fn late_calls_are_refused_and_do_nothing() {
    let provider = Provider::start(json!({})).await;
    provider.call(&start("B", 1, 5)).await;
    assert_eq!(provider.call(&start("B", 2, 4)).await.error(), (409, "LATE_CALL"));
    let past = Call { until: TimeDelta::milliseconds(-1), ..start("B", 2, 6) };
    assert_eq!(provider.call(&past).await.error(), (409, "LATE_CALL"));
    let report = provider.sim.read_report();
    assert_eq!((report.judge.late_refused, report.judge.calls, report.transactions.started), (2, 1, 1));
    assert_eq!((report.judge.overlaps, report.judge.over_admissions, report.judge.gaps), (0, 0, 0));
}

#[tokio::test]
async fn open_calls_are_judged_per_server_and_account() {
    let provider = Arc::new(Provider::start(json!({ "hang_rate": 1.0, "max_open": 3 })).await);
    let mut calls = tokio::task::JoinSet::new();
    for (n, (binding, server)) in
        [("A", "S1"), ("B", "S1"), ("C", "S2"), ("D", "S1"), ("A", "S3")].into_iter().enumerate()
    {
        let provider_of_call = provider.clone();
        let call = Call { server, ..start(binding, 1, i64::try_from(n).unwrap() + 1) };
        calls.spawn(async move { provider_of_call.try_call(&call).await });
        provider.reaches_open(n as u64 + 1).await;
    }
    let judge = provider.sim.read_report().judge;
    assert_eq!((judge.max_open, judge.max_open_per_server, judge.max_open_per_account), (5, 3, 2));
    assert_eq!((judge.over_admissions, judge.overlaps), (2, 1), "D at S1, and A in all");
    // When the caller dies, its connection and therefore its call end.
    calls.abort_all();
    provider.reaches_open(0).await;
    provider.sim.reset_judge();
    provider.turn(json!({ "hang_rate": 0.0 })).await;
    assert_eq!(provider.call(&start("A", 1, 9)).await.status, 200);
    assert_eq!(provider.sim.read_report().judge.max_open, 1);
}

#[tokio::test]
async fn call_is_cut_at_call_until() {
    let provider = Provider::start(json!({ "hang_rate": 1.0 })).await;
    let short = Call { until: TimeDelta::seconds(2), ..start("B", 1, 1) };
    let error = provider.try_call(&short).await.unwrap_err();
    assert!(!error.is_timeout() && !error.is_connect(), "{error:?}");
    provider.turn(json!({ "hang_rate": 0.0, "latency": "1h" })).await;
    let slow = Call { until: TimeDelta::seconds(2), ..start("B", 1, 2) };
    provider.try_call(&slow).await.unwrap_err();
    let report = provider.sim.read_report();
    assert_eq!((report.faults.cut_by_call_until, report.faults.hangs, report.open), (2, 1, 0));
    assert_eq!(report.transactions.started, 1, "what hangs has no effect, what is slow has");
}

#[tokio::test]
async fn faults_follow_the_knobs() {
    let provider = Provider::start(json!({})).await;
    let mut fence = 0;
    let mut next = |cycle| {
        fence += 1;
        start("B", cycle, fence)
    };
    provider.turn(json!({ "error_429_rate": 1.0, "retry_after": "1500ms" })).await;
    let throttled = provider.call(&next(1)).await;
    assert_eq!((throttled.error(), throttled.retry_after.as_deref()), ((429, "RATE_LIMITED"), Some("2")));
    provider.turn(json!({ "error_429_rate": 0.0, "error_500_rate": 1.0 })).await;
    assert_eq!(provider.call(&next(1)).await.error(), (500, "INTERNAL"));
    assert_eq!(provider.sim.read_report().transactions.started, 0, "neither had an effect");
    provider.turn(json!({ "error_500_rate": 0.0, "lost_answer_rate": 1.0 })).await;
    provider.try_call(&next(1)).await.unwrap_err();
    assert_eq!(provider.sim.read_report().transactions.started, 1, "it was done");
    provider.turn(json!({ "lost_answer_rate": 0.0, "non_json_rate": 1.0 })).await;
    let answer = provider.call(&next(2)).await;
    assert!(answer.status == 200 && answer.body.is_null(), "{answer:?}");
    provider.turn(json!({ "non_json_rate": 0.0, "oversized_rate": 1.0 })).await;
    assert!(provider.call(&next(3)).await.text.len() > 1_000_000);
    provider.turn(json!({ "oversized_rate": 0.0, "unknown_status_rate": 1.0 })).await;
    assert_eq!(provider.call(&next(4)).await.standing(), ("MENUNGGU", "none"));
    provider.turn(json!({ "unknown_status_rate": 0.0, "down": true })).await;
    assert_eq!(provider.call(&next(5)).await.error(), (503, "UNAVAILABLE"));
    provider.turn(json!({ "down": false, "reject_keys": true })).await;
    assert_eq!(provider.call(&next(5)).await.error(), (401, "UNAUTHORIZED"));
    provider.turn(json!({ "reject_keys": false })).await;
    assert_eq!(provider.call(&next(6)).await.status, 200);
    let report = provider.sim.read_report();
    assert_eq!((report.judge.gaps, report.transactions.started), (1, 5), "cycle 5 was passed over");
}

#[tokio::test]
async fn invalid_requests_are_refused_and_not_counted() {
    let provider = Provider::start(json!({})).await;
    let url = format!("{}/start_transaction", provider.sim.server_url("S1"));
    let stranger = provider.client.post(&url).bearer_auth("other");
    assert_eq!(read(stranger).await.unwrap().status, 401);
    let bare = provider.client.post(&url).bearer_auth(KEY);
    assert_eq!(read(bare).await.unwrap().error(), (400, "MALFORMED"));
    let keyless = Call { key: String::new(), ..start("B", 1, 1) };
    assert_eq!(provider.call(&keyless).await.error(), (400, "MALFORMED"));
    assert_eq!(provider.call(&start("B", 0, 1)).await.error(), (422, "INVALID"));
    let huge = provider.request(&start("B", 1, 1)).body("x".repeat(20_000));
    assert_eq!(read(huge).await.unwrap().status, 413);
    assert_eq!(provider.sim.read_report().judge.calls, 0);
    let nonsense = provider.client.post(format!("{}/_sim/knobs", provider.sim.control_url()));
    assert_eq!(read(nonsense.json(&json!({ "otp_rate": 2 }))).await.unwrap().error(), (422, "INVALID"));
}

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PROVIDER.md")).unwrap()
}

#[test]
fn page_lists_every_knob_with_default() {
    let command = ProviderKnobs::augment_args(clap::Command::new("knobs"));
    let page = page();
    let table: Vec<_> = page.lines().filter(|line| line.starts_with("| `--")).collect();
    let mut count = 0;
    for arg in command.get_arguments() {
        let name = format!("`--{}`", arg.get_long().unwrap());
        let row = table.iter().find(|row| row.contains(&name)).unwrap_or_else(|| panic!("{name} is not on the page"));
        for default in arg.get_default_values() {
            let default = default.to_str().unwrap();
            assert!(row.split('|').nth(2).unwrap().contains(default), "{name} is {default}: {row}");
        }
        count += 1;
    }
    // The page lists every knob except the two that are changed only at run time.
    let fields = serde_json::to_value(ProviderKnobs::default()).unwrap();
    assert_eq!(fields.as_object().unwrap().len(), count + 2);
}

#[tokio::test]
async fn page_lists_every_judge_counter() {
    let provider = Provider::start(json!({})).await;
    let judge = serde_json::to_value(provider.sim.read_report().judge).unwrap();
    let page = page();
    for name in judge.as_object().unwrap().keys() {
        assert!(page.contains(&format!("`{name}`")), "{name} is not on the page");
    }
}

#[tokio::test]
async fn page_example_matches_the_answer() {
    let provider = Provider::start(json!({})).await;
    let page = page();
    let said: Vec<Value> = page.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let call = Call { binding: "B-7", cycle: 42, key: "B-7:42".to_owned(), ..start("B-7", 42, 311) };
    let answer = provider.call(&call).await.body;
    assert!(said.contains(&answer), "{answer} is not on the page");
}
