//! Each output of an order has exactly its contents: for HTTP and SQL, own drivers and partners, before and after the
//! accept.

use model::{messages::ProducerEvent, order::OrderStep};
use serde_json::{Value, json};

use super::{accept, full_ride};
use accounts::api_keys::AccountRole;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    recovery::reconciler,
};
use settings::{Config, ProducerConfig};
use test_support::{
    Api, Receiver, TestApp, by,
    partnership::{Partnership, SERVICE, partner, silent},
    secs,
};

const MARKS: [&str; 7] =
    ["PICKUP-TEXT", "DROPOFF-TEXT", "NOTES-TEXT", "META-TEXT", "CONTACT-TEXT", "+628123456789", "ana@example.com"];

/// Returns the marks of contents that the value has.
fn marks_in(value: &Value) -> Vec<&'static str> {
    let text = value.to_string();
    MARKS.into_iter().filter(|mark| text.contains(mark)).collect()
}

const PLACES: [&str; 2] = ["PICKUP-TEXT", "DROPOFF-TEXT"];
const IN_EVENTS: [&str; 3] = ["PICKUP-TEXT", "DROPOFF-TEXT", "META-TEXT"];
const IN_OFFERS: [&str; 3] = ["PICKUP-TEXT", "DROPOFF-TEXT", "NOTES-TEXT"];
const IN_ORDERS: [&str; 4] = ["PICKUP-TEXT", "DROPOFF-TEXT", "NOTES-TEXT", "META-TEXT"];

/// Subscribes the producer of tests to all steps.
pub(super) fn subscribe(config: &mut Config, receiver: &Receiver) {
    let subscription = ProducerConfig {
        url: Some(receiver.url("/shop")),
        secret: Some("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3".to_owned()),
        events: OrderStep::ALL.into_iter().map(ProducerEvent::Step).collect(),
        allow_private: true,
        ..ProducerConfig::default()
    };
    config.producers.insert("test".to_owned(), subscription);
}

/// Creates an order over HTTP or in SQL.
async fn create(t: &TestApp, api: &Api, order: &str, service_type: &str, in_sql: bool) {
    let mut new = full_ride(order);
    new["service_type"] = json!(service_type);
    if !in_sql {
        let created = api.post("/api/v1/orders", &t.key(AccountRole::Producer).await, new).await;
        assert_eq!(created.status, 201, "{created:?}");
        return;
    }
    sqlx::query("SELECT dispatchq_create_order($1, $2, -6.2088, 106.8456, owner => 'test', details => $3)")
        .bind(order)
        .bind(service_type)
        .bind(new)
        .execute(&t.app.core.db)
        .await
        .unwrap();
    reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap();
}

/// Asserts what the roles that read orders get. No role gets the contact.
async fn assert_read_by_staff(t: &TestApp, api: &Api, order: &str) {
    for role in [
        AccountRole::Producer,
        AccountRole::Viewer,
        AccountRole::Dispatcher,
        AccountRole::Support,
        AccountRole::Operator,
        AccountRole::Admin,
    ] {
        let key = t.key(role).await;
        for path in [format!("orders/{order}"), "orders".to_owned(), format!("orders?q={order}")] {
            let answer = api.get(&format!("/api/v1/{path}"), &key).await;
            assert_eq!(marks_in(&answer.body), IN_ORDERS, "{role:?} reads {path}");
        }
        let timeline = api.get(&format!("/api/v1/orders/{order}/timeline"), &key).await;
        assert_eq!((timeline.status, marks_in(&timeline.body)), (200, vec![]), "{role:?}");
        let events = api.get("/api/v1/events?limit=1000", &key).await;
        let expected = if role == AccountRole::Viewer { &[][..] } else { &IN_EVENTS };
        assert_eq!(marks_in(&events.body), expected, "{role:?} reads the events");
        let explained = api.get(&format!("/api/v1/orders/{order}/explain"), &key).await;
        let expected = if role == AccountRole::Producer { &[][..] } else { &IN_ORDERS };
        assert_eq!(marks_in(&explained.body), expected, "{role:?} reads the explanation");
    }
    let contact = api.get(&format!("/api/v1/orders/{order}/contact"), &t.key(AccountRole::Support).await).await;
    assert_eq!(marks_in(&contact.body), ["CONTACT-TEXT", "+628123456789", "ana@example.com"]);
}

