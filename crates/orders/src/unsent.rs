//! Orders whose timers Redis did not take, because it was full or did not answer.
//!
//! The reconciler enqueues a missing timer once it is overdue. This process enqueues it as soon as Redis takes jobs again, so that a
//! timer of a later hour is there in time. The set is a hint: a process that ends takes it along, and the reconciler remains.

use std::time::Duration;

use jobs::OrderId;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::store;
use crate::capability::Orders;
use foundation::{core::Core, db};
use model::decide::timers;
use queue::retry::add_jitter;

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// Loading an order and enqueueing its timers may take so long.
const DEADLINE: Duration = Duration::from_secs(15);

/// Remembers an order whose timers Redis did not take.
pub fn remember_unsent(orders: &Orders, order: OrderId) {
    orders.unsent.put_back(order);
    if orders.unsent.begin_retrying() {
        tokio::spawn(retry_all(orders.clone()));
    }
}

/// Enqueues what was remembered, until nothing is left.
async fn retry_all(orders: Orders) {
    sleep(add_jitter(PAUSE, 0.5, orders.core.rng.next_unit())).await;
    while let Some(order) = orders.unsent.take_next() {
        // A task of its own: a panic about one order is not to end the others' retries.
        let trying = AbortOnDropHandle::new(tokio::spawn(enqueue_timers(orders.core.clone(), order.clone())));
        let is_settled = timeout(DEADLINE, trying).await.is_ok_and(|tried| tried.unwrap_or(true));
        if !is_settled {
            orders.unsent.put_back(order);
            sleep(add_jitter(PAUSE, 0.5, orders.core.rng.next_unit())).await;
        }
    }
}

/// Enqueues the timers that an order has by now. Returns whether that is settled: done, or left to the reconciler. It is not while a
/// server does not answer or Redis is full.
async fn enqueue_timers(core: Core, order: OrderId) -> bool {
    let jobs = match store::load_order(&core.db, &order).await {
        Ok(snapshot) => snapshot.map(|snapshot| timers::derive_jobs(&snapshot)).unwrap_or_default(),
        Err(error) if db::is_transient(&error) => return false,
        Err(error) => {
            tracing::warn!(order.id = %order, %error, "The timers of an order cannot be enqueued; the reconciler will look at it.");
            return true;
        }
    };
    let enqueued = core.queue().enqueue(&jobs).await;
    if let Err(error) = &enqueued {
        tracing::debug!(order.id = %order, %error, "Redis does not take timers yet.");
    }
    enqueued.is_ok()
}
