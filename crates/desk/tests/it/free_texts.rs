//! An erasure removes every free text that the API accepted about a customer or a driver.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use reqwest::Method;
use serde_json::{Value, json};

use super::privacy::{erasure, tables_with};
use accounts::api_keys::AccountRole;
use desk::privacy::{self, ErasureOutcome, ErasureSubject};
use queue::{JobId, NewJob};
use test_support::{Answer, Api, PAYMENT_SECRET, PaymentSim, Receiver, TestApp, dead_letters::bury_due, secs};

/// Marker in each free text.
const MARK: &str = "MARK words";
const PHONE: &str = "+6281234567890";

/// Operations whose texts describe the installation, its staff or accounts at providers, not an order or a driver.
const ABOUT_NO_PERSON: [&str; 15] = [
    "/api/v1/admin/dispatcher/",
    "/api/v1/admin/queues/",
    "/api/v1/admin/workers/",
    "/api/v1/admin/dead/actions",
    "/api/v1/admin/cleanup",
    "/api/v1/admin/reconciliation",
    // The erasure record is kept as proof of the request.
    "/api/v1/admin/erasures",
    "/api/v1/admin/shards",
    "/api/v1/admin/users/",
    "/api/v1/admin/keys/",
    "/api/v1/webhook-endpoints",
    "/api/v1/bindings",
    "/api/v1/partners/",
    "/api/v1/provider-",
    // This operation gives advice and stores nothing.
    "/api/v1/dispatcher/availability-check",
];

/// Resolves a reference to its schema. For a choice between null and another schema, returns the other one.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = &document["components"]["schemas"][name.rsplit('/').next().unwrap()];
        return resolve(document, schema);
    }
    let choices = ["oneOf", "anyOf"].iter().find_map(|word| schema[word].as_array());
    match choices.and_then(|choices| choices.iter().find(|choice| choice["type"] != "null")) {
        Some(choice) => resolve(document, choice),
        None => schema,
    }
}

/// Returns whether people write this field in their own words. Ids are kept, because the history must remain provable.
fn is_free_text(name: &str, schema: &Value) -> bool {
    let is_id = (name.ends_with("_id") && name != "customer_id" && name != "user_id")
        || ["id", "reference", "type"].contains(&name);
    let types = schema["type"].as_array().map_or_else(|| vec![&schema["type"]], |types| types.iter().collect());
    let is_open = match schema["pattern"].as_str() {
        None => true,
        // The pattern limits characters, not words or numbers.
        Some(pattern) => pattern.starts_with("^[^") || pattern.contains("[ -~]"),
    };
    types.iter().any(|kind| **kind == "string")
        && schema["enum"].is_null()
        && schema["format"].is_null()
        && is_open
        && !is_id
}

/// Returns the names of the free texts in an operation's body. All are on the first level.
fn free_texts(document: &Value, operation: &Value) -> BTreeSet<String> {
    let Some(content) = operation["requestBody"]["content"].as_object() else { return BTreeSet::new() };
    let schemas = content.values().map(|content| resolve(document, &content["schema"]));
    let members = schemas.filter_map(|schema| schema["properties"].as_object()).flatten();
    let free = members.filter(|(name, schema)| is_free_text(name, resolve(document, schema)));
    free.map(|(name, _)| name.clone()).collect()
}

/// Callers who write the marker into every free text.
struct Writers {
    t: TestApp,
    api: Api,
    document: Value,
    root: String,
    receiver: Receiver,
    written: BTreeSet<String>,
}

impl Writers {
    async fn start(payments: &PaymentSim) -> Self {
        let receiver = Receiver::start().await;
        let t = TestApp::with(|config| {
            receiver.configure(config);
            config.payments.url = payments.url.clone();
            config.payments.callback_secret = PAYMENT_SECRET.to_owned();
            config.http.driver_page = true;
        })
        .await;
        let (api, root) = (Api::start(&t.app).await, t.key(AccountRole::Admin).await);
        let document = serde_json::from_str(&api::OPENAPI).unwrap();
        Self { t, api, document, root, receiver, written: BTreeSet::new() }
    }

    /// Returns the body with the marker in each free text that it does not set.
    fn mark(&mut self, method: &str, template: &str, mut body: Value) -> Value {
        let operation = &self.document["paths"][template][method];
        assert!(operation.is_object(), "no {method} {template}");
        for name in free_texts(&self.document, operation) {
            let body = body.as_object_mut().unwrap();
            body.entry(&name).or_insert_with(|| json!(MARK));
        }
        self.written.insert(format!("{method} {template}"));
        body
    }

    /// Sends a request with marked free texts and asserts that it succeeds.
    async fn write(&mut self, operation: &str, ids: &[&str], body: Value) -> Answer {
        let root = self.root.clone();
        self.write_as(&root, operation, ids, body).await
    }

