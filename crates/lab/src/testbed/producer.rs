//! Creates orders, each at its time, as a producer does: over HTTP, with an idempotency key.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{
    Testbed,
    api::{ApiAnswer, ApiClient, is_overload},
    drivers::SKILL,
    place_log::{PlaceLog, ToldPlaces, is_refused_for_area},
};
use accounts::{api_keys::AccountRole, key_admin};

/// Maximum concurrent requests. If the system is slower than the orders, the requests wait and the run takes longer.
const AT_ONCE: usize = 64;

/// An order to create, with the real time from the first order to this one.
#[derive(Debug, Clone)]
pub(crate) struct ProducedOrder {
    pub(crate) id: String,
    pub(crate) at: Duration,
    pub(crate) body: Value,
}

/// Fields that all simulated producers set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderDraft<'a> {
    pub(crate) service_type: &'a str,
    /// Latitude and longitude.
    pub(crate) pickup: (f64, f64),
    pub(crate) payment_status: &'a str,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
}

impl<'a> OrderDraft<'a> {
    /// Returns an order with the default amount.
    pub(crate) fn new(service_type: &'a str, pickup: (f64, f64), payment_status: &'a str) -> Self {
        Self { service_type, pickup, payment_status, amount_minor: 4_500_000, currency: "IDR" }
    }

    /// Returns the body of the creation request. Without an id the server chooses one.
    pub(crate) fn to_body(self, id: Option<&str>) -> Value {
        let Self { service_type, pickup: (latitude, longitude), payment_status, amount_minor, currency } = self;
        let mut body = json!({
            "service_type": service_type,
            "pickup": { "latitude": latitude, "longitude": longitude },
            "payment_status": payment_status,
            "amount_minor": amount_minor,
            "currency": currency,
        });
        if let Some(id) = id {
            body["order_id"] = id.into();
        }
        body
    }

    /// Returns an order to create `at` this time after the first.
    pub(crate) fn at(self, at: Duration, id: String) -> ProducedOrder {
        ProducedOrder { body: self.to_body(Some(&id)), id, at }
    }
}

impl ProducedOrder {
    /// Adds all fields that an order may have, except a pickup time.
    pub(crate) fn with_contents(mut self) -> Self {
        self.body["pickup"]["address"] = "1 Example Street, Exampletown".into();
        self.body["dropoff"] =
            json!({ "latitude": -6.1754, "longitude": 106.8272, "address": "2 Example Square, Exampletown" });
        self.body["notes"] = "Two suitcases and a pram. Ring at the blue gate.".into();
        self.body["contact"] = json!({ "name": "Example", "phone": "+628123456789", "email": "contact@example.com" });
        self.body["metadata"] = json!({ "crm_id": self.id, "channel": "phone", "tariff": "standard" });
        self.body["requires"] = json!([SKILL]);
        self
    }
}

/// Creates orders. Cheap to clone; clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct OrderProducer {
    api: ApiClient,
    key: String,
    created: Arc<AtomicU64>,
    checks_first: bool,
    /// Refusals by request kind and error code.
    refused: Arc<Mutex<BTreeMap<String, u64>>>,
    told: PlaceLog,
}

impl OrderProducer {
    /// Creates a key with this name for the producer.
    pub(crate) async fn hire(testbed: &Testbed, name: &str) -> anyhow::Result<Self> {
        let (_, key) = key_admin::create_permanent_key(&testbed.app.core.db, name, AccountRole::Producer, None).await?;
        Ok(Self {
            api: testbed.api.clone(),
            key,
            created: Arc::default(),
            checks_first: false,
            refused: Arc::default(),
            told: PlaceLog::default(),
        })
    }

    /// Checks for room before each order, and skips refused orders.
    pub(crate) fn checking_first(self, checks_first: bool) -> Self {
        Self { checks_first, ..self }
    }

    /// Skips orders that an overloaded server refuses.
    pub(crate) fn accepting_overload(self) -> Self {
        Self { api: self.api.accepting_overload(), ..self }
    }

    /// Returns the number of orders skipped because the server or their area refused them.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused.lock().values().sum()
    }

    /// Returns the skipped orders by request kind and error code.
    pub(crate) fn refusal_counts(&self) -> BTreeMap<String, u64> {
        self.refused.lock().clone()
    }

    /// Returns the admission results in the answers.
    pub(crate) fn told_places(&self) -> ToldPlaces {
        self.told.read_counts()
    }

    /// Returns the number of orders created so far.
    pub(crate) fn created_count(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    /// Creates all orders. Returns a line for each order that could not be created.
    pub(crate) async fn run(&self, orders: impl Iterator<Item = ProducedOrder>) -> Vec<String> {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let start = Instant::now();
        let mut requests = JoinSet::new();
        let mut problems = Vec::new();
        for order in orders {
            tokio::time::sleep_until(start + order.at).await;
            let Ok(permit) = permits.clone().acquire_owned().await else { break };
            let producer = self.clone();
            requests.spawn(async move {
                let _permit = permit;
                producer.create_order(&order.id, &order.body).await
            });
            while let Some(ended) = requests.try_join_next() {
                problems.extend(ended.unwrap_or_else(|error| Some(error.to_string())));
            }
        }
        problems.extend(requests.join_all().await.into_iter().flatten());
        problems
    }

    async fn create_order(&self, id: &str, body: &Value) -> Option<String> {
        if self.checks_first {
            let answer = self.api.check_availability(&self.key, body, &self.told).await;
            if answer != ApiAnswer::Done {
                return self.record_refusal("check", id, answer);
            }
        }
        let answer = self.api.create_order(&self.key, id, body, &self.told).await;
        if answer != ApiAnswer::Done {
            return self.record_refusal("create", id, answer);
        }
        self.created.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Counts an order that its area or an overloaded server refused. Returns a problem for any other failure.
    fn record_refusal(&self, asked: &str, id: &str, answer: ApiAnswer) -> Option<String> {
        match answer {
            ApiAnswer::Done => None,
            ApiAnswer::Refused { code, .. } if is_refused_for_area(&code) || is_overload(&code) => {
                let mut refused = self.refused.lock();
                *refused.entry(format!("{asked} {code}")).or_default() += 1;
                None
            }
            ApiAnswer::Refused { status, code } => Some(format!("order {id} could not be created: {status} {code}")),
            ApiAnswer::Failed(error) => Some(format!("order {id} could not be created: {error}")),
        }
    }
}
