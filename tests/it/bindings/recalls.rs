//! Cycles that begin without a load, from the copy of the row that their job brings along.

use dispatch::binding_store::{
    load::LoadedBinding,
    recall::{CopyCheck, RowCopy},
    write::{BindingWrite, WriteVerdict},
};
use model::binding::{BindingCommand, BindingPhase, CallRules, ClaimDecision, DecisionMoment, decide_claim};
use serde_json::json;
use workers::{LeasedJob, Outcome};

use crate::support::{Counting, ProviderStage, binding_id, secs};

/// So that each cycle is due within the second that follows the one before.
const AT_ONCE: [u32; 2] = [0, 1];
/// A copy is good for a second of the machine's time, on which a busy machine may stand still.
const TRIES: usize = 50;

/// The job of the next cycle, taken with its slots, right after this process has seen server and clock.
async fn take_next_cycle(stage: &ProviderStage) -> LeasedJob {
    stage.t.app.store.wait_for_slot_releases().await;
    let mut taken = stage.t.take().await;
    assert_eq!(taken.len(), 1);
    stage.binding("B").await;
    taken.remove(0)
}

async fn perform_next_cycle(stage: &ProviderStage, change: impl FnOnce(&mut LeasedJob)) {
    let mut leased = take_next_cycle(stage).await;
    change(&mut leased);
    let outcome = stage.t.perform(&leased).await;
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    stage.t.settle(&leased, outcome).await;
    stage.t.advance(secs(1)).await;
}

#[tokio::test]
async fn a_cycle_begins_from_the_copy_that_its_job_has() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": AT_ONCE })).await;
    let counting = Counting::start();
    let mut cycles = 0;
    while counting.of("dispatchq_binding_recalls_total{result=\"claimed\"").is_empty() {
        assert!(cycles < TRIES, "no cycle began from a copy");
        perform_next_cycle(&stage, |_| {}).await;
        cycles += 1;
    }
    assert_eq!(stage.calls("B").await, vec!["start success"; cycles]);
    let numbers: Vec<i64> = stage.headers("B").await.iter().map(|header| header.cycle).collect();
    assert_eq!(numbers, (1..=cycles as i64).collect::<Vec<_>>());
    stage.assert_judge_content();
}

#[tokio::test]
async fn a_cycle_begins_from_the_row_where_its_job_has_no_copy_that_can_be_read() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": AT_ONCE })).await;
    perform_next_cycle(&stage, |leased| assert_eq!(leased.delivery.hint, None)).await;
    let counting = Counting::start();
    let made_up = [json!("nonsense"), json!({}), json!({ "schema": 1 }), json!(null)];
    let cycles = 1 + made_up.len();
    for hint in made_up {
        perform_next_cycle(&stage, |leased| {
            assert!(leased.delivery.hint.as_ref().is_some_and(|hint| hint["row"]["id"] == "B"));
            leased.delivery.hint = Some(hint);
        })
        .await;
    }
    // Another schema has other columns; another binding has another row; and from none of these rows a cycle begins.
    let forgeries = [
        json!({ "/schema": 1 }),
        json!({ "/row/id": "C" }),
        json!({ "/row/phase": "PROCESSING", "/row/cycle": 99, "/row/trx_id": "C.7" }),
        json!({ "/row/phase": "CALLING", "/row/call_action": "start", "/row/call_until": "2020-01-01T00:00:00Z" }),
        json!({ "/row/phase": "WAITING_OTP" }),
        json!({ "/row/state": "PAUSED" }),
        json!({ "/row/otp_deadline": "2020-01-01T00:00:00Z" }),
        json!({ "/row/otp_submitted_at": "2020-01-01T00:00:00Z" }),
        json!({ "/row/cycle": i64::MAX }),
        json!({ "/row/call_no": -1 }),
    ];
    let cycles = cycles + forgeries.len();
    for forgery in forgeries {
        perform_next_cycle(&stage, |leased| {
            let hint = leased.delivery.hint.as_mut().expect("the job has a copy");
            for (field, value) in forgery.as_object().unwrap() {
                *hint.pointer_mut(field).unwrap_or_else(|| panic!("no {field} in a copy")) = value.clone();
            }
        })
        .await;
    }
    assert_eq!(stage.calls("B").await, vec!["start success"; cycles]);
    let numbers: Vec<i64> = stage.headers("B").await.iter().map(|header| header.cycle).collect();
    assert_eq!(numbers, (1..=cycles as i64).collect::<Vec<_>>());
    assert_eq!(counting.of("dispatchq_binding_recalls_total"), Vec::<String>::new());
}

