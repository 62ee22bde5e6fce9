//! Retries for orders whose timers Redis did not accept, because it was full or did not respond.
//!
//! The reconciler enqueues a missing timer only when it is overdue. This process enqueues it as soon as Redis accepts
//! jobs again, so that a later timer fires on time. The set is a hint: it is lost when the process ends, and then the
//! reconciler handles its orders.

use std::time::Duration;

use jobs::OrderId;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{capability::Orders, order_store::load::load_order};
use foundation::{core::Core, db};
use model::decide::timers;
use queue::retry::add_jitter;

const PAUSE: Duration = Duration::from_secs(1);
/// Timeout for loading an order and enqueueing its timers.
const DEADLINE: Duration = Duration::from_secs(15);

/// Remembers an order whose timers Redis did not accept.
pub fn remember_unsent(orders: &Orders, order: OrderId) {
    if orders.unsent.put_back(order) {
        tokio::spawn(retry_all(orders.clone()));
    }
}

/// Enqueues the timers of remembered orders until none are left.
async fn retry_all(orders: Orders) {
    sleep(add_jitter(PAUSE, 0.5, orders.core.rng.next_unit())).await;
    while let Some(order) = orders.unsent.take_next() {
        // A separate task, so that a panic about one order does not end the retries of others.
        let trying = AbortOnDropHandle::new(tokio::spawn(enqueue_timers(orders.core.clone(), order.clone())));
        let is_settled = timeout(DEADLINE, trying).await.is_ok_and(|tried| tried.unwrap_or(true));
        if !is_settled {
            orders.unsent.put_back(order);
            sleep(add_jitter(PAUSE, 0.5, orders.core.rng.next_unit())).await;
        }
    }
}

/// Enqueues the current timers of an order. Returns whether the order is done, or left to the reconciler. Returns false
/// while a server does not respond or Redis is full.
async fn enqueue_timers(core: Core, order: OrderId) -> bool {
    let jobs = match load_order(&core.db, &order).await {
        Ok(snapshot) => snapshot.map(|snapshot| timers::derive_jobs(&snapshot)).unwrap_or_default(),
        Err(error) if db::is_transient(&error) => return false,
        Err(error) => {
            tracing::warn!(order.id = %order, %error, "The timers of an order cannot be enqueued; the reconciler will handle them.");
            return true;
        }
    };
    let enqueued = core.queue().enqueue(&jobs).await;
    if let Err(error) = &enqueued {
        tracing::debug!(order.id = %order, %error, "Redis does not accept timers yet.");
    }
    enqueued.is_ok()
}
