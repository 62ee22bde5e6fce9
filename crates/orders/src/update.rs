//! Changes an order on request, and enqueues the follow-up jobs.

use futures_util::{
    FutureExt,
    future::{BoxFuture, OptionFuture},
};
use jobs::OrderId;
use model::{
    decide::{Decision, timers},
    ids::OfferId,
    order::Snapshot,
};

use crate::{
    accept_gate,
    capability::Orders,
    commit::{self, ChangeError, ChangeNews, ChangeOutcome, ChangedOrder},
    seen::SeenOrder,
    timer_sending::send_jobs,
    unsent,
};
use foundation::{
    core::Core,
    dead_letter_rows::{self, Resolution},
    error::ServiceError,
};

/// Remaining work of a committed change: the updates in Redis.
pub type RestOfChange = BoxFuture<'static, ()>;

/// Decides and writes, then enqueues the jobs that the order must now have and cancels those that it no longer needs.
/// Repeating it is harmless.
pub async fn update_order(
    orders: &Orders,
    id: &OrderId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    update_about(orders, id, None, decide).await
}

/// Updates an order like [`update_order`], for a decision about this offer, however old it is.
pub async fn update_for_offer(
    orders: &Orders,
    id: &OrderId,
    offer: OfferId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    update_about(orders, id, Some(offer), decide).await
}

async fn update_about(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
    mut decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    let (mut was_held, mut had_driver) = (false, false);
    let decide = |s: &Snapshot| {
        was_held = s.order.held_for_review;
        had_driver = s.order.status.occupies_driver();
        decide(s)
    };
    let (changed, news) = commit::change_without_news(orders, id, offer, None, decide).await?;
    if let ChangeOutcome::Yes(changed) = &changed {
        let after = &changed.after;
        let timers = async {
            if was_held && !after.order.held_for_review {
                revive_dead_timers(&orders.core, after).await;
            }
            if had_driver && after.order.status.is_searching() {
                accept_gate::forget_lock(orders, id).await;
            }
            update_jobs(orders, changed).await;
        };
        tokio::join!(news.tell(orders), timers);
    }
    Ok(changed)
}

/// Updates an order like [`update_for_offer`], for a change that starts a trip. Uses the snapshot `seen` if it is
/// recent. Returns after the commit, with the remaining Redis updates as a future. The timers are already queued, so
/// those of the order's next change are sent later. The caller need not await the future; if it is not run, the
/// reconciler repairs Redis from the row.
pub(super) async fn begin_trip(
    orders: &Orders,
    id: &OrderId,
    offer: OfferId,
    seen: Option<SeenOrder>,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<(ChangeOutcome, RestOfChange), ChangeError> {
    let (changed, news) = commit::change_without_news(orders, id, Some(offer), seen, decide).await?;
    let rest = begin_rest(orders, &changed, news);
    Ok((changed, rest))
}

/// Queues the timers of a committed change, and returns the remaining Redis updates.
fn begin_rest(orders: &Orders, changed: &ChangeOutcome, news: ChangeNews) -> RestOfChange {
    let timers = match changed {
        ChangeOutcome::Yes(changed) => Some(update_jobs(orders, changed)),
        ChangeOutcome::No(_) => None,
    };
    let orders = orders.clone();
    let rest = async move {
        tokio::join!(news.tell(&orders), OptionFuture::from(timers));
    };
    rest.boxed()
}

/// Removes the dead timers of an order that a person took out of review, so that they do not hold it again.
async fn revive_dead_timers(core: &Core, snapshot: &Snapshot) {
    let ids: Vec<_> = timers::derive_jobs(snapshot).into_iter().map(|job| job.id.to_string()).collect();
    let revived = Resolution::revived("its order was taken out of review");
    let done = async {
        dead_letter_rows::resolve_jobs(&core.db, &ids, &revived).await?;
        core.queue().discard(&ids, &jobs::queues::ALL).await?;
        Ok::<_, ServiceError>(())
    };
    if let Err(error) = done.await {
        tracing::warn!(order.id = %snapshot.order.id, %error, "The dead timers of an order could not be removed.");
    }
}

/// Enqueues the jobs that a new order must have, as [`update_jobs`] does.
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

/// Enqueues the jobs that a changed order must have, and cancels those that it will never need again, in one call. A
/// failure is logged and not returned, because the row is committed: this process retries, or the reconciler enqueues
/// the jobs. The caller waits no longer than `core.patience`; the call then continues in the background.
pub fn update_jobs(orders: &Orders, changed: &ChangedOrder) -> impl Future<Output = ()> + Send + use<> {
    let order = &changed.after.order.id;
    send_jobs(orders, order, timers::derive_jobs(&changed.after), changed.superseded.clone())
}
