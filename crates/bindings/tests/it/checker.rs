//! The checker of bindings: each invariant that is broken by hand is reported, and no other.

use std::collections::BTreeSet;

use serde_json::json;

use maintenance::{
    audit::{
        self,
        binding_invariants::{BINDING_INVARIANTS, check_binding_invariants},
    },
    proof::slice,
    recovery::reconciler,
};
use test_support::{ProviderStage, TestApp, secs};

/// A: every kind of call, the last one open, cycle 5 UNRESOLVED. D: deleted, its first two cycles removed. P: stopped,
/// started, paused and resumed. N: never ran. Times are seconds.
const HISTORY: &str = "
    INSERT INTO provider_servers (id, provider, base_url, changed_by, created_at, updated_at)
    SELECT id, 'p', 'http://x', 'me', at, at
    FROM (VALUES ('S1'), ('S2')) s (id), LATERAL (SELECT dispatchq_now() - interval '1 hour' AS at) x;
    CREATE TABLE calls AS SELECT * FROM (VALUES
        ('A', 1, 1, 'start', 0, 1, 'success'),
        ('A', 2, 2, 'start', 2, 3, 'processing'),
        ('A', 2, 3, 'status', 4, 5, 'throttled'),
        ('A', 2, 4, 'status', 6, 7, 'success'),
        ('A', 3, 5, 'start', 8, 9, 'otp_wanted'),
        ('A', 3, 6, 'otp', 20, 21, 'unreachable'),
        ('A', 3, 7, 'otp', 22, 23, 'failed'),
        ('A', 3, 8, 'otp', 30, 31, 'success'),
        ('A', 4, 9, 'start', 40, 46, 'lost'),
        ('A', 4, 10, 'start', 46, 47, 'failed'),
        ('A', 5, 11, 'start', 50, 51, 'processing'),
        ('A', 5, 12, 'status', 52, 53, 'processing'),
        ('A', 6, 13, 'start', 60, 61, 'success'),
        ('A', 5, 14, 'settle', 62, 63, 'processing'),
        ('A', 7, 15, 'start', 64, NULL, NULL),
        ('D', 3, 4, 'start', 0, 1, 'success'),
        ('D', 4, 5, 'start', 2, 3, 'failed'),
        ('P', 1, 1, 'start', 0, 1, 'success'),
        ('P', 2, 2, 'start', 100, 101, 'success')
    ) c (binding, cycle, call_no, action, claimed, ended, result);
    CREATE VIEW calls_at AS SELECT c.*, z + claimed * interval '1 second' AS claimed_at, z + ended * interval '1 second' AS ended_at
        FROM calls c, LATERAL (SELECT dispatchq_now() - interval '10 minutes' AS z) x;
    INSERT INTO bindings (id, server_id, account_id, state, reason, config, cycle, phase, trx_id, next_at, call_no, call_action,
                          call_until, unresolved, created_at, updated_at, deleted_at)
    SELECT b.id, CASE WHEN b.id = 'P' THEN 'S2' ELSE 'S1' END, 'A-' || b.id, b.state, b.reason, '{\"otp_attempts\": 2}', b.cycle, b.phase, b.trx_id, at, b.call_no, b.action,
           CASE WHEN b.action IS NOT NULL THEN at + interval '1 minute' END, b.unresolved, at, at,
           CASE WHEN b.id = 'D' THEN at END
    FROM (VALUES ('A', 'RUNNING', NULL, 7, 'CALLING', 'A.7', 15, 'start', 1),
                 ('D', 'STOPPED', 'manual_stop', 4, 'IDLE', NULL, 5, NULL, 0),
                 ('P', 'PAUSED', NULL, 2, 'IDLE', NULL, 2, NULL, 0),
                 ('N', 'STOPPED', NULL, 0, 'IDLE', NULL, 0, NULL, 0)) b (id, state, reason, cycle, phase, trx_id, call_no, action,
                                                                        unresolved),
         LATERAL (SELECT dispatchq_now() - interval '20 minutes' AS at) x;
    INSERT INTO binding_watermarks (binding_id, removed_through, calls_removed, updated_at) VALUES ('D', 2, 3, dispatchq_now());
    INSERT INTO transactions (trx_id, binding_id, cycle, server_id, account_id, status, settle_at, started_at, ended_at)
    SELECT binding || '.' || cycle, binding, cycle, CASE WHEN binding = 'P' THEN 'S2' ELSE 'S1' END, 'A-' || binding, status,
           CASE WHEN status = 'UNRESOLVED' THEN dispatchq_now() END, started_at,
           CASE WHEN status IN ('SUKSES', 'GAGAL') THEN ended_at END
    FROM (SELECT binding, cycle, min(claimed_at) AS started_at, max(ended_at) AS ended_at,
                 CASE WHEN binding = 'A' AND cycle = 5 THEN 'UNRESOLVED' WHEN binding = 'A' AND cycle = 7 THEN 'STARTED'
                      WHEN binding || cycle IN ('A4', 'D4') THEN 'GAGAL' ELSE 'SUKSES' END AS status
          FROM calls_at GROUP BY binding, cycle) t;
    INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, action, fence, call_until)
    SELECT binding, cycle, call_no, 'claim', claimed_at, action, call_no, claimed_at + interval '5500 ms' FROM calls_at;
    INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, result, sent_at, latency_us)
    SELECT binding, cycle, call_no, 'end', ended_at, result, CASE WHEN result <> 'lost' THEN claimed_at END,
           CASE WHEN result <> 'lost' THEN 900000 END
    FROM calls_at WHERE ended_at IS NOT NULL;
    INSERT INTO binding_events (binding_id, at, kind, actor)
    SELECT binding, dispatchq_now() - interval '10 minutes' + second * interval '1 second', kind, 'anna'
    FROM (VALUES ('A', -1, 'started'), ('D', -1, 'started'), ('P', -1, 'started'), ('A', 9, 'otp_wanted'), ('A', 20, 'otp_submitted'),
                 ('A', 23, 'otp_wanted'), ('A', 30, 'otp_submitted'), ('D', 5, 'stopping'), ('D', 6, 'stopped'), ('D', 7, 'deleted'),
                 ('P', 2, 'stopping'), ('P', 3, 'stopped'), ('P', 3, 'started'), ('P', 4, 'paused'), ('P', 5, 'resumed'),
                 ('P', 102, 'paused')) e (binding, second, kind);
    DROP VIEW calls_at;
    DROP TABLE calls";