#[tokio::test]
async fn outputs_of_own_fleet_have_their_contents() {
    for in_sql in [false, true] {
        let receiver = Receiver::start().await;
        let t = TestApp::with(|config| subscribe(config, &receiver)).await;
        let api = Api::start(&t.app).await;
        t.drivers(&[("D1", 100.0)]).await;
        create(&t, &api, "ORD-1", "RIDE", in_sql).await;
        t.run_for(secs(5)).await;
        let driver = t.driver_key("D1").await;
        let other = t.driver_key("D2").await;
        assert_read_by_staff(&t, &api, "ORD-1").await;
        assert_eq!(marks_in(&api.get("/api/v1/drivers/D1/offers", &driver).await.body), IN_OFFERS);
        assert_eq!(api.get("/api/v1/orders/ORD-1", &driver).await.status, 404);

        assert_eq!(marks_in(&accept(&t, &api, "ORD-1").await.body), MARKS);
        assert_eq!(marks_in(&api.get("/api/v1/orders/ORD-1", &driver).await.body), MARKS);
        assert_eq!(api.get("/api/v1/orders/ORD-1", &other).await.status, 404);
        assert_read_by_staff(&t, &api, "ORD-1").await;
        t.run_for(secs(5)).await;
        let webhooks = receiver.received();
        assert!(webhooks.len() >= 3, "{webhooks:?}");
        for webhook in webhooks {
            assert_eq!(marks_in(&webhook.body), IN_EVENTS, "{}", webhook.body);
            let data = &webhook.body["data"];
            assert_eq!(data["pickup"], json!({ "address": "PICKUP-TEXT 1" }));
            assert_eq!((&data["metadata"], &data["has_contents"]), (&json!({ "crm_id": "META-TEXT" }), &Value::Null));
        }
        let stored = t.texts("SELECT payload::text FROM outbox").await.join("\n");
        assert_eq!(marks_in(&json!(stored)), [""; 0], "messages have no contents");
        t.assert_sound().await;
    }
}

#[tokio::test]
async fn events_of_plain_orders_have_no_contents() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| subscribe(config, &receiver)).await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, test_support::ride_with_id("ORD-1")).await.status, 201);
    t.run_for(secs(5)).await;
    let page = api.get("/api/v1/events", &shop).await.body;
    for data in [&receiver.received()[0].body["data"], &page["events"][0]["data"]] {
        assert!(
            ["pickup", "dropoff", "metadata", "changed", "has_contents"].iter().all(|name| data.get(*name).is_none()),
            "{data}"
        );
    }
}

/// Partner with the call for changed contents.
async fn with_details() -> Partnership {
    Partnership::with(silent(), |config| partner(config).details = true).await
}

