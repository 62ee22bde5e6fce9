//! First tries that the process sends which wrote the message.

use axum::http::StatusCode;
use model::messages::OFFER;
use queue::store::JobState;
use test_support::{Receiver, TestApp, eventually, secs};

/// Creates an order whose offer is written by a process that sends first tries.
async fn offer_at_once(t: &TestApp) {
    t.app.orders.first_tries.start();
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let dispatch = t.take().await.remove(0);
    let outcome = t.perform(&dispatch).await;
    t.settle(&dispatch, outcome).await;
}

/// Creates the order, and lets `receiver` answer only when the message's job is enqueued: an earlier answer would move a
/// job that does not exist yet. Returns when the first try has moved the job.
async fn offer_and_first_answer(t: &TestApp, receiver: &Receiver) {
    receiver.hold();
    offer_at_once(t).await;
    receiver.release();
    t.app.core.behind_answers.close();
    t.app.core.behind_answers.wait().await;
}

async fn tries(t: &TestApp) -> Vec<String> {
    t.texts("SELECT concat_ws(' ', attempt_no, coalesce(error, 'delivered')) FROM outbox_attempts ORDER BY attempt_no")
        .await
}

#[tokio::test]
async fn message_is_delivered_without_its_job() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    offer_at_once(&t).await;
    eventually("the result is recorded", || async { tries(&t).await == ["1 delivered"] }).await;
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(t.messages("ORD-1").await, [(OFFER.to_owned(), "hook".to_owned(), "delivered".to_owned())]);
    // The job may be enqueued after it was cancelled, because the change and the delivery use separate calls. It then
    // finds the message delivered.
    t.run_for(secs(10)).await;
    assert_eq!((receiver.received().len(), tries(&t).await.len()), (1, 1));
    t.assert_sound().await;
}

#[tokio::test]
async fn failed_first_try_moves_its_job_forward() {
    let receiver = Receiver::start().await;
    receiver.fail(StatusCode::SERVICE_UNAVAILABLE, 1);
    let t = TestApp::with(|config| receiver.configure(config)).await;
    offer_and_first_answer(&t, &receiver).await;
    let refused = "1 the receiver answered 503";
    assert_eq!(tries(&t).await, [refused]);
    let waits = "SELECT (next_attempt_at - created_at BETWEEN interval '0.7 s' AND interval '1.3 s')::text FROM outbox";
    assert_eq!(t.texts(waits).await, ["true"]);
    t.run_for(secs(2)).await;
    assert_eq!(tries(&t).await, [refused, "2 delivered"]);
    assert_eq!(receiver.received().len(), 2);
    t.assert_sound().await;
}

#[tokio::test]
async fn refused_offer_is_withdrawn_by_its_job() {
    let receiver = Receiver::start().await;
    receiver.fail(StatusCode::GONE, 2);
    let t = TestApp::with(|config| receiver.configure(config)).await;
    offer_and_first_answer(&t, &receiver).await;
    assert_eq!(tries(&t).await.len(), 1);
    t.run_due().await;
    assert_eq!(receiver.received().len(), 2);
    assert_eq!(t.texts("SELECT state FROM offers ORDER BY attempt_no LIMIT 1").await, ["withdrawn"]);
    t.assert_sound().await;
}

/// The process dies after the commit and sends nothing: the job sends the message when the claim is over.
#[tokio::test]
async fn unsent_claimed_message_is_sent_by_its_job() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let dispatch = t.take().await.remove(0);
    let outcome = t.perform(&dispatch).await;
    t.settle(&dispatch, outcome).await;
    // The row as the dead process left it.
    t.sql("UPDATE outbox SET attempts = 1, next_attempt_at = created_at + interval '7 s'").await;
    t.run_for(secs(6)).await;
    assert_eq!(receiver.received().len(), 0, "the claim is not over");
    t.run_for(secs(2)).await;
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(tries(&t).await, ["1 no answer was recorded", "2 delivered"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn paused_queue_of_messages_sends_nothing() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    t.sql("INSERT INTO paused_queues (queue, paused_by) VALUES ('notify-queue', 'operator:test')").await;
    offer_at_once(&t).await;
    assert_eq!(t.texts("SELECT attempts::text FROM outbox").await, ["0"]);
    assert_eq!(receiver.received().len(), 0);
}

/// The job has claimed the next try, for example after a pause of the process. The first try must not cancel it.
#[tokio::test]
async fn overtaken_first_try_leaves_the_job() {
    let receiver = Receiver::start().await;
    receiver.hold();
    let t = TestApp::with(|config| receiver.configure(config)).await;
    offer_at_once(&t).await;
    eventually("the message is being sent", || async { receiver.received().len() == 1 }).await;
    t.sql("UPDATE outbox SET attempts = 2").await;
    receiver.release();
    let behind = &t.app.core.behind_answers;
    behind.close();
    behind.wait().await;
    assert_eq!(t.texts("SELECT state FROM outbox").await, ["pending"]);
    let kinds: Vec<String> = t.timers().await.into_keys().collect();
    assert!(kinds.iter().any(|id| id.starts_with("notify:ORD-1:")), "{kinds:?}");
}

#[tokio::test]
async fn full_lane_leaves_messages_to_their_jobs() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| {
        receiver.configure(config);
        config.worker.concurrency.insert(jobs::queues::NOTIFY.to_owned(), 1);
    })
    .await;
    let _place = t.app.notify.channels.enter_lane("hook").unwrap();
    offer_at_once(&t).await;
    assert_eq!(t.texts("SELECT attempts::text FROM outbox").await, ["0"]);
    let due = t.app.core.store.list_jobs(jobs::queues::NOTIFY, JobState::Due, 0, 10).await.unwrap();
    assert_eq!(due.len(), 1, "the job sends it: {due:?}");
}
