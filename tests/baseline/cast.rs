//! Actors of the run: a producer, drivers, staff and a partner, each with its own key. Their answers are recorded.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use futures_util::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::{
    placeholders,
    stubs::SECRET,
    world::{Answer, World},
};

/// Number of orders or bindings that take a step concurrently.
const AT_ONCE: usize = 8;

/// An order whose pickup point is far from all others.
#[derive(Clone, Debug)]
pub struct Order {
    pub id: String,
    pub service: &'static str,
    pub latitude: f64,
    pub longitude: f64,
}

impl Order {
    /// Returns the id of its `n`-th driver. The first is nearest.
    pub fn driver(&self, n: usize) -> String {
        format!("{}-{}", self.id, ["a", "b"][n])
    }
}

pub struct Cast {
    pub world: World,
    pub keys: Mutex<HashMap<String, String>>,
    /// Number of each answer, by kind of request.
    pub answers: Mutex<BTreeMap<String, BTreeMap<String, usize>>>,
}

impl Cast {
    pub fn new(world: World) -> Cast {
        let admin = ("admin".to_owned(), world.admin.clone());
        Cast { keys: Mutex::new(HashMap::from([admin])), world, answers: Mutex::default() }
    }

    /// Creates a key for an actor over HTTP.
    pub async fn employ(&self, name: &str, role: &str, driver: Option<&str>) {
        let body = json!({ "name": name, "role": role, "driver_id": driver, "reason": "baseline" });
        let answer = self.ask("admin", Method::POST, "/api/v1/admin/keys", Some(body)).await;
        let key = answer.body["key"].as_str().unwrap_or_else(|| panic!("a key for {name}: {answer:?}"));
        self.keys.lock().expect("no panic").insert(name.to_owned(), key.to_owned());
    }

    /// Sends a request as `actor` and records the answer.
    pub async fn ask(&self, actor: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
        let key = self.keys.lock().expect("no panic")[actor].clone();
        let answer = self.world.ask(&key, method.clone(), path, body).await;
        let is_refused = answer.body["error_code"] == "DISPATCHER_AREA_THRESHOLD_REACHED";
        assert!(answer.status < 300 || is_refused, "{method} {path} by {actor}: {answer:?}");
        self.note(&format!("{method} {path} by {actor}"), &answer);
        answer
    }

    pub async fn post(&self, actor: &str, path: &str, body: Value) -> Answer {
        self.ask(actor, Method::POST, path, Some(body)).await
    }

    fn note(&self, what: &str, answer: &Answer) {
        let text = format!("{} {}", answer.status, placeholders::in_json(&answer.body));
        let mut answers = self.answers.lock().expect("no panic");
        let plain = |text: &str| placeholders::of_any_life(&placeholders::in_text(text));
        *answers.entry(plain(what)).or_default().entry(plain(&text)).or_default() += 1;
    }

    /// Runs `step` for each item, some of them concurrently.
    pub async fn each<T>(&self, items: &[T], step: impl AsyncFn(&T)) {
        let step = &step;
        stream::iter(items).for_each_concurrent(AT_ONCE, |item| async move { step(item).await }).await;
    }

    /// Creates an order as the producer.
    pub async fn create(&self, order: &Order, payment: &str) -> Answer {
        let body = json!({
            "order_id": order.id, "service_type": order.service, "payment_status": payment, "amount_minor": 150_000,
            "currency": "IDR", "customer_id": format!("CUS-{}", order.id), "language": "en",
            "pickup": { "latitude": order.latitude, "longitude": order.longitude },
        });
        self.post("shop", "/api/v1/orders", body).await
    }

    /// Posts an action on an order.
    pub async fn step(&self, actor: &str, order: &Order, verb: &str, body: Value) -> Answer {
        self.post(actor, &format!("/api/v1/orders/{}/{verb}", order.id), body).await
    }

    /// Waits for this driver's offer for the order and returns its id.
    pub async fn offer(&self, order: &Order, driver: &str) -> String {
        let path = format!("/api/v1/drivers/{driver}/offers");
        let mut offer = None;
        self.world
            .until(&format!("an offer of {} to {driver}", order.id), async || {
                let key = self.keys.lock().expect("no panic")[driver].clone();
                let answer = self.world.ask(&key, Method::GET, &path, None).await;
                offer = answer.body["offers"][0]["offer_id"].as_str().map(str::to_owned);
                if offer.is_some() {
                    self.note(&format!("GET {path} by {driver}"), &answer);
                }
                offer.is_some()
            })
            .await;
        // An answer would expire a message that is not sent yet.
        let pending = "SELECT count(*) FROM audit_notifications WHERE order_id = $1 AND state = 'pending'";
        self.world.until_row(pending, &order.id, "0").await;
        offer.expect("an offer")
    }

    /// Answers the order's offer as the driver: `accept` or `decline`.
    pub async fn answer_offer(&self, order: &Order, driver: &str, verb: &str) -> Answer {
        let offer = self.offer(order, driver).await;
        self.step(driver, order, verb, json!({ "driver_id": driver, "offer_id": offer })).await
    }

    /// Picks up and completes the order as the driver.
    pub async fn ride(&self, order: &Order, driver: &str) {
        self.step(driver, order, "pickup", json!({ "driver_id": driver })).await;
        self.step(driver, order, "complete", json!({ "driver_id": driver })).await;
    }

    /// Waits until the order has this status.
    pub async fn until_status(&self, order: &Order, status: &str) {
        self.world.until_row("SELECT status FROM audit_orders WHERE order_id = $1", &order.id, status).await;
    }

    /// Waits until the order has `wanted` events with this reason.
    pub async fn until_events(&self, order: &Order, reason: &str, wanted: usize) {
        let query = format!("SELECT count(*) FROM audit_events WHERE order_id = $1 AND reason = '{reason}'");
        self.world.until_row(&query, &order.id, &wanted.to_string()).await;
    }

    /// Sends a callback as the partner.
    pub async fn call_back(&self, order: &Order, kind: &str) {
        let (booking, reference) = (format!("BK-{}-1", order.id), format!("{}:1", order.id));
        let id = format!("E-{}-{kind}", order.id);
        let mut body = json!({ "event_id": id, "type": kind, "booking_id": booking, "reference": reference,
                               "job_id": format!("J-{booking}"), "occurred_at": "2026-03-02T01:00:00Z" });
        if kind != "job_id_assigned" {
            body["driver_id"] = json!(format!("P-{booking}"));
        }
        let (body, now) = (body.to_string(), self.world.now());
        let signature = Webhook::new(SECRET).and_then(|hook| hook.sign(&id, now, body.as_bytes())).expect("a secret");
        let headers = [("webhook-id", id), ("webhook-timestamp", now.to_string()), ("webhook-signature", signature)];
        let answer = self.world.send("/api/v1/callbacks/bbd", &headers, body).await;
        self.note(&format!("POST /api/v1/callbacks/bbd {kind} for {}", order.id), &answer);
    }

    /// Returns all answers as text.
    pub fn answers(&self) -> String {
        let mut text = String::new();
        for (what, answers) in &*self.answers.lock().expect("no panic") {
            text.push_str(&format!("{what}\n"));
            for (answer, count) in answers {
                text.push_str(&format!("  {count} x {answer}\n"));
            }
        }
        text
    }
}
