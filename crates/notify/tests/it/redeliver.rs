//! Dead messages are listed and sent again, and their log stays complete.

use axum::http::StatusCode;

use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter, OutboxMessage},
};
use maintenance::recovery::reconciler;
use model::messages::OutboxState;
use queue::store::JobState;
use test_support::{Receiver, TestApp, by, secs};

fn by_test() -> DecisionAuthor {
    DecisionAuthor { who: by("operator:test"), why: None }
}

/// Creates a refund alert that its receiver has refused permanently.
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
    // The message was delivered, so there is nothing to send again.
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
    // The replay wrote the row, but its process died before Redis had the job.
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
