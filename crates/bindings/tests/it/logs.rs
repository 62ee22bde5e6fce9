//! Fields of the log lines about a binding, and the absence of OTPs from all lines, rows and keys.

use model::binding::{BindingCommand, BindingPhase, BindingState, StopReason, TransactionStatus};
use serde_json::json;
use tracing::Level;

use accounts::api_keys::AccountRole;
use test_support::{Api, LogLines, ProviderStage, secs};

const WRONG: &str = "wrong#739154";
const RIGHT: &str = "right#482957";

/// Captures all log lines of this process from now on.
fn listen(most: Level) -> LogLines {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_ansi(false).with_max_level(most).with_writer(lines.clone()).init();
    lines
}

#[track_caller]
fn assert_names(line: &str, fields: &[&str]) {
    for field in fields {
        let named = [format!("{field} "), format!("{field}}}")].map(|text| line.matches(&text).count());
        assert_eq!(named.iter().sum::<usize>(), 1, "{field}: {line}");
    }
}

#[tokio::test]
async fn each_line_names_binding_server_account_transaction_cycle_action_and_result() {
    let lines = listen(Level::DEBUG);
    let stage = ProviderStage::start().await;
    stage.sim.set_balance("acct-B", 1);
    stage.run_binding("B", "S1", json!({})).await;
    stage.t.run_for(secs(5)).await;
    assert_eq!(stage.binding("B").await.reason, Some(StopReason::InsufficientBalanceBeforeStart));

    let whose = ["binding_id=B", "server_id=S1", "account_id=acct-B"];
    let ended = lines.with("A provider's call has ended.");
    assert_eq!(ended.len(), 2);
    assert_names(&ended[0], &[&whose[..], &["trx_id=B.1", "cycle=1", "action=start", "result=success"]].concat());
    let failed = [&whose[..], &["trx_id=B.2", "cycle=2", "action=start", "result=failed"]].concat();
    assert_names(&ended[1], &failed);
    // The stop is logged with the call that caused it.
    let stopped = lines.with("A binding has stopped.");
    assert_eq!(stopped.len(), 1);
    assert_names(&stopped[0], &failed);

    // A stop by a person is logged with the command.
    stage.sim.set_balance("acct-B", 1);
    stage.command("B", BindingCommand::Start).await;
    assert_eq!(stage.stop("B").await.state, BindingState::Stopped);
    let stopped = lines.with("A binding has stopped.");
    assert_names(&stopped[1], &[&whose[..], &["cycle=2", "action=stopped", "result=STOPPED"]].concat());
    assert!(stopped[1].contains("actor=operator:ops"), "{stopped:?}");
}

/// Asserts that no table in Postgres and no key in Redis contains the OTP.
async fn assert_stored_nowhere(stage: &ProviderStage, otp: &str) {
    let tables = "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition";
    let tables = stage.t.texts(tables).await;
    assert!(tables.len() > 30, "{tables:?}");
    for table in tables {
        // The OTP is a bound parameter, because statements are logged.
        let holds = format!("SELECT count(*) FROM {table} x WHERE position($1 IN x::text) > 0");
        let holds = sqlx::query_scalar::<sqlx::Postgres, i64>(sqlx::AssertSqlSafe(holds)).bind(otp);
        assert_eq!(holds.fetch_one(&stage.t.app.core.db).await.unwrap(), 0, "{table}");
    }
    let keys: Vec<String> = stage.t.redis(&["KEYS", "*"]).await;
    assert!(!keys.is_empty());
    for key in keys {
        let dumped: Vec<u8> = stage.t.redis(&["DUMP", &key]).await;
        assert!(!dumped.windows(otp.len()).any(|part| part == otp.as_bytes()), "{key}");
    }
}

#[tokio::test]
async fn otp_appears_in_no_log_row_or_key() {
    // The level TRACE includes the lines of libraries.
    let lines = listen(Level::TRACE);
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| {
        knobs.otp_rate = "1".parse().unwrap();
        knobs.otp_code = RIGHT.to_owned();
        knobs.otp_lifetime = secs(3600);
    });
    stage.run_binding("B", "S1", json!({ "interval_ms": [3600000, 3600000], "otp_attempts": 3 })).await;
    stage.t.run_due().await;
    let api = Api::start(&stage.t.app).await;
    let support = stage.t.key(AccountRole::Support).await;
    let hand_in = async |trx_id: &str, otp: &str, key: &str| {
        let body = json!({ "trx_id": trx_id, "otp": otp });
        api.post_once("/api/v1/bindings/B/otp", &support, key, body).await.status
    };

    assert_eq!(hand_in("C.1", WRONG, "k0").await, 404);
    assert_eq!(hand_in("B.1", WRONG, "k1").await, 200);
    assert_eq!(hand_in("B.1", WRONG, "k2").await, 409);
    assert_stored_nowhere(&stage, WRONG).await;
    // The OTP is sent but its result is lost. Then the provider refuses it.
    stage.turn_knobs(|knobs| knobs.error_500_rate = "1".parse().unwrap());
    stage.t.run_due().await;
    assert_eq!(stage.t.count("SELECT count(*) FROM bindings WHERE otp_value IS NOT NULL").await, 1);
    stage.turn_knobs(|knobs| knobs.error_500_rate = "0".parse().unwrap());
    stage.t.run_for(secs(5)).await;
    assert_eq!(stage.calls("B").await, ["start otp_wanted", "otp unavailable", "otp failed"]);
    assert_eq!(hand_in("B.1", RIGHT, "k3").await, 200);
    stage.t.run_due().await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    assert_eq!(hand_in("B.1", RIGHT, "k4").await, 410);
    let row = stage.binding("B").await;
    assert_eq!((row.phase, row.otp_value), (BindingPhase::Idle, None));
    for otp in [WRONG, RIGHT] {
        assert_stored_nowhere(&stage, otp).await;
        assert_eq!(lines.with(otp).first(), None);
    }
    assert!(!lines.with("binding_id=B").is_empty());
}
