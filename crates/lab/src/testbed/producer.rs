//! Creates orders, each at its time, as a producer does: by HTTP, with an idempotency key.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::api::{ApiAnswer, ApiClient};

/// Requests at the same time; when the system is slower than the orders come, these wait and the run stretches.
const AT_ONCE: usize = 64;

/// An order to be created, so long after the first; wall time.
#[derive(Debug, Clone)]
pub(crate) struct OrderCreation {
    pub(crate) id: String,
    pub(crate) at: Duration,
    pub(crate) body: Value,
}

/// Creates orders. Cheap to clone; clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct OrderProducer {
    api: ApiClient,
    key: String,
    created: Arc<AtomicU64>,
}

impl OrderProducer {
    pub(crate) fn new(api: ApiClient, key: String) -> Self {
        Self { api, key, created: Arc::default() }
    }

    /// Orders created so far.
    pub(crate) fn created_count(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    /// Creates them all; returns what went wrong, a line for each order that could not be created.
    pub(crate) async fn run(&self, orders: impl Iterator<Item = OrderCreation>) -> Vec<String> {
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
        match self.api.create_order(&self.key, id, body).await {
            ApiAnswer::Done => {
                self.created.fetch_add(1, Ordering::Relaxed);
                None
            }
            ApiAnswer::Refused { status, code } => Some(format!("order {id} could not be created: {status} {code}")),
            ApiAnswer::Failed(error) => Some(format!("order {id} could not be created: {error}")),
        }
    }
}
