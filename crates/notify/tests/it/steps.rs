//! Producers get each step they subscribe to by signed webhook.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use axum::http::StatusCode;
use model::{messages::ProducerEvent, order::OrderStep};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use accounts::api_keys::AccountRole;
use foundation::outbound;
use maintenance::recovery::reconciler;
use model::decide::money;
use queue::Outcome;
use settings::{Config, ProducerConfig};
use test_support::{Api, Receiver, TestApp, by, eventually, secs};

const KEY: &[u8; 24] = b"0123456789abcdef01234567";
/// The key in the notation of Standard Webhooks.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

/// Subscribes the producer to these steps at this address.
fn subscribe(config: &mut Config, producer: &str, url: String, steps: &[OrderStep]) {
    let subscription = ProducerConfig {
        url: Some(url),
        secret: Some(SECRET.to_owned()),
        events: steps.iter().copied().map(ProducerEvent::Step).collect(),
        allow_private: true,
        ..ProducerConfig::default()
    };
    config.producers.insert(producer.to_owned(), subscription);
}

/// Starts a receiver for the producer `test`, which owns the orders of tests.
async fn with_subscription(steps: &[OrderStep]) -> (Receiver, TestApp) {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| subscribe(config, "test", receiver.url("/shop"), steps)).await;
    (receiver, t)
}

/// Returns the types of the accepted events about an order, sorted by `seq`.
fn told(receiver: &Receiver, order: &str) -> Vec<String> {
    let mut taken = receiver.received();
    taken.retain(|message| message.answer == 204 && message.body["data"]["order_id"] == order);
    taken.sort_by_key(|message| message.body["data"]["seq"].as_i64());
    taken.iter().map(|message| message.body["type"].as_str().unwrap().to_owned()).collect()
}

/// Computes the signature of a message by the definition of HMAC, with hashes from Postgres.
async fn sign(t: &TestApp, id: &str, timestamp: &str, body: &[u8]) -> String {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(KEY).for_each(|(byte, key)| *byte ^= key);
        block.to_vec()
    };
    let signed = [pad(0x36).as_slice(), format!("{id}.{timestamp}.").as_bytes(), body].concat();
    sqlx::query_scalar("SELECT 'v1,' || encode(sha256($2 || sha256($1)), 'base64')")
        .bind(signed)
        .bind(pad(0x5c))
        .fetch_one(&t.app.core.db)
        .await
        .unwrap()
}

#[tokio::test]
async fn webhooks_and_stream_report_the_same_steps() {
    let (receiver, t) = with_subscription(&OrderStep::ALL).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("DONE").await;
    t.run_due().await;
    t.accept_offer("DONE").await;
    t.carry_out("DONE", "D1").await;
    t.order_of("BACK", "RIDE", "PAID").await;
    t.cancel("BACK").await.unwrap();
    t.act("BACK", |s| money::start_refund(s, &by("support:test"), None)).await.unwrap();
    t.act("BACK", |s| money::finish_refund(s, &by("support:test"), None)).await.unwrap();
    t.order_of("HELD", "RIDE", "DISPUTED").await;
    t.run_for(secs(1800)).await;

    let trip = ["order.created", "order.offered", "order.assigned", "order.picked_up", "order.completed"];
    assert_eq!(told(&receiver, "DONE"), trip);
    assert_eq!(told(&receiver, "BACK"), ["order.created", "order.cancelled", "order.refunded"]);
    let mut held = told(&receiver, "HELD");
    held.retain(|step| step != "order.offered");
    assert_eq!(held, ["order.created", "order.held"]);

    let received = receiver.received();
    let ids: BTreeSet<_> = received.iter().map(|message| &message.id).collect();
    assert_eq!(ids.len(), received.len());
    for message in &received {
        let header = |name: &str| message.headers[name].to_str().unwrap();
        let signature = sign(&t, &message.id, header("webhook-timestamp"), &message.bytes).await;
        assert_eq!(header("webhook-signature"), signature);
        assert_eq!(message.body["id"], message.id.as_str());
    }
    let assigned = received.iter().find(|message| message.body["type"] == "order.assigned").unwrap();
    let seq = &assigned.body["data"]["seq"];
    assert_eq!(
        assigned.body,
        json!({
            "id": assigned.id, "type": "order.assigned", "timestamp": "2030-01-01T08:00:00Z", "version": 1,
            "data": {
                "seq": seq, "order_id": "DONE", "status": "DRIVER_ASSIGNED", "previous_status": "DISPATCHING",
                "reason": "OFFER_ACCEPTED", "attempt_no": 1, "driver_id": "D1",
            },
        })
    );

    let api = Api::start(&t.app).await;
    let page = api.get("/api/v1/events?limit=1000", &t.key(AccountRole::Producer).await).await.body;
    let in_order = |mut events: Vec<Value>| {
        events.sort_by_key(|event| event["data"]["seq"].as_i64());
        events
    };
    let posted = received.into_iter().map(|message| {
        let mut event = message.body;
        event.as_object_mut().unwrap().remove("id");
        event
    });
    assert_eq!(in_order(posted.collect()), in_order(page["events"].as_array().unwrap().clone()));
    t.assert_sound().await;
}

#[tokio::test]
async fn producers_get_only_subscribed_steps_of_own_orders() {
    let (receiver, other) = (Receiver::start().await, Receiver::start().await);
    let t = TestApp::with(|config| {
        subscribe(config, "test", receiver.url("/"), &[OrderStep::Cancelled]);
        subscribe(config, "other", other.url("/"), &OrderStep::ALL);
    })
    .await;
    t.order("ORD-1").await;
    t.cancel("ORD-1").await.unwrap();
    t.run_due().await;
    assert_eq!(told(&receiver, "ORD-1"), ["order.cancelled"]);
    assert_eq!(other.received(), []);
}

