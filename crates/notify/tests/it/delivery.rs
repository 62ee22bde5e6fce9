//! Tries, channels that hang, and channels that fail concurrently.

use std::sync::Arc;

use axum::http::StatusCode;
use jobs::SendNotification;
use standardwebhooks::Webhook;
use tokio::task::JoinSet;

use model::order::OfferState;
use queue::{LeasedJob, NewJob, Outcome};
use settings::{ChannelConfig, WebhookConfig};
use test_support::{Receiver, TestApp, eventually, id, lasting_transaction, secs};

async fn with_receiver() -> (Receiver, TestApp) {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    (receiver, t)
}

/// Makes Postgres refuse updates of the outbox under this condition, as a read-only server does.
async fn refuse_updates(t: &TestApp, when: &str) {
    t.sql(&format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'read-only' USING ERRCODE = '57P03'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()"
    ))
    .await;
}

// Fault F3
#[tokio::test]
async fn unclaimed_message_is_not_sent() {
    let (receiver, t) = with_receiver().await;
    refuse_updates(&t, "true").await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_for(secs(30)).await;
    assert_eq!(receiver.received().len(), 0);
    assert_eq!(t.texts("SELECT state || attempts FROM outbox").await, ["pending0"]);

    t.sql("DROP TRIGGER refuse ON outbox").await;
    t.run_for(secs(2)).await;
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(t.texts("SELECT state || attempts FROM outbox").await, ["delivered1"]);
    t.assert_sound().await;
}

// Fault F3
#[tokio::test]
async fn unrecorded_delivery_repeats_after_its_backoff() {
    let (receiver, t) = with_receiver().await;
    refuse_updates(&t, "NEW.state = 'delivered'").await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_for(secs(60)).await;
    let log: Vec<(f64, String)> = sqlx::query_as(
        "SELECT extract(epoch FROM lead(at) OVER (ORDER BY attempt_no) - at)::float8, error FROM outbox_attempts
         ORDER BY attempt_no LIMIT (SELECT count(*) - 1 FROM outbox_attempts)",
    )
    .fetch_all(&t.app.core.db)
    .await
    .unwrap();
    assert!(log.len() >= 4, "{log:?}");
    for ((pause, error), backoff) in log.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]) {
        // A claim lasts seven seconds.
        assert!(*pause >= f64::max(0.699 * backoff, 6.9), "{log:?}");
        assert_eq!(error, "no answer was recorded");
    }
    let received = receiver.received();
    assert_eq!(received.len(), log.len() + 1);
    assert!(received.iter().all(|m| m.id == received[0].id), "its receiver can tell");
}

/// Returns the leased job that delivers the offer of a new order.
async fn offer_to_deliver(t: &TestApp) -> LeasedJob {
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let dispatch = t.take().await.remove(0);
    let outcome = t.perform(&dispatch).await;
    t.settle(&dispatch, outcome).await;
    notify_job(t).await
}

async fn notify_job(t: &TestApp) -> LeasedJob {
    t.take().await.into_iter().find(|job| job.delivery.id.kind() == "notify").unwrap()
}

// Fault F3
#[tokio::test]
async fn message_in_delivery_is_not_sent_twice() {
    let (receiver, t) = with_receiver().await;
    receiver.hold();
    let notify = offer_to_deliver(&t).await;
    let again = async {
        eventually("it is on its way", || async { receiver.received().len() == 1 }).await;
        // Redis lost the job and it was rebuilt, while the receiver has not answered yet.
        t.advance(secs(5)).await;
        assert!(matches!(t.perform(&notify).await, Outcome::Snooze { .. }));
        receiver.release();
    };
    let (first, ()) = tokio::join!(t.perform(&notify), again);
    assert_eq!(first, Outcome::done());
    assert_eq!(receiver.received().len(), 1);
}

// Fault F3
/// The lost delivery counts, so a message that kills its workers is detected. The next run must not find the row
/// postponed.
#[tokio::test]
async fn message_of_dead_worker_follows_its_lease() {
    let (receiver, t) = with_receiver().await;
    let t = Arc::new(t);
    receiver.hold();
    let notify = offer_to_deliver(&t).await;
    let dying = tokio::spawn({
        let t = t.clone();
        async move { t.perform(&notify).await }
    });
    eventually("it is on its way", || async { receiver.received().len() == 1 }).await;
    dying.abort();
    receiver.release();
    t.outlive_leases().await;
    let again = notify_job(&t).await;
    assert_eq!(again.delivery.lost, 1);
    assert_eq!(t.perform(&again).await, Outcome::done());
    assert_eq!(receiver.received().len(), 2);
}

/// Returns leased jobs for messages to customers over this channel, which are due now.
async fn due_messages(t: &TestApp, channel: &str, count: i64) -> Vec<LeasedJob> {
    let ids: Vec<i64> = sqlx::query_scalar(
        "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
         SELECT 'ORD-1', 'ORDER_CANCELLED', $1, n::text, '{}', dispatchq_now(), dispatchq_now() + interval '1 day',
                dispatchq_now() FROM generate_series(1, $2) n RETURNING id",
    )
    .bind(channel)
    .bind(count)
    .fetch_all(&t.app.core.db)
    .await
    .unwrap();
    let jobs: Vec<_> =
        ids.iter().map(|n| NewJob::now(&SendNotification { subject: id("ORD-1").into(), outbox_id: *n })).collect();
    t.app.core.store.enqueue(&jobs).await.unwrap();
    let mut leased = Vec::new();
    while leased.len() < jobs.len() {
        leased.extend(t.take().await);
    }
    leased
}

