//! OTPs from request to use: right, wrong, late, repeated, for another transaction, and with servers lost in between.

use model::binding::{BindingCommand, BindingConflict, BindingPhase, BindingState, StopReason, TransactionStatus};
use serde_json::{Value, json};

use bindings::error::BindingError;
use test_support::{ProviderStage, secs};

const CODE: &str = "739154";

/// Creates a binding whose first transaction waits for an OTP.
async fn waiting(config: Value) -> ProviderStage {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| {
        knobs.otp_rate = "1".parse().unwrap();
        knobs.otp_code = CODE.to_owned();
        knobs.otp_lifetime = secs(3600);
    });
    stage.run_binding("B", "S1", config).await;
    stage.t.run_due().await;
    assert_eq!(stage.binding("B").await.phase, BindingPhase::WaitingOtp);
    stage
}

/// Asserts that no table and no key of Redis contains the plain code.
async fn assert_code_is_nowhere(stage: &ProviderStage) {
    for table in ["bindings", "transactions", "transaction_snapshots", "binding_events", "outbox"] {
        let found = stage.t.count(&format!("SELECT count(*) FROM {table} x WHERE x::text LIKE '%{CODE}%'")).await;
        assert_eq!(found, 0, "{table}");
    }
    let keys: Vec<String> = stage.t.redis(&["KEYS", "*"]).await;
    for key in keys {
        let dumped: Vec<u8> = stage.t.redis(&["DUMP", &key]).await;
        assert!(!dumped.windows(CODE.len()).any(|part| part == CODE.as_bytes()), "{key}");
    }
}

#[tokio::test]
async fn right_otp_completes_transaction_and_is_erased() {
    let stage = waiting(json!({ "interval_ms": [60000, 60000] })).await;
    stage.submit_otp("B", "B.1", CODE).await.unwrap();
    assert_code_is_nowhere(&stage).await;
    let stored = stage.t.count("SELECT count(*) FROM bindings WHERE otp_value IS NOT NULL").await;
    assert_eq!(stored, 1);
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start otp_wanted", "otp success"]);
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    assert_eq!(stage.binding("B").await.otp_value, None);
    assert_code_is_nowhere(&stage).await;
    let digests = stage.t.texts("SELECT detail FROM binding_events WHERE kind = 'otp_submitted'").await;
    assert_eq!(digests[0].len(), 32);
    stage.assert_judge_content();
}

#[tokio::test]
async fn wrong_otp_is_requested_again_up_to_limit() {
    let stage = waiting(json!({ "otp_attempts": 2, "interval_ms": [60000, 60000] })).await;
    for (tries, code) in [(1, "000001"), (2, "000002")] {
        stage.submit_otp("B", "B.1", code).await.unwrap();
        stage.t.run_due().await;
        let row = stage.binding("B").await;
        if tries == 1 {
            assert_eq!((row.phase, row.otp_tries), (BindingPhase::WaitingOtp, 1));
        }
    }
    let header = &stage.headers("B").await[0];
    assert_eq!((header.status, header.reason.as_deref()), (TransactionStatus::Gagal, Some("otp_rejected")));
    stage.assert_judge_content();
}

#[tokio::test]
async fn doubled_late_and_foreign_otps_are_refused_and_change_nothing() {
    let stage = waiting(json!({ "otp_timeout_ms": 10000, "on_otp_timeout": "stop" })).await;
    let refusal = |result: Result<_, BindingError>| match result {
        Err(BindingError::Conflict(conflict)) => conflict,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refusal(stage.submit_otp("B", "C.1", CODE).await), BindingConflict::ForeignTransaction(_)));
    assert!(matches!(refusal(stage.submit_otp("B", "B.2", CODE).await), BindingConflict::ForeignTransaction(_)));
    stage.submit_otp("B", "B.1", CODE).await.unwrap();
    assert_eq!(refusal(stage.submit_otp("B", "B.1", CODE).await), BindingConflict::OtpStored);
    stage.t.run_due().await;
    // The OTP of the next cycle is not submitted in time.
    stage.t.run_for(secs(3)).await;
    assert_eq!(stage.binding("B").await.phase, BindingPhase::WaitingOtp);
    stage.t.run_for(secs(15)).await;
    let row = stage.binding("B").await;
    assert_eq!((row.state, row.reason), (BindingState::Stopped, Some(StopReason::OtpTimeout)));
    assert_eq!(refusal(stage.submit_otp("B", "B.2", CODE).await), BindingConflict::OtpOver);
    let header = &stage.headers("B").await[1];
    assert_eq!((header.status, header.reason.as_deref()), (TransactionStatus::Gagal, Some("otp_timeout")));
    stage.assert_judge_content();
}

