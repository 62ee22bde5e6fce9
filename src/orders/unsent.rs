//! Orders whose timers Redis did not take, because it was full or did not answer.
//!
//! The reconciler enqueues a missing timer once it is overdue. This process enqueues it as soon as Redis takes jobs again, so that a
//! timer of a later hour is there in time. The set is a hint: a process that ends takes it along, and the reconciler remains.

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jobs::OrderId;
use tokio::time::sleep;
use workers::retry::jittered;

use super::{store, timers};
use crate::app::App;

/// Orders remembered. Those above it are left to the reconciler.
const MOST: usize = 50_000;
/// Orders enqueued together.
const BATCH: usize = 100;
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Cheap to clone; clones share the orders.
#[derive(Debug, Clone, Default)]
pub struct UnsentTimers(Arc<Mutex<Unsent>>);

#[derive(Debug, Default)]
struct Unsent {
    orders: BTreeSet<OrderId>,
    /// A task is at it.
    is_retrying: bool,
}

impl UnsentTimers {
    fn lock(&self) -> MutexGuard<'_, Unsent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next orders and takes them out; `None` when there are none, and the task ends.
    fn take(&self) -> Option<Vec<OrderId>> {
        let mut unsent = self.lock();
        if unsent.orders.is_empty() {
            unsent.is_retrying = false;
            return None;
        }
        Some((0..BATCH).map_while(|_| unsent.orders.pop_first()).collect())
    }

    fn put_back(&self, orders: Vec<OrderId>) {
        let mut unsent = self.lock();
        let room = MOST.saturating_sub(unsent.orders.len());
        unsent.orders.extend(orders.into_iter().take(room));
    }
}

/// Remembers an order whose timers Redis did not take.
pub fn remember(app: &App, order: OrderId) {
    app.unsent.put_back(vec![order]);
    if !mem::replace(&mut app.unsent.lock().is_retrying, true) {
        tokio::spawn(retry(app.clone()));
    }
}

/// Enqueues what was remembered, until nothing is left.
async fn retry(app: App) {
    sleep(jittered(PAUSE, 0.5, rand::random())).await;
    while let Some(orders) = app.unsent.take() {
        if let Err(error) = enqueue(&app, &orders).await {
            tracing::debug!(orders = orders.len(), error = format!("{error:#}"), "Timers cannot be enqueued yet.");
            app.unsent.put_back(orders);
            sleep(jittered(PAUSE, 0.5, rand::random())).await;
        }
    }
}

/// Enqueues the timers that these orders have by now.
async fn enqueue(app: &App, orders: &[OrderId]) -> anyhow::Result<()> {
    let mut jobs = Vec::new();
    for order in orders {
        if let Some(snapshot) = store::load(&app.db, order).await? {
            jobs.extend(timers::derived_jobs(&snapshot));
        }
    }
    app.store.enqueue(&jobs).await?;
    Ok(())
}