// Fault F7
#[tokio::test]
async fn hanging_channel_leaves_room_for_others() {
    const BACKLOG: usize = 300;
    let (sick, well) = (Receiver::start().await, Receiver::start().await);
    let t = Arc::new(
        TestApp::on_real_time(|config| {
            config.channels.insert("sick".to_owned(), ChannelConfig::unsigned_webhook(sick.url("/")));
            config.channels.insert("well".to_owned(), ChannelConfig::unsigned_webhook(well.url("/")));
        })
        .await,
    );
    sick.hold();
    sick.fail(StatusCode::SERVICE_UNAVAILABLE, 16);
    let mut running = JoinSet::new();
    for leased in due_messages(&t, "sick", i64::try_from(BACKLOG).unwrap()).await {
        let t = t.clone();
        running.spawn(async move { t.perform(&leased).await });
    }
    // Half of the worker's concurrency hangs. Each of the other messages was tried once and postponed.
    let mut parked = 0;
    while parked < BACKLOG - 16 {
        let outcome = running.join_next().await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Snooze { .. }), "{outcome:?}");
        parked += 1;
    }
    eventually("sixteen hang", || async { sick.received().len() == 16 }).await;
    assert_eq!(t.count("SELECT count(*) FROM outbox WHERE attempts = 1").await, 16);
    let unmoved = "SELECT count(*) FROM outbox WHERE next_attempt_at = created_at";
    assert_eq!(t.count(unmoved).await, 0, "the rows say when they come back, so the reconciler leaves them alone");

    for leased in due_messages(&t, "well", 50).await {
        assert_eq!(t.perform(&leased).await, Outcome::done());
    }
    assert_eq!(well.received().len(), 50);
    assert_eq!(running.len(), 16, "the sick channel hangs on");

    // The channel fails. From then on one message at a time tries it, and the others return at least 50 ms apart.
    sick.release();
    while running.join_next().await.is_some() {}
    sick.hold();
    for leased in due_messages_again(&t, 200).await {
        let t = t.clone();
        running.spawn(async move { t.perform(&leased).await });
    }
    while running.len() > 1 {
        running.join_next().await.unwrap().unwrap();
    }
    let per_second: Vec<i64> = sqlx::query_scalar(
        "SELECT count(*) FROM outbox WHERE channel = 'sick' AND dedupe_key LIKE 'again%' AND attempts = 0
         GROUP BY date_trunc('second', next_attempt_at)",
    )
    .fetch_all(&t.app.core.db)
    .await
    .unwrap();
    assert!(per_second.iter().all(|n| *n <= 25), "{per_second:?}");
    sick.release();
}

/// Returns leased jobs for more messages over the sick channel.
async fn due_messages_again(t: &TestApp, count: i64) -> Vec<LeasedJob> {
    let leased = due_messages(t, "more", count).await;
    t.sql("UPDATE outbox SET channel = 'sick', dedupe_key = 'again' || dedupe_key WHERE channel = 'more'").await;
    leased
}

// Fault F10
#[tokio::test]
async fn last_failing_channel_withdraws_the_offer() {
    let (a, b) = (Receiver::start().await, Receiver::start().await);
    let t = Arc::new(
        TestApp::with(|config| {
            config.channels.insert("a".to_owned(), ChannelConfig::unsigned_webhook(a.url("/")));
            config.channels.insert("b".to_owned(), ChannelConfig::unsigned_webhook(b.url("/")));
            config.notifications.driver = vec!["a".to_owned(), "b".to_owned()];
        })
        .await,
    );
    for receiver in [&a, &b] {
        receiver.fail(StatusCode::GONE, 1);
        receiver.hold();
    }
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let dispatch = t.take().await.remove(0);
    let outcome = t.perform(&dispatch).await;
    t.settle(&dispatch, outcome).await;
    let both: Vec<_> = t.take().await.into_iter().filter(|job| job.delivery.id.kind() == "notify").collect();
    assert_eq!(both.len(), 2);
    let mut running = JoinSet::new();
    for leased in both {
        let t = t.clone();
        running.spawn(async move { t.perform(&leased).await });
    }
    eventually("both were asked", || async { a.received().len() + b.received().len() == 2 }).await;

    // The lock blocks both writes until both workers have their answers and have read the rows.
    let mut other = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE outbox IN SHARE MODE").execute(&mut *other).await.unwrap();
    a.release();
    b.release();
    eventually("both wait to write", || async {
        t.count("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox'::regclass").await == 2
    })
    .await;
    other.commit().await.unwrap();
    while let Some(outcome) = running.join_next().await {
        assert!(matches!(outcome.unwrap(), Outcome::Done { .. }));
    }
    assert_eq!(t.offers("ORD-1").await, [("D1".to_owned(), OfferState::Withdrawn)]);
}

// Fault S15
#[tokio::test]
async fn webhook_is_signed_with_both_secrets() {
    let (new, old) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    let receiver = Receiver::start().await;
    let t = TestApp::on_real_time(|config| {
        receiver.configure(config);
        config.channels.insert(
            "hook".to_owned(),
            ChannelConfig::Webhook(WebhookConfig {
                url: Some(receiver.url("/hook")),
                secret: Some(new.to_owned()),
                secret_previous: Some(old.to_owned()),
                ..WebhookConfig::default()
            }),
        );
    })
    .await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let [message] = receiver.received().try_into().expect("one message");
    for secret in [new, old] {
        Webhook::new(secret).unwrap().verify(&message.bytes, &message.headers).unwrap();
    }
    let shown = format!("{:?} {:?}", t.app.config.without_secrets().channels, t.app.notify.channels);
    assert!(!shown.contains("C2FVsBQIhrscChl") && !shown.contains("MfKQ9r8GKYqr"), "{shown}");
}