const TABLES: [&str; 6] =
    ["provider_servers", "bindings", "transactions", "transaction_snapshots", "binding_events", "binding_watermarks"];

async fn history_to_break() -> TestApp {
    let t = TestApp::start().await;
    t.sql(HISTORY).await;
    // Removes the constraints that would prevent a test from breaking or restoring the rows.
    t.sql("ALTER TABLE bindings DROP CONSTRAINT bindings_check10, ALTER needs_timer DROP EXPRESSION").await;
    for table in TABLES {
        t.sql(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}")).await;
    }
    t
}

async fn restore(t: &TestApp) {
    t.sql(&format!("TRUNCATE {}", TABLES.join(", "))).await;
    for table in TABLES {
        t.sql(&format!("INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{table}")).await;
    }
}

/// Returns the distinct violations as invariant and subject.
async fn reported(t: &TestApp) -> BTreeSet<(&'static str, String)> {
    let violations = check_binding_invariants(&t.app.core.db, 50).await.unwrap();
    violations.into_iter().map(|v| (v.invariant, v.subject)).collect()
}

const PROVEN: &str = "SELECT invariant || ' ' || subject FROM proof_violations WHERE gone_at IS NULL ORDER BY 1";

/// Invariant, the binding or server that violates it, and the SQL that breaks it.
const BROKEN_IN_SQL: [(&str, &str, &str); 23] = [
    ("cycles_without_gap", "D", "DELETE FROM transactions WHERE trx_id = 'D.3'"),
    ("cycles_without_gap", "N", "UPDATE bindings SET cycle = 1 WHERE id = 'N'"),
    ("cycles_without_gap", "P", "UPDATE bindings SET cycle = 1 WHERE id = 'P'"),
    ("cycles_without_gap", "D", "UPDATE binding_watermarks SET removed_through = 1"),
    ("calls_without_gap", "P", "UPDATE bindings SET call_no = 3 WHERE id = 'P'"),
    ("calls_without_gap", "A", "DELETE FROM transaction_snapshots WHERE binding_id = 'A' AND call_no = 3"),
    ("calls_without_gap", "D", "UPDATE binding_watermarks SET calls_removed = 2"),
    (
        "a_record_of_each_call",
        "A",
        "DELETE FROM transaction_snapshots WHERE binding_id = 'A' AND call_no = 9 AND part = 'end'",
    ),
    // The row of the binding has no open call.
    (
        "a_record_of_each_call",
        "P",
        "DELETE FROM transaction_snapshots WHERE binding_id = 'P' AND call_no = 2 AND part = 'end'",
    ),
    (
        "one_open_call_per_binding",
        "A",
        "UPDATE transaction_snapshots SET at = at - interval '1051 ms' WHERE binding_id = 'A' AND call_no = 3 AND part = 'claim'",
    ),
    (
        "only_the_newest_cycle_is_open",
        "P",
        "UPDATE transactions SET status = 'PROCESSING', ended_at = NULL WHERE trx_id = 'P.1'",
    ),
    (
        "only_the_newest_cycle_is_open",
        "P",
        "UPDATE transactions SET status = 'STARTED', ended_at = NULL WHERE trx_id = 'P.2'",
    ),
    (
        "only_the_newest_cycle_is_open",
        "A",
        "UPDATE transactions SET status = 'SUKSES', ended_at = started_at WHERE trx_id = 'A.7'",
    ),
    ("unresolved_are_counted", "A", "UPDATE bindings SET unresolved = 0 WHERE id = 'A'"),
    // The second OTP was never submitted.
    (
        "an_otp_is_used_once",
        "A",
        "DELETE FROM binding_events WHERE seq = (SELECT max(seq) FROM binding_events WHERE kind = 'otp_submitted')",
    ),
    ("an_otp_is_used_once", "A", "UPDATE bindings SET config = '{\"otp_attempts\": 1}' WHERE id = 'A'"),
    // The previous call had a result, and the same OTP was submitted once more.
    (
        "an_otp_is_used_once",
        "A",
        "UPDATE transaction_snapshots SET result = 'success' WHERE binding_id = 'A' AND call_no = 6 AND part = 'end'",
    ),
    (
        "an_otp_is_used_once",
        "P",
        "UPDATE bindings SET otp_value = 'x', otp_submitted_at = dispatchq_now() WHERE id = 'P'",
    ),
    ("no_cycle_while_stopped", "P", "DELETE FROM binding_events WHERE binding_id = 'P' AND kind = 'resumed'"),
    (
        "no_cycle_while_stopped",
        "P",
        "DELETE FROM binding_events WHERE seq = (SELECT max(seq) FROM binding_events WHERE binding_id = 'P' AND kind = 'started')",
    ),
    (
        "no_cycle_while_stopped",
        "D",
        "UPDATE binding_events SET at = at - interval '4 seconds' WHERE binding_id = 'D' AND kind = 'stopping'",
    ),
    // Three concurrent calls of 900 ms, at a limit of two.
    (
        "calls_within_limits",
        "S1",
        "UPDATE transaction_snapshots SET sent_at = dispatchq_now() WHERE binding_id = 'A' AND call_no <= 3 AND part = 'end'",
    ),
    (
        "calls_within_limits",
        "all servers",
        "UPDATE provider_servers SET max_concurrent = 1000;
         INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, action, fence, call_until)
         SELECT 'P', 2, n, 'claim', dispatchq_now() + n * interval '1 second', 'status', n, dispatchq_now()
         FROM generate_series(3, 53) n;
         INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, result, sent_at, latency_us)
         SELECT 'P', 2, n, 'end', dispatchq_now() + n * interval '1 second', 'processing', dispatchq_now(), 900000
         FROM generate_series(3, 53) n;
         UPDATE bindings SET call_no = 53 WHERE id = 'P'",
    ),
];

