//! Sends the timers of a changed order to Redis, without a failure for the caller.

use jobs::OrderId;
use model::{decide::timers, order::Snapshot};
use tokio::time::timeout;
use tracing::Instrument;

use crate::{capability::Orders, timer_calls::TimerCallError, unsent};
use foundation::crash;
use queue::{JobAddress, NewJob};

/// Enqueues and cancels jobs of an order, in one call. A failure is logged and not returned: this process retries, or
/// the reconciler enqueues the jobs. The caller waits no longer than `core.patience`; the call then continues in the
/// background. The jobs are queued before this function returns.
pub fn send_jobs(
    orders: &Orders,
    order: &OrderId,
    jobs: Vec<NewJob>,
    superseded: Vec<JobAddress>,
) -> impl Future<Output = ()> + Send + use<> {
    let only_cancels = jobs.is_empty();
    let sent = (!only_cancels || !superseded.is_empty()).then(|| {
        crash::reach_point("request", "enqueues");
        let sending = orders.timer_calls.send(order, jobs, superseded);
        tokio::spawn(finish_call(orders.clone(), order.clone(), only_cancels, sending).in_current_span())
    });
    let patience = orders.core.patience;
    async move {
        if let Some(sent) = sent {
            let _ = timeout(patience, sent).await;
        }
    }
}

async fn finish_call(
    orders: Orders,
    order: OrderId,
    only_cancels: bool,
    sending: impl Future<Output = Result<(), TimerCallError>>,
) {
    match sending.await {
        Ok(()) => {}
        // They fire and find that the row does not require them.
        Err(error) if only_cancels => {
            tracing::debug!(order.id = %order, %error, "Superseded timers of an order could not be cancelled.");
        }
        Err(error) => {
            tracing::warn!(order.id = %order, %error, "The timers of an order could not be enqueued; retrying.");
            unsent::remember_unsent(&orders, order);
        }
    }
}

/// Enqueues the jobs that an order must have.
pub async fn enqueue_jobs(orders: &Orders, snapshot: &Snapshot) {
    send_jobs(orders, &snapshot.order.id, timers::derive_jobs(snapshot), Vec::new()).await;
}

/// Enqueues the current timers of an order, because those of its last change may not have been sent. If the order
/// cannot be loaded, its timers are enqueued later.
pub async fn resend_timers(orders: &Orders, order: &OrderId) {
    match orders.rows.load_order(order).await {
        Ok(Some(s)) => enqueue_jobs(orders, &s).await,
        Ok(None) => {}
        Err(_) => unsent::remember_unsent(orders, order.clone()),
    }
}