async fn patch(p: &Partnership, order: &str, body: Value) {
    let key = p.key(AccountRole::Producer).await;
    let answer =
        p.api.send(reqwest::Method::PATCH, &format!("/api/v1/orders/{order}"), &key, "", body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn partner_gets_places_first_and_contact_after_job_id() {
    for in_sql in [false, true] {
        let p = with_details().await;
        create(&p, &p.api, "ORD-1", SERVICE, in_sql).await;
        p.run_due().await;
        let id = p.booking_id("ORD-1", 1).await;
        assert_eq!(marks_in(&p.at_partner(&id).await["details"]), PLACES);
        p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
        p.run_due().await;
        let shown = p.at_partner(&id).await;
        let with_contact = ["PICKUP-TEXT", "DROPOFF-TEXT", "CONTACT-TEXT", "+628123456789", "ana@example.com"];
        assert_eq!(marks_in(&shown["details"]), with_contact, "{shown}");
        assert_eq!(p.sim.read_report().counters.details, 1);
        p.assert_sound().await;
    }
}

#[tokio::test]
async fn partner_without_the_call_gets_no_contact() {
    let p = Partnership::start(silent()).await;
    create(&p, &p.api, "ORD-1", SERVICE, false).await;
    p.run_due().await;
    let id = p.booking_id("ORD-1", 1).await;
    p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    p.run_due().await;
    assert_eq!(marks_in(&p.at_partner(&id).await["details"]), PLACES);
    patch(&p, "ORD-1", json!({ "dropoff": { "address": "MOVED-TEXT" } })).await;
    p.run_due().await;
    assert_eq!(p.sim.read_report().counters.details, 0);
    let alerts = p.texts("SELECT payload->>'reason' FROM alerts").await;
    assert_eq!(alerts, ["the contents changed, and bbd cannot get them: call the partner"]);
    p.assert_sound().await;
}

#[tokio::test]
async fn partner_gets_changed_places() {
    let p = with_details().await;
    create(&p, &p.api, "ORD-1", SERVICE, false).await;
    p.run_due().await;
    let id = p.booking_id("ORD-1", 1).await;
    patch(
        &p,
        "ORD-1",
        json!({ "dropoff": { "address": "MOVED-TEXT" }, "pickup": { "latitude": 1.0, "longitude": 2.0 } }),
    )
    .await;
    p.run_due().await;
    let details = p.at_partner(&id).await["details"].clone();
    assert_eq!((&details["dropoff"]["address"], &details["contact"]), (&json!("MOVED-TEXT"), &Value::Null));
    assert_eq!(details["pickup"], json!({ "latitude": 1.0, "longitude": 2.0, "address": "PICKUP-TEXT 1" }));
    patch(&p, "ORD-1", json!({ "metadata": { "crm_id": "8" }, "notes": null })).await;
    p.run_due().await;
    assert_eq!(p.sim.read_report().counters.details, 1, "the partner gets neither");
    p.assert_sound().await;
}

/// The partner books, but its answer is lost. A repeated request with other places would be refused.
#[tokio::test]
async fn change_during_open_booking_follows_its_answer() {
    let p = with_details().await;
    create(&p, &p.api, "ORD-1", SERVICE, false).await;
    p.lose_answers("1".parse().unwrap());
    p.run_due().await;
    assert_eq!(p.booking("ORD-1", 1).await.booking_id, None);
    patch(&p, "ORD-1", json!({ "dropoff": { "address": "MOVED-TEXT" } })).await;
    p.lose_answers("0".parse().unwrap());
    p.run_for(secs(60)).await;
    let id = p.booking_id("ORD-1", 1).await;
    assert_eq!(p.at_partner(&id).await["details"]["dropoff"]["address"], "MOVED-TEXT");
    let counters = p.sim.read_report().counters;
    assert_eq!((counters.bookings, counters.details), (1, 1));
    p.assert_sound().await;
}

#[tokio::test]
async fn webhook_retried_after_erasure_is_empty() {
    for by_retention in [true, false] {
        let receiver = Receiver::start().await;
        let t = TestApp::with(|config| {
            subscribe(config, &receiver);
            config.retention.contact = secs(3600);
        })
        .await;
        let api = Api::start(&t.app).await;
        create(&t, &api, "ORD-1", "RIDE", false).await;
        t.cancel("ORD-1").await.unwrap();
        receiver.fail(axum::http::StatusCode::GONE, 2);
        t.run_due().await;
        let first = receiver.received();
        assert!(first.iter().all(|webhook| marks_in(&webhook.body) == IN_EVENTS), "{first:?}");
        t.advance(secs(3700)).await;
        if by_retention {
            assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().details, 1);
        } else {
            let now = db::database_now(&t.app.core.db).await.unwrap();
            let erasure = ErasureRecord::new(ErasureSubject::Order, "ORD-1", "a request", &by("cli:eve"), now);
            let done = privacy::erase_subject(&t.app.core, &erasure).await.unwrap();
            assert_eq!(done, ErasureOutcome::Done { orders: 1 });
        }
        let operator = t.key(AccountRole::Operator).await;
        for id in t.texts("SELECT id::text FROM outbox WHERE state = 'dead'").await {
            let path = format!("/api/v1/admin/outbox/{id}/replay");
            assert_eq!(api.post(&path, &operator, json!({ "reason": "the shop is back" })).await.status, 200);
        }
        t.run_due().await;
        let again = receiver.received().split_off(first.len());
        assert_eq!(again.len(), 2);
        for webhook in again {
            assert_eq!(marks_in(&webhook.body), [""; 0], "{}", webhook.body);
            if by_retention {
                let data = &webhook.body["data"];
                let empty = (&json!({ "address": null }), &Value::Null, &json!({}));
                assert_eq!((&data["pickup"], &data["dropoff"], &data["metadata"]), empty, "{data}");
            }
        }
    }
}