#[tokio::test]
async fn a_clean_history_of_bindings_is_silent() {
    let t = history_to_break().await;
    assert_eq!(reported(&t).await, BTreeSet::new());
    // Deviations within the clock tolerance, and a limit that was different at the time of the calls.
    for how in [
        "UPDATE transaction_snapshots SET at = at - interval '1050 ms' WHERE binding_id = 'A' AND call_no = 3 AND part = 'claim'",
        "UPDATE transaction_snapshots SET sent_at = dispatchq_now() + CASE WHEN call_no = 3 THEN 860 ELSE 0 END * interval '1 ms'
         WHERE binding_id = 'A' AND call_no <= 3 AND part = 'end'",
        "UPDATE transaction_snapshots SET sent_at = dispatchq_now() WHERE binding_id = 'A' AND call_no <= 3 AND part = 'end';
         UPDATE provider_servers SET max_concurrent = 1, updated_at = dispatchq_now() + interval '1 second'",
        // The number of OTPs was allowed at that time.
        "UPDATE bindings SET config = '{\"otp_attempts\": 1}' WHERE id = 'A';
         INSERT INTO binding_events (binding_id, at, kind, actor) VALUES ('A', dispatchq_now(), 'patched', 'anna')",
        // After retention has shortened the history, it proves nothing about the removed time.
        "DELETE FROM binding_events WHERE at < dispatchq_now() - interval '569 seconds'",
        "DELETE FROM binding_events",
    ] {
        t.sql(how).await;
        assert_eq!(reported(&t).await, BTreeSet::new(), "{how}");
        restore(&t).await;
    }
}

