//! Dead messages are listed and sent again, and their log forgets nothing.

use axum::http::StatusCode;

use crate::support::{Fleet, Receiver, TestApp, by, secs};
use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter, OutboxMessage},
};
use maintenance::recovery::reconciler;
use model::messages::OutboxState;
use queue::store::JobState;

fn by_test() -> DecisionAuthor {
    DecisionAuthor { who: by("operator:test"), why: None }
}

/// A refund alert that its receiver has refused for good.
async fn with_dead() -> (Receiver, TestApp, OutboxMessage) {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    receiver.fail(StatusCode::GONE, 1);
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1800)).await;
    let row = dead(&t).await.pop().unwrap();
    (receiver, t, row)
}

async fn dead(t: &TestApp) -> Vec<OutboxMessage> {
    let filter = OutboxFilter { state: Some(OutboxState::Dead), limit: 10, ..OutboxFilter::default() };
    redeliver::list_messages(&t.app.core.db, &filter).await.unwrap()
}

#[tokio::test]
async fn a_dead_message_is_sent_again_under_its_own_id() {
    let (receiver, t, row) = with_dead().await;
    t.advance(secs(48 * 3600)).await;
    assert!(redeliver::replay_message(&t.app.desk, &row, &by_test()).await.unwrap());
    t.run_due().await;
    let received = receiver.received();
    let alerts: Vec<_> = received.iter().filter(|m| m.body["type"] == "MANUAL_REFUND_REQUIRED").collect();
    assert_eq!(alerts.iter().map(|m| m.answer).collect::<Vec<_>>(), [410, 204]);
    assert_eq!(alerts[0].id, alerts[1].id);
    assert_eq!(dead(&t).await.len(), 0);
    assert_eq!(t.app.core.store.list_jobs(jobs::queues::NOTIFY, JobState::Dead, 0, 10).await.unwrap().len(), 0);
    let log: Vec<_> = redeliver::load_delivery_log(&t.app.core.db, row.id)
        .await
        .unwrap()
        .into_iter()
        .map(|e| (e.what, e.actor.or(e.error).unwrap_or_default()))
        .collect();
    let line = |what: &str, who: &str| (what.to_owned(), who.to_owned());
    let first = "given up after 1 tries: the receiver answered 410";
    assert_eq!(log, [line("TRY", first), line("REPLAY", "operator:test"), line("TRY", "")]);
    // It has arrived: there is nothing to send again.
    assert!(!redeliver::replay_message(&t.app.desk, &row, &by_test()).await.unwrap());
    t.run_due().await;
    assert_eq!(receiver.received().len(), received.len());
    t.assert_sound().await;
}

#[tokio::test]
async fn replayed_message_restarts_its_backoff() {
    let (receiver, t, row) = with_dead().await;
    receiver.fail(StatusCode::BAD_GATEWAY, 2);
    redeliver::replay_message(&t.app.desk, &row, &by_test()).await.unwrap();
    t.run_for(secs(10)).await;
    assert_eq!(dead(&t).await.len(), 0);
    let alerts = receiver.received().iter().filter(|m| m.body["type"] == "MANUAL_REFUND_REQUIRED").count();
    assert_eq!(alerts, 4, "410, then 502, 502 and 204 within seconds");
    assert_eq!(t.count("SELECT attempts::bigint FROM outbox WHERE kind = 'MANUAL_REFUND_REQUIRED'").await, 4);
    t.assert_sound().await;
}

#[tokio::test]
async fn reconciler_finishes_an_interrupted_replay() {
    let (receiver, t, row) = with_dead().await;
    let sent = receiver.received().len();
    // As far as the row, and no further.
    t.redis::<()>(&["FLUSHALL"]).await;
    t.sql("UPDATE outbox SET state = 'pending', backoff_from = attempts, next_attempt_at = dispatchq_now() WHERE state = 'dead'")
        .await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    assert_eq!(receiver.received().len(), sent + 1);
    assert_eq!(dead(&t).await.len(), 0);
    assert_eq!(row.attempts, 1);
    t.assert_sound().await;
}

#[tokio::test]
async fn the_command_line_lists_acknowledges_and_replays() {
    let fleet = Fleet::start().await;
    assert_eq!(fleet.run(&["reconcile", "run"]).code, Some(0));
    let create = ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8"];
    assert_eq!(fleet.run(&[&create[..], &["--payment-status", "PAID"]].concat()).code, Some(0));
    assert_eq!(fleet.run(&["order", "cancel", "ORD-1", "--yes"]).code, Some(0));

    let json = |args: &[&str]| -> serde_json::Value {
        let printed = fleet.run(args);
        assert_eq!(printed.code, Some(0), "{printed:?}");
        serde_json::from_str(&printed.stdout).unwrap()
    };
    let open = json(&["alert", "list", "--open", "--json"]);
    assert_eq!((&open[0]["kind"], &open[0]["order_id"]), (&"MANUAL_REFUND_REQUIRED".into(), &"ORD-1".into()));
    assert!(fleet.run(&["alert", "list"]).stdout.contains("MANUAL_REFUND_REQUIRED"));
    assert_eq!(fleet.run(&["alert", "ack", "1"]).code, Some(1), "a reason must be given");
    let acked = fleet.run(&["alert", "ack", "--order", "ORD-1", "--reason", "refunded", "--yes"]);
    assert!(acked.stdout.starts_with("Alert 1 (MANUAL_REFUND_REQUIRED of ORD-1) is acknowledged by cli:"), "{acked:?}");
    assert_eq!(json(&["alert", "list", "--open", "--json"]), serde_json::json!([]));
    let nothing = fleet.run(&["alert", "ack", "99", "--note", "x"]);
    assert!(nothing.code == Some(1) && nothing.stderr.contains("dispatchq alert list"), "{nothing:?}");

    let none = fleet.run(&["outbox", "replay", "--all"]);
    assert!(none.code == Some(1) && none.stderr.contains("outbox list --state dead"), "{none:?}");
    assert_eq!(fleet.run(&["outbox", "replay"]).code, Some(2));
    sqlx::query("UPDATE outbox SET state = 'dead', last_error = 'the receiver answered 404'")
        .execute(&fleet.app.core.db)
        .await
        .unwrap();
    assert!(fleet.run(&["doctor"]).stdout.contains("outbox list --state dead"));
    assert_eq!(json(&["outbox", "list", "--state", "dead", "--channel", "log", "--json"])[0]["order_id"], "ORD-1");
    assert!(fleet.run(&["outbox", "replay", "--channel", "log", "--dry-run"]).stdout.contains("404"));
    let unsure = fleet.run(&["outbox", "replay", "--channel", "log"]);
    assert!(unsure.code == Some(1) && unsure.stderr.contains("--dry-run"), "{unsure:?}");
    let sure = fleet.run(&["outbox", "replay", "--channel", "log", "--reason", "it is back", "--yes"]);
    assert_eq!(sure.stdout, "1 messages are sent again.\n");
    assert_eq!(json(&["outbox", "list", "--json"])[0]["state"], "pending");
    assert_eq!(json(&["outbox", "show", "1", "--json"])["log"][0]["what"], "REPLAY");
    assert!(fleet.run(&["outbox", "show", "1"]).stdout.contains("REPLAY"));
}