#[tokio::test]
async fn a_row_that_has_changed_since_its_copy_is_loaded_and_its_cycle_begins_all_the_same() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": AT_ONCE })).await;
    perform_next_cycle(&stage, |_| {}).await;
    let counting = Counting::start();
    let mut cycles = 1;
    while counting.of("dispatchq_binding_recalls_total{result=\"stale\"").is_empty() {
        assert!(cycles < TRIES, "no copy was stale");
        let leased = take_next_cycle(&stage).await;
        let config = json!({ "interval_ms": AT_ONCE, "max_failures": cycles + 20 });
        let patch = BindingCommand::Patch { server_id: None, config: Some(serde_json::from_value(config).unwrap()) };
        stage.command("B", patch).await;
        let outcome = stage.t.perform(&leased).await;
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        stage.t.settle(&leased, outcome).await;
        assert_eq!(stage.binding("B").await.config.max_failures as usize, cycles + 20);
        stage.t.advance(secs(1)).await;
        cycles += 1;
    }
    assert_eq!(stage.calls("B").await, vec!["start success"; cycles]);
    stage.assert_judge_content();
}

#[tokio::test]
async fn a_stale_copy_costs_its_binding_no_place_in_line() {
    let stage = ProviderStage::start().await;
    stage.create_server("S3", 1).await;
    for id in ["A", "B", "C"] {
        stage.run_binding(id, "S3", json!({ "interval_ms": AT_ONCE })).await;
    }
    stage.t.run_due().await;
    let counting = Counting::start();
    let mut rounds = 0;
    while counting.of("dispatchq_binding_recalls_total{result=\"stale\"").is_empty() {
        assert!(rounds < TRIES, "no copy was stale");
        stage.t.advance(secs(1)).await;
        stage.t.app.store.wait_for_slot_releases().await;
        // One has the slot, and two are in line behind it.
        let mut taken = stage.t.take().await;
        assert_eq!(taken.len(), 1, "{taken:?}");
        let leased = taken.remove(0);
        let binding = leased.delivery.id.key().split(':').next().unwrap().to_owned();
        let config = json!({ "interval_ms": AT_ONCE, "max_failures": rounds + 20 });
        let patch = BindingCommand::Patch { server_id: None, config: Some(serde_json::from_value(config).unwrap()) };
        stage.command(&binding, patch).await;
        let outcome = stage.t.perform(&leased).await;
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        stage.t.settle(&leased, outcome).await;
        rounds += 1;
    }
    stage.assert_judge_content();
}

/// A copy of the row as it is, and a claim that is decided on it.
async fn claim_on_copy(stage: &ProviderStage, id: &str) -> BindingWrite {
    for _ in 0..TRIES {
        let row = stage.binding(id).await;
        let copy = RowCopy::of_row(&row).expect("it runs, and rests");
        let Some(loaded) = stage.t.app.bindings.recall_binding(&copy) else { continue };
        let LoadedBinding { binding, now, .. } = &loaded;
        assert_eq!(*binding, row);
        let rules = CallRules { margin: chrono::TimeDelta::zero(), repeats_are_safe: true, otp_is_readable: false };
        let moment = DecisionMoment { now: *now, luck: 0.5 };
        let ClaimDecision::Call(claim) = decide_claim(binding, rules, moment) else { panic!("no call of {row:?}") };
        let check = CopyCheck::of_loaded(&loaded);
        return BindingWrite { change: claim.change, owner: format!("w:{id}").into(), call: None, check };
    }
    panic!("what was loaded is recalled")
}