#[tokio::test]
async fn each_broken_invariant_of_bindings_is_reported_and_no_other() {
    let t = history_to_break().await;
    for (invariant, subject, how) in BROKEN_IN_SQL {
        t.sql(how).await;
        assert_eq!(reported(&t).await, BTreeSet::from([(invariant, subject.to_owned())]), "{how}");
        slice::run(&t.app.maintenance).await.unwrap();
        assert_eq!(t.texts(PROVEN).await, [format!("{invariant} {subject}")], "{how}");
        t.sql("DELETE FROM proof_violations").await;
        restore(&t).await;
    }
    slice::run(&t.app.maintenance).await.unwrap();
    assert_eq!(t.texts(PROVEN).await, Vec::<String>::new());
    t.sql(BROKEN_IN_SQL[0].2).await;
    let violations = audit::check_history(&t.app.maintenance).await.unwrap();
    assert!(violations.iter().any(|v| v.invariant == "cycles_without_gap"), "{violations:?}");
    let broken: BTreeSet<_> = BROKEN_IN_SQL.iter().map(|(invariant, ..)| *invariant).collect();
    let known: BTreeSet<_> = BINDING_INVARIANTS.iter().map(|i| i.name).collect();
    assert_eq!(broken, known, "every invariant has its test");
}

#[tokio::test]
async fn a_missing_job_of_a_binding_is_reported() {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| {
        knobs.processing_rate = "1".parse().unwrap();
        knobs.processing_duration = "10h".parse().unwrap();
    });
    stage.run_binding("LATE", "S1", json!({ "processing_timeout_ms": 60000 })).await;
    stage.t.run_due().await;
    // The worker's clock advanced while the database clock stood still.
    stage.t.advance(secs(30)).await;
    stage.stop("LATE").await;
    stage.t.run_for(secs(61)).await;
    stage.run_binding("OPEN", "S1", json!({})).await;
    stage.t.run_due().await;
    stage.run_binding("NEXT", "S1", json!({})).await;
    stage.create_binding("REST", "S1", json!({})).await;
    stage.t.assert_sound().await;

    let missing = ["cycle:NEXT:1", "cycle:OPEN:1", "settle:LATE:1"];
    let due = stage.t.app.core.store.keys().due_set(jobs::queues::BINDING);
    for job in missing {
        assert_eq!(stage.t.redis::<i64>(&["ZREM", &due, job]).await, 1, "{job}");
    }
    let violations = audit::check_history(&stage.t.app.maintenance).await.unwrap();
    let reported: BTreeSet<_> = violations.iter().map(|v| (v.invariant, v.subject.as_str())).collect();
    assert_eq!(reported, BTreeSet::from(missing.map(|job| ("no_timer_missing", job))));
    reconciler::reconcile_in_full(&stage.t.app.maintenance).await.unwrap();
    stage.t.assert_sound().await;
}