#[tokio::test]
async fn missed_otp_starts_the_next_cycle_by_default() {
    let stage = waiting(json!({ "otp_timeout_ms": 10000, "on_otp_timeout": "continue" })).await;
    // The OTP timeout continues during a pause.
    stage.command("B", BindingCommand::Pause).await;
    stage.t.run_for(secs(15)).await;
    assert_eq!(stage.binding("B").await.phase, BindingPhase::Idle);
    stage.command("B", BindingCommand::Resume).await;
    stage.t.run_for(secs(5)).await;
    let row = stage.binding("B").await;
    assert_eq!((row.state, row.cycle, row.phase), (BindingState::Running, 2, BindingPhase::WaitingOtp));
    // A stop does not wait for the OTP.
    let stopped = stage.stop("B").await;
    assert_eq!((stopped.state, stopped.phase), (BindingState::Stopped, BindingPhase::Idle));
    assert_eq!(stage.headers("B").await[1].reason.as_deref(), Some("manual_stop"));
    assert_eq!(stage.t.run_for(secs(20)).await.len(), 0);
}

#[tokio::test]
async fn otp_survives_the_loss_of_redis() {
    let stage = waiting(json!({ "interval_ms": [60000, 60000] })).await;
    stage.submit_otp("B", "B.1", CODE).await.unwrap();
    stage.t.redis::<()>(&["FLUSHALL"]).await;
    maintenance::recovery::reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().unwrap();
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start otp_wanted", "otp success"]);
    stage.assert_judge_content();
}

#[tokio::test]
async fn otp_without_key_is_refused_with_the_cure() {
    let stage = waiting(json!({})).await;
    let keyless = stage.t.reconfigured(|config| config.bindings.otp_key = String::new());
    let otp = bindings::otp_seal::PlainOtp::parse(CODE.to_owned()).unwrap();
    let (id, trx) = ("B".parse().unwrap(), "B.1".parse().unwrap());
    let actor = test_support::by("support:desk");
    let error = bindings::commands::submit_otp(&keyless.bindings, &id, &trx, &otp, &actor).await.unwrap_err();
    assert!(error.to_string().contains("bindings.otp_key"), "{error}");
    stage.submit_otp("B", "B.1", CODE).await.unwrap();
}

#[tokio::test]
async fn unreadable_otp_is_requested_again() {
    let stage = waiting(json!({ "interval_ms": [60000, 60000], "processing_timeout_ms": 120_000 })).await;
    stage.submit_otp("B", "B.1", CODE).await.unwrap();
    // The OTP cannot be decrypted, as without its key.
    stage.t.sql("UPDATE bindings SET otp_value = '\\x01'").await;
    stage.t.run_for(secs(20)).await;
    assert_eq!(stage.calls("B").await, ["start otp_wanted"], "a worker that has the key may come");
    stage.t.run_for(secs(15)).await;
    assert_eq!(stage.calls("B").await, ["start otp_wanted", "status otp_wanted"]);
    let row = stage.binding("B").await;
    assert_eq!((row.phase, row.otp_tries, row.otp_value), (BindingPhase::WaitingOtp, 1, None));
    stage.submit_otp("B", "B.1", CODE).await.unwrap();
    stage.t.run_due().await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    stage.assert_judge_content();
}