    async fn write_as(&mut self, key: &str, operation: &str, ids: &[&str], body: Value) -> Answer {
        let (method, template) = operation.split_once(' ').unwrap();
        let body = self.mark(method, template, body);
        let mut path = template.to_owned();
        for id in ids {
            let (begin, end) = (path.find('{').unwrap(), path.find('}').unwrap());
            path.replace_range(begin..=end, id);
        }
        let method: Method = method.to_uppercase().parse().unwrap();
        let answer = self.api.send(method, &path, key, "", body.to_string()).await;
        assert!((200..300).contains(&answer.status), "{operation}: {answer:?}");
        answer
    }

    /// Like [`write`](Self::write), on ORD-1.
    async fn on_order(&mut self, verb: &str, body: Value) -> Answer {
        self.write(&format!("post /api/v1/orders/{{id}}/{verb}"), &["ORD-1"], body).await
    }

    /// Creates drivers, changes them, and creates their keys.
    async fn hire(&mut self) {
        for (id, latitude) in [("D1", -6.2088), ("D2", -6.2098), ("D3", -6.2108)] {
            let new = json!({ "id": id, "service_types": ["RIDE"], "latitude": latitude, "longitude": 106.8456, "phone": PHONE });
            self.write("post /api/v1/drivers", &[], new).await;
        }
        self.write("patch /api/v1/drivers/{id}", &["D1"], json!({ "phone": PHONE })).await;
        self.write("post /api/v1/drivers/{id}/disable", &["D3"], json!({})).await;
        self.write("post /api/v1/drivers/{id}/enable", &["D3"], json!({})).await;
        self.t.sql("UPDATE drivers SET available = true").await;
        let made = self.write("post /api/v1/admin/keys", &[], json!({ "role": "driver", "driver_id": "D1" })).await;
        self.t.advance(secs(90)).await;
        self.write("post /api/v1/admin/keys/rotate", &[], json!({})).await;
        self.write("post /api/v1/admin/keys/{id}/revoke", &[made.text("id")], json!({})).await;
    }

    /// Creates an order that every driver gets, with each kind of staff decision.
    async fn order(&mut self, payments: &PaymentSim) {
        let shop = self.t.key(AccountRole::Producer).await;
        let new = json!({
            "order_id": "ORD-1", "service_type": "RIDE", "payment_status": "PAID", "amount_minor": 150_000, "currency": "IDR",
            "pickup": { "latitude": -6.2088, "longitude": 106.8456 },
        });
        self.write_as(&shop, "post /api/v1/orders", &[], new).await;
        self.write("patch /api/v1/orders/{id}", &["ORD-1"], json!({})).await;
        // A job becomes dead twice. It is requeued the first time and discarded the second time.
        assert_eq!(bury_due(&self.t.app, MARK).await, 1);
        self.write("post /api/v1/admin/dead/{job_id}/requeue", &["dispatch:ORD-1:1"], json!({})).await;
        assert_eq!(bury_due(&self.t.app, MARK).await, 1);
        self.write("post /api/v1/admin/dead/{job_id}/discard", &["dispatch:ORD-1:1"], json!({})).await;

        self.on_order("hold", json!({})).await;
        self.on_order("take", json!({})).await;
        self.on_order("leave", json!({})).await;
        self.on_order("resume", json!({})).await;
        self.move_job().await;
        self.t.run_due().await;
        self.answer_offer("decline").await;
        self.t.run_due().await;
        let driver = self.answer_offer("accept").await;
        self.on_order("driver-cancel", json!({ "driver_id": driver })).await;
        self.on_order("hold", json!({})).await;
        self.on_order("redispatch", json!({})).await;
        self.on_order("assign", json!({ "driver_id": "D3" })).await;
        self.on_order("release", json!({})).await;
        self.t.run_due().await;
        // The refund alert is refused permanently.
        self.receiver.fail(StatusCode::GONE, 1);
        self.on_order("cancel", json!({})).await;
        self.t.run_due().await;
        self.on_order("refund", json!({ "action": "start" })).await;
        self.t.run_due().await;
        self.refuse_refund(payments).await;
        self.on_order("refund", json!({ "action": "done" })).await;
    }

    /// Reschedules and then cancels a job that the order does not need.
    async fn move_job(&mut self) {
        let id = "notify:ORD-1:999999";
        let job = NewJob {
            queue: jobs::queues::NOTIFY,
            id: JobId::parse(id).unwrap(),
            delay: secs(60),
            payload: None,
            slots: None,
        };
        self.t.app.core.store.enqueue(&[job]).await.unwrap();
        self.write("post /api/v1/admin/jobs/{job_id}/reschedule", &[id], json!({ "in_sec": 90 })).await;
        self.write("post /api/v1/admin/jobs/{job_id}/cancel", &[id], json!({})).await;
    }

    /// Answers the open offer as its driver and returns the driver.
    async fn answer_offer(&mut self, verb: &str) -> String {
        let offer = self.t.live_offer("ORD-1").await;
        self.on_order(verb, json!({ "driver_id": offer.driver_id, "offer_id": offer.id })).await;
        offer.driver_id.into_string()
    }

