//! Creates the orders, each at its time, as a producer does: by HTTP, with an idempotency key.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{
    api::{Answer, Api},
    fleet::SERVICE_TYPE,
    plan::PlannedOrder,
};

/// Requests at the same time; when the system is slower than the rides, these wait and the replay stretches.
const AT_ONCE: usize = 64;

/// Amounts in ride files have no currency column.
const CURRENCY: &str = "USD";

/// Creates orders. Cheap to clone; clones share the count.
#[derive(Debug, Clone)]
pub(super) struct Producer {
    api: Api,
    key: String,
    speed: f64,
    created: Arc<AtomicU64>,
}

impl Producer {
    pub(super) fn new(api: Api, key: String, speed: f64) -> Self {
        Self { api, key, speed, created: Arc::default() }
    }

    /// Orders created so far.
    pub(super) fn created(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    /// Creates them all; returns what went wrong, a line for each order that could not be created.
    pub(super) async fn run(&self, orders: &[PlannedOrder]) -> Vec<String> {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let start = Instant::now();
        let mut requests = JoinSet::new();
        let mut problems = Vec::new();
        for order in orders {
            tokio::time::sleep_until(start + order.at.div_f64(self.speed)).await;
            let Ok(permit) = permits.clone().acquire_owned().await else { break };
            let (producer, id, body) = (self.clone(), order.id.clone(), body(order));
            requests.spawn(async move {
                let _permit = permit;
                producer.create(&id, &body).await
            });
            while let Some(ended) = requests.try_join_next() {
                problems.extend(ended.unwrap_or_else(|error| Some(error.to_string())));
            }
        }
        problems.extend(requests.join_all().await.into_iter().flatten());
        problems
    }

    async fn create(&self, id: &str, body: &Value) -> Option<String> {
        match self.api.create_order(&self.key, id, body).await {
            Answer::Done => {
                self.created.fetch_add(1, Ordering::Relaxed);
                None
            }
            Answer::Refused { status, code } => Some(format!("order {id} could not be created: {status} {code}")),
            Answer::Failed(error) => Some(format!("order {id} could not be created: {error}")),
        }
    }
}

fn body(order: &PlannedOrder) -> Value {
    json!({
        "order_id": order.id,
        "service_type": SERVICE_TYPE,
        "pickup": { "latitude": order.pickup.y(), "longitude": order.pickup.x() },
        "payment_status": order.payment_status,
        "amount_minor": order.amount_minor,
        "currency": CURRENCY,
    })
}