#[tokio::test]
async fn retried_step_arrives_late_with_its_number() {
    let (receiver, t) = with_subscription(&[OrderStep::Created, OrderStep::Offered]).await;
    t.drivers(&[("D1", 100.0)]).await;
    receiver.fail_until(StatusCode::SERVICE_UNAVAILABLE, "60");
    t.order("ORD-1").await;
    t.run_for(secs(90)).await;
    let received = receiver.received();
    let arrived: Vec<_> = received.iter().map(|m| (m.body["type"].as_str().unwrap(), m.answer)).collect();
    assert_eq!(arrived, [("order.created", 503), ("order.offered", 204), ("order.created", 204)]);
    assert_eq!(received[0].id, received[2].id);
    assert_eq!(received[0].bytes, received[2].bytes);
    assert_eq!(told(&receiver, "ORD-1"), ["order.created", "order.offered"]);
}

#[tokio::test]
async fn event_refused_by_its_producer_is_dead() {
    let (receiver, t) = with_subscription(&[OrderStep::Created]).await;
    receiver.fail(StatusCode::GONE, 1);
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(
        t.texts("SELECT kind || ' ' || channel || ' ' || state FROM outbox").await,
        ["order.created producer:test dead"]
    );
}

#[tokio::test]
async fn a_producer_that_hangs_holds_up_no_other() {
    let (sick, well) = (Receiver::start().await, Receiver::start().await);
    let t = TestApp::with(|config| {
        subscribe(config, "sick", sick.url("/"), &[OrderStep::Created]);
        subscribe(config, "well", well.url("/"), &[OrderStep::Created]);
    })
    .await;
    let api = Api::start(&t.app).await;
    let ride = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2088, "longitude": 106.8456 } });
    for producer in ["sick", "well"] {
        let key = t.key_named(producer, AccountRole::Producer, None).await;
        assert_eq!(api.post("/api/v1/orders", &key, ride.clone()).await.status, 201);
    }
    sick.hold();
    let t = Arc::new(t);
    let mut running = JoinSet::new();
    for leased in t.take().await.into_iter().filter(|leased| leased.delivery.queue == jobs::queues::NOTIFY) {
        let t = t.clone();
        running.spawn(async move { t.perform(&leased).await });
    }
    assert_eq!(running.len(), 2);
    assert_eq!(running.join_next().await.unwrap().unwrap(), Outcome::done());
    eventually("the event lies at the one that hangs", || async { sick.received().len() == 1 }).await;
    let states = t.texts("SELECT channel || ' ' || state FROM outbox ORDER BY 1").await;
    assert_eq!(states, ["producer:sick pending", "producer:well delivered"]);
    assert_eq!(well.received().len(), 1);
    sick.release();
}

#[tokio::test]
async fn sql_order_reports_creation_with_first_change() {
    let (receiver, t) = with_subscription(&[OrderStep::Created, OrderStep::Offered]).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.sql("SELECT dispatchq_create_order('SQL-1', 'RIDE', -6.2088, 106.8456, owner => 'test')").await;
    t.advance(secs(10)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    t.run_for(secs(60)).await;
    assert_eq!(told(&receiver, "SQL-1"), ["order.created", "order.offered"]);
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn scheduled_order_reports_its_schedule_and_start() {
    let steps = [OrderStep::Created, OrderStep::Scheduled, OrderStep::Offered];
    let (receiver, t) = with_subscription(&steps).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order_at("ORD-1", "2030-01-01T09:00:00Z".parse().unwrap()).await;
    let details = r#"{"pickup_at": "2030-01-01T09:00:00Z"}"#;
    let create = format!(
        "SELECT dispatchq_create_order('SQL-1', 'RIDE', -6.2088, 106.8456, owner => 'test', details => '{details}')"
    );
    t.sql(&create).await;
    t.run_for(secs(1)).await;
    assert_eq!(told(&receiver, "ORD-1"), ["order.created", "order.scheduled"]);
    t.advance(secs(10)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    t.run_for(secs(60)).await;
    assert_eq!(told(&receiver, "SQL-1"), ["order.created", "order.scheduled"], "not first at its start");
    t.run_for(secs(3000)).await;
    assert_eq!(told(&receiver, "ORD-1")[..3], ["order.created", "order.scheduled", "order.offered"]);
    assert_eq!(t.count("SELECT count(*) FROM order_feed WHERE kind = 'order.scheduled'").await, 2);
    t.assert_sound().await;
}

#[tokio::test]
async fn private_network_addresses_are_not_called() {
    for (address, is_public) in [
        ("8.8.8.8", true),
        ("2606:4700::1111", true),
        ("127.0.0.1", false),
        ("10.1.2.3", false),
        ("172.16.0.1", false),
        ("192.168.1.1", false),
        ("169.254.169.254", false),
        ("100.64.0.1", false),
        ("0.0.0.0", false),
        ("::1", false),
        ("::", false),
        ("fe80::1", false),
        ("fd00::1", false),
        ("::ffff:10.1.2.3", false),
        ("64:ff9b::a01:203", false),
        ("64:ff9b::808:808", true),
        ("2002:a01:203::1", false),
    ] {
        assert_eq!(outbound::is_public(address.parse::<IpAddr>().unwrap()), is_public, "{address}");
    }
    let receiver = Receiver::start().await;
    let client = outbound::build_public_client(secs(30)).unwrap();
    let error = client.post(receiver.url("/").replace("127.0.0.1", "localhost")).send().await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    assert_eq!(receiver.received(), []);
}
