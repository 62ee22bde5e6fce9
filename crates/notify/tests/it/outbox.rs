//! Messages are delivered once or given up.

use std::sync::Arc;

use axum::http::StatusCode;
use jobs::{EscalateAlert, SendNotification};
use serde_json::json;

use accounts::api_keys::AccountRole;
use foundation::system::{Rng, SeededRng};
use model::{
    decide::actions,
    messages::{DISPATCH_FAILED, ESCALATION, OFFER},
};
use queue::{JobId, NewJob, retry::add_jitter, store::JobState};
use settings::ChannelConfig;
use test_support::{Receiver, TestApp, by, id, millis, secs, update_order};

async fn with_receiver() -> (Receiver, TestApp) {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    (receiver, t)
}

/// Creates an order whose first offer exists and whose message is not sent yet.
async fn offer_unsent(t: &TestApp) {
    t.order("ORD-1").await;
    let dispatch = t.take().await.remove(0);
    let outcome = t.perform(&dispatch).await;
    t.settle(&dispatch, outcome).await;
}

#[tokio::test]
async fn an_offer_reaches_its_driver_by_webhook() {
    let (receiver, t) = with_receiver().await;
    t.drivers(&[("D1", 1200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    let [message] = receiver.received().try_into().expect("one message");
    assert_eq!(message.id, message.body["id"]);
    assert_eq!(message.body["type"], OFFER);
    let told = json!({
        "event": "offer.created", "offer_id": offer.id, "order_id": "ORD-1", "driver_id": "D1", "service_type": "RIDE",
        "attempt_no": 1, "distance_m": 1200.0, "expires_at": offer.expires_at,
    });
    assert_eq!(message.body["data"], told);
    assert_eq!(t.messages("ORD-1").await, [(OFFER.to_owned(), "hook".to_owned(), "delivered".to_owned())]);
    t.assert_sound().await;
}

#[tokio::test]
async fn failing_receiver_is_retried_with_growing_pauses() {
    let (receiver, t) = with_receiver().await;
    receiver.fail(StatusCode::INTERNAL_SERVER_ERROR, 3);
    // A redirect does not count as a delivery, because addresses must be configured.
    receiver.fail(StatusCode::FOUND, 1);
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_for(secs(60)).await;

    let received = receiver.received();
    assert_eq!(received.iter().map(|m| m.answer).collect::<Vec<_>>(), [500, 500, 500, 302, 204]);
    assert!(received.iter().all(|m| m.id == received[0].id && m.body == received[0].body), "{received:?}");
    let waits: Vec<f64> = sqlx::query_scalar(
        "SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY attempt_no))::float8 FROM outbox_attempts
         ORDER BY attempt_no OFFSET 1",
    )
    .fetch_all(&t.app.core.db)
    .await
    .unwrap();
    for (wait, expected) in waits.iter().zip([1.0, 2.0, 4.0, 8.0]) {
        assert!((0.699..=1.301).contains(&(wait / expected)), "{waits:?}");
    }
    let errors = t.texts("SELECT coalesce(error, 'none') FROM outbox_attempts ORDER BY attempt_no").await;
    assert_eq!((errors.len(), errors[0].as_str(), errors[4].as_str()), (5, "the receiver answered 500", "none"));
    t.assert_sound().await;
}

#[tokio::test]
async fn deliveries_follow_the_backoff_exactly() {
    let (receiver, mut t) = with_receiver().await;
    receiver.fail(StatusCode::INTERNAL_SERVER_ERROR, 3);
    t.app = t.app.with_rng(Arc::new(SeededRng::new(7)));
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_for(secs(60)).await;
    let waits: Vec<i64> = sqlx::query_scalar(
        "SELECT (1000 * extract(epoch FROM at - lag(at) OVER (ORDER BY attempt_no)))::bigint FROM outbox_attempts
         ORDER BY attempt_no OFFSET 1",
    )
    .fetch_all(&t.app.core.db)
    .await
    .unwrap();
    let same = SeededRng::new(7);
    let expected = [1, 2, 4].map(|pause| add_jitter(secs(pause), 0.3, same.next_unit()).as_millis());
    assert_eq!(waits, expected.map(|ms| i64::try_from(ms).unwrap()));
}

#[tokio::test]
async fn an_offer_that_expired_is_not_sent() {
    let (receiver, t) = with_receiver().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    offer_unsent(&t).await;
    // No worker ran until the offer had expired.
    t.advance(secs(120)).await;
    t.run_due().await;
    let told: Vec<_> = receiver.received().iter().map(|m| m.body["data"]["driver_id"].clone()).collect();
    assert_eq!(told, ["D2"]);
    let states: Vec<_> = t.messages("ORD-1").await.into_iter().map(|(_, _, state)| state).collect();
    assert_eq!(states, ["expired", "delivered"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn an_offer_that_was_taken_back_is_not_sent() {
    let (receiver, t) = with_receiver().await;
    t.drivers(&[("D1", 100.0)]).await;
    offer_unsent(&t).await;
    update_order(&t.app.orders, &"ORD-1".parse().unwrap(), |s| actions::cancel_order(s, &by("operator:test"), None))
        .await
        .unwrap();
    t.run_due().await;
    assert_eq!(receiver.received().len(), 0);
    let states: Vec<_> = t.messages("ORD-1").await.into_iter().map(|(_, _, state)| state).collect();
    assert_eq!(states, ["expired"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn an_offer_nobody_receives_expires_with_its_attempt() {
    let (receiver, t) = with_receiver().await;
    receiver.fail(StatusCode::SERVICE_UNAVAILABLE, 1000);
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_for(secs(1801)).await;
    let offers: Vec<_> = t.messages("ORD-1").await.into_iter().filter(|(kind, ..)| kind == OFFER).collect();
    assert!(!offers.is_empty() && offers.iter().all(|(_, _, state)| state == "expired"), "{offers:?}");
    assert_eq!(t.timers().await.len(), 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn undeliverable_alert_is_dead_after_a_day() {
    let (receiver, t) = with_receiver().await;
    receiver.fail(StatusCode::BAD_GATEWAY, 10_000);
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1800 + 23 * 3600)).await;
    let state = "SELECT state FROM outbox WHERE kind = 'MANUAL_REFUND_REQUIRED'";
    assert_eq!(t.texts(state).await, ["pending"]);
    t.run_for(secs(3600)).await;
    assert_eq!(t.texts(state).await, ["dead"]);
    assert!(receiver.received().len() > 100);
    let dead = t.app.core.store.list_jobs(jobs::queues::NOTIFY, JobState::Dead, 0, 10).await.unwrap();
    assert!(dead[0].error.as_ref().unwrap().contains("the receiver answered 502"), "{dead:?}");
    t.assert_sound().await;
}

#[tokio::test]
async fn message_waits_for_its_unconfigured_channel() {
    let receiver = Receiver::start().await;
    let mut t = TestApp::start().await;
    t.user("anna", AccountRole::Dispatcher, "hook").await;
    t.order_of("ORD-1", "RENT", "UNPAID").await;
    t.run_due().await;
    let error = t.texts("SELECT last_error FROM outbox").await.remove(0);
    assert!(error.contains("no channel 'hook'") && error.contains("[channels]"), "{error}");

    t.app = t.reconfigured(|config| receiver.configure(config));
    t.run_for(secs(60)).await;
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(t.messages("ORD-1").await, [(DISPATCH_FAILED.to_owned(), "hook".to_owned(), "delivered".to_owned())]);
    t.assert_sound().await;
}

#[tokio::test]
async fn unreachable_channel_error_hides_its_url() {
    let t = TestApp::with(|config| {
        // No server listens on this port.
        config.channels.insert("hook".to_owned(), ChannelConfig::unsigned_webhook("http://127.0.0.1:1/s3cret"));
        config.notifications.support = vec!["hook".to_owned()];
    })
    .await;
    t.order_of("ORD-1", "RIDE", "SETTLEMENT").await;
    t.run_for(secs(1810)).await;
    let errors = t.texts("SELECT DISTINCT error FROM outbox_attempts WHERE error IS NOT NULL").await;
    assert!(!errors.is_empty() && errors.iter().all(|e| !e.contains("s3cret")), "{errors:?}");
    t.assert_sound().await;
}

#[tokio::test]
async fn a_doubled_job_sends_nothing_twice() {
    let (receiver, t) = with_receiver().await;
    t.drivers(&[("D1", 100.0)]).await;
    offer_unsent(&t).await;
    let notify = t.take().await.remove(0);
    // Two workers run the job concurrently, and one of them claims the try.
    let _ = tokio::join!(t.perform(&notify), t.perform(&notify));
    let sent = receiver.received().len();
    assert_eq!((sent, t.count("SELECT count(*) FROM outbox_attempts").await), (1, 1));
    let outcome = t.perform(&notify).await;
    t.settle(&notify, outcome).await;
    let id = JobId::parse(notify.delivery.id.as_str()).unwrap();
    let again = NewJob { queue: jobs::queues::NOTIFY, id, delay: millis(0), payload: None, slots: None };
    t.app.core.store.enqueue(&[again]).await.unwrap();
    t.run_due().await;
    assert_eq!(receiver.received().len(), sent);
    t.assert_sound().await;
}

#[tokio::test]
async fn unknown_message_kinds_are_delivered_unchanged() {
    let (receiver, t) = with_receiver().await;
    let payloads = [
        // An unknown kind, a known kind with different fields, and a known kind with an extra field.
        ("ORDER_PARKED", json!({ "order_id": "ORD-1", "until": "tomorrow" })),
        ("ORDER_CANCELLED", json!({ "order_id": "ORD-1", "status": "PARKED" })),
        (
            "order.job_id_retrieved",
            json!({
                "order_id": "ORD-1", "job_id": "J-1", "attempts": 1, "duration": "1s", "method": "callback", "by": "newer",
            }),
        ),
    ];
    for (n, (kind, payload)) in (1_i64..).zip(&payloads) {
        sqlx::query(
            "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
             SELECT 'ORD-1', $1, 'hook', '', $2, now, now + interval '1 day', now FROM dispatchq_now() now",
        )
        .bind(kind)
        .bind(payload)
        .execute(&t.app.core.db)
        .await
        .unwrap();
        let send = SendNotification { subject: id("ORD-1").into(), outbox_id: n };
        t.app.core.store.enqueue(&[NewJob::now(&send)]).await.unwrap();
        t.run_due().await;
    }
    let received: Vec<_> =
        receiver.received().into_iter().map(|m| (m.body["type"].clone(), m.body["data"].clone())).collect();
    assert_eq!(received, payloads.map(|(kind, payload)| (json!(kind), payload)));

    t.sql(
        "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, next_escalation_at)
         SELECT 'ORD-1', 'ORDER_PARKED', '', '{\"why\": \"newer\"}', now - interval '1 day', now
         FROM dispatchq_now() now",
    )
    .await;
    let escalate = EscalateAlert { order: id("ORD-1"), alert_id: 1 };
    t.app.core.store.enqueue(&[NewJob::now(&escalate)]).await.unwrap();
    t.run_due().await;
    let told = receiver.received().pop().unwrap().body;
    assert_eq!(told["type"], ESCALATION);
    assert_eq!(
        (&told["data"]["alert_kind"], &told["data"]["alert"]),
        (&json!("ORDER_PARKED"), &json!({ "why": "newer" }))
    );
}