#[tokio::test]
async fn a_claim_that_was_decided_on_a_copy_is_written_only_where_row_server_and_clock_are_as_they_were() {
    let stage = ProviderStage::start().await;
    let changes = [
        // The row, under the same version, as after a restore of an older database.
        "UPDATE bindings SET config = jsonb_set(config, '{max_failures}', '7')",
        "UPDATE bindings SET account_id = 'acct-other'",
        "UPDATE bindings SET next_at = next_at - interval '1 ms'",
        "UPDATE bindings SET cycle = cycle + 1",
        "UPDATE bindings SET call_no = call_no + 1",
        "UPDATE bindings SET failures = 1",
        "UPDATE bindings SET unresolved = 1",
        "UPDATE bindings SET state = 'PAUSED', next_at = NULL",
        "UPDATE bindings SET server_id = 'S2'",
        "UPDATE bindings SET version = version + 1",
        // The server.
        "UPDATE provider_servers SET enabled = false",
        "UPDATE provider_servers SET failures = 1",
        "UPDATE provider_servers SET paused_until = dispatchq_now()",
        "UPDATE provider_servers SET base_url = 'http://127.0.0.1:9'",
        "UPDATE provider_servers SET provider = 'other'",
        "UPDATE provider_servers SET repeats_are_safe = NOT repeats_are_safe",
    ];
    stage.create_server("S2", 2).await;
    stage.run_binding("B", "S1", json!({})).await;
    let write = claim_on_copy(&stage, "B").await;
    for change in changes {
        let mut tx = stage.t.app.db.begin().await.unwrap();
        let before: (serde_json::Value, serde_json::Value) = sqlx::query_as(
            "SELECT (SELECT to_jsonb(b) FROM bindings b), to_jsonb(s) FROM provider_servers s WHERE id = 'S1'",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        sqlx::query(change).execute(&mut *tx).await.unwrap_or_else(|error| panic!("{change}: {error}"));
        tx.commit().await.unwrap();
        let verdict = stage.t.app.bindings.write_binding(write.clone()).await.unwrap();
        assert_eq!(verdict, WriteVerdict::Conflict, "{change}");
        for (table, row) in [("bindings", &before.0), ("provider_servers", &before.1)] {
            restore_row(&stage, table, row).await;
        }
    }
    let mut ahead = write.clone();
    ahead.change.at += chrono::TimeDelta::milliseconds(300);
    let verdict = stage.t.app.bindings.write_binding(ahead).await.unwrap();
    assert_eq!(verdict, WriteVerdict::Conflict, "Postgres' clock is behind");
    stage.t.advance(secs(1)).await;
    let verdict = stage.t.app.bindings.write_binding(write).await.unwrap();
    assert_eq!(verdict, WriteVerdict::Conflict, "Postgres' clock has gone on");

    let write = claim_on_copy(&stage, "B").await;
    let verdict = stage.t.app.bindings.write_binding(write.clone()).await.unwrap();
    assert_eq!(verdict, WriteVerdict::Written { messages: Vec::new() });
    assert_eq!(stage.t.app.bindings.write_binding(write).await.unwrap(), WriteVerdict::Conflict);
    assert_eq!(stage.binding("B").await.phase, BindingPhase::Calling);
}

async fn restore_row(stage: &ProviderStage, table: &str, row: &serde_json::Value) {
    let columns: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
    let columns: Vec<&str> = columns.into_iter().filter(|column| !["id", "needs_timer"].contains(column)).collect();
    let columns = columns.join(", ");
    let update = format!(
        "UPDATE {table} t SET ({columns}) = (SELECT {columns} FROM jsonb_populate_record(t, $1)) WHERE id = $1->>'id'"
    );
    sqlx::query(sqlx::AssertSqlSafe(update)).bind(row).execute(&stage.t.app.db).await.unwrap();
}

#[tokio::test]
async fn no_copy_is_recalled_of_a_server_that_fails_or_that_was_never_seen() {
    let stage = ProviderStage::start().await;
    let row = stage.run_binding("B", "S1", json!({})).await;
    let copy = RowCopy::of_row(&row).unwrap();
    let app = &stage.t.app;
    let fresh = dispatch::binding_store::BindingStore::new(&app.db, &Default::default());
    assert!(fresh.recall_binding(&copy).is_none());
    for broken in
        ["failures = 1", "failures = 0, paused_until = dispatchq_now()", "paused_until = NULL, enabled = false"]
    {
        stage.t.sql(&format!("UPDATE provider_servers SET {broken}")).await;
        fresh.load_binding(&binding_id("B")).await.unwrap();
        assert!(fresh.recall_binding(&copy).is_none(), "{broken}");
    }
    assert!(RowCopy::of_row(&stage.stop("B").await).is_none());
}
