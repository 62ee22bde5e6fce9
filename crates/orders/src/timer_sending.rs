//! Sends the timers of a changed order to Redis, without a failure for the caller.

use jobs::OrderId;
use model::{decide::timers, order::Snapshot};
use tokio::{task::JoinHandle, time::timeout};
use tracing::Instrument;

use crate::{capability::Orders, unsent};
use foundation::crash;
use queue::{JobAddress, NewJob};

/// Enqueues and cancels jobs of an order, in one call. A failure is logged and not returned: this process retries, or
/// the reconciler enqueues the jobs. The caller waits no longer than `core.patience`.
pub fn send_jobs(
    orders: &Orders,
    order: &OrderId,
    jobs: Vec<NewJob>,
    superseded: Vec<JobAddress>,
) -> impl Future<Output = ()> + Send + use<> {
    let has_any = !jobs.is_empty() || !superseded.is_empty();
    let sent = has_any.then(|| begin_sending(orders, order.clone(), jobs, superseded));
    let patience = orders.core.patience;
    async move {
        if let Some(sent) = sent {
            let _ = timeout(patience, sent).await;
        }
    }
}

fn begin_sending(orders: &Orders, order: OrderId, jobs: Vec<NewJob>, superseded: Vec<JobAddress>) -> JoinHandle<()> {
    crash::reach_point("request", "enqueues");
    let only_cancels = jobs.is_empty();
    let sending = orders.timer_calls.send(&order, jobs, superseded);
    let orders = orders.clone();
    let send = async move {
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
    };
    tokio::spawn(send.in_current_span())
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