    async fn refuse_refund(&mut self, payments: &PaymentSim) {
        let refused = json!({ "type": "refund.failed", "refund_id": "RF-1", "reference": "ORD-1" });
        let refused = self.mark("post", "/api/v1/payment-callbacks", refused);
        let url = self.api.url("/api/v1/payment-callbacks");
        let (status, answer) = payments.call_back(&url, &refused, PAYMENT_SECRET).await;
        assert_eq!((status, &answer["status"]), (200, &json!("processed")));
    }

    /// Finishes the open work: replays a dead message and acknowledges the alerts.
    async fn clear_desks(&mut self) {
        let dead = self.t.texts("SELECT id::text FROM outbox WHERE state = 'dead'").await;
        self.write("post /api/v1/admin/outbox/{id}/replay", &[&dead[0]], json!({})).await;
        for alert in self.t.texts("SELECT id::text FROM alerts WHERE acked_at IS NULL").await {
            self.write("post /api/v1/alerts/{id}/ack", &[&alert], json!({})).await;
        }
        self.t.run_due().await;
        self.write("post /api/v1/drivers/{id}/sign-in-links", &["D3"], json!({})).await;
        self.write("post /api/v1/drivers/{id}/remove", &["D3"], json!({})).await;
    }

    /// Fails if an operation with free texts is neither tested here nor listed in ABOUT_NO_PERSON.
    fn assert_all_written(&self) {
        let mut left = Vec::new();
        for (path, operations) in self.document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let texts = free_texts(&self.document, operation);
                let name = format!("{method} {path}");
                let is_known =
                    self.written.contains(&name) || ABOUT_NO_PERSON.iter().any(|prefix| path.starts_with(prefix));
                if !texts.is_empty() && !is_known {
                    left.push((name, texts));
                }
            }
        }
        // All texts of a partner's callback are ids.
        assert!(left.is_empty(), "write a mark into these, or say in ABOUT_NO_PERSON why not: {left:?}");
    }
}

// Rule F38: After a customer and the drivers are erased, no table contains any free text about them that the API
// received.
#[tokio::test]
async fn erasure_leaves_no_free_text_of_the_api() {
    let payments = PaymentSim::start().await;
    let mut writers = Writers::start(&payments).await;
    writers.hire().await;
    writers.order(&payments).await;
    writers.clear_desks().await;
    writers.assert_all_written();
    let t = &writers.t;
    let before = tables_with(t, "MARK").await;
    for table in ["orders", "order_events", "offers", "staff_actions", "api_keys", "alerts", "refunds", "dead_letters"]
    {
        assert!(before.iter().any(|found| found == table), "no mark was written into {table}: {before:?}");
    }
    let reasons = t.reasons("ORD-1").await;
    for (subject, id) in [
        (ErasureSubject::Customer, MARK),
        (ErasureSubject::Driver, "D1"),
        (ErasureSubject::Driver, "D2"),
        (ErasureSubject::Driver, "D3"),
    ] {
        let erasure = erasure(t, subject, id).await;
        let done = privacy::erase_subject(&t.app.core, &erasure).await.unwrap();
        assert!(matches!(done, ErasureOutcome::Done { orders: 1.. }), "{id}: {done:?}");
    }
    assert_eq!(tables_with(t, "MARK").await, Vec::<String>::new());
    assert_eq!(tables_with(t, &MARK.to_lowercase()).await, Vec::<String>::new(), "as names are compared");
    assert_eq!(tables_with(t, PHONE).await, Vec::<String>::new());
    assert_eq!(t.reasons("ORD-1").await, reasons, "what happened stays");
    let keys = "SELECT count(*) FROM staff_actions WHERE action LIKE 'KEY%' AND subject LIKE '%erased%'";
    assert_eq!(t.count(keys).await, 3, "the record stays, without names");
    t.assert_sound().await;
}

// Rule F38: An erasure leaves the record of another key of the same name.
#[tokio::test]
async fn erasure_keeps_records_of_other_holders() {
    let payments = PaymentSim::start().await;
    let mut writers = Writers::start(&payments).await;
    let keys = "post /api/v1/admin/keys";
    for (role, driver) in [("support", None), ("driver", Some("D1")), ("viewer", None)] {
        let mut new = json!({ "name": "tablet", "role": role, "reason": role });
        if let Some(driver) = driver {
            new["driver_id"] = json!(driver);
            writers.t.drivers(&[(driver, 100.0)]).await;
        }
        let made = writers.write(keys, &[], new).await;
        writers.write("post /api/v1/admin/keys/{id}/revoke", &[made.text("id")], json!({ "reason": role })).await;
        writers.t.advance(secs(120)).await;
    }
    let t = &writers.t;
    let erasure = erasure(t, ErasureSubject::Driver, "D1").await;
    privacy::erase_subject(&t.app.core, &erasure).await.unwrap();
    let left = t
        .texts("SELECT concat_ws(' ', action, reason) FROM staff_actions WHERE subject LIKE '%tablet' ORDER BY id")
        .await;
    assert_eq!(left, ["KEY_CREATED support", "KEY_REVOKED support", "KEY_CREATED viewer", "KEY_REVOKED viewer"]);
}
