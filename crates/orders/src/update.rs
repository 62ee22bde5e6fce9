//! Changes an order on request, and enqueues what follows.

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
use tokio::{task::JoinHandle, time::timeout};
use tracing::Instrument;

use crate::{
    accept_gate,
    capability::Orders,
    commit::{self, ChangeError, ChangeNews, ChangeOutcome, ChangedOrder},
    seen::SeenOrder,
    unsent,
};
use foundation::{
    core::Core,
    crash,
    dead_letter_rows::{self, Resolution},
    error::ServiceError,
};
use queue::{JobAddress, NewJob};

/// What is left to do of a committed change: Redis is told of it.
pub type RestOfChange = BoxFuture<'static, ()>;

/// Decides and writes, then enqueues the jobs the order must now have and cancels those it left behind. Repeating it is harmless.
pub async fn update_order(
    orders: &Orders,
    id: &OrderId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    update_about(orders, id, None, decide).await
}

/// As [`update_order`], of a decision on this offer, however old it is.
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

/// As [`update_for_offer`], of an order that may have been `seen` a moment ago, and for a change that begins a trip. Returns once it is
/// committed, with the rest: Redis is told of it. The timers have their place in line by then, so the order's next change comes after
/// them. The caller need not wait for the rest; where it is not done, the reconciler does it by the row.
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

/// Puts the timers of a committed change in line, and returns the rest: Redis is told.
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

/// A person has decided that a held order goes on: a timer that is dead must not hold it again.
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

/// Enqueues the jobs a new order must have, as [`update_jobs`] does.
pub async fn enqueue_jobs(orders: &Orders, snapshot: &Snapshot) {
    send_jobs(orders, &snapshot.order.id, timers::derive_jobs(snapshot), Vec::new()).await;
}

/// Enqueues the current timers of an order, because those of its last change may not have been sent. If the order cannot be loaded,
/// its timers are enqueued later.
pub async fn resend_timers(orders: &Orders, order: &OrderId) {
    match orders.rows.load_order(order).await {
        Ok(Some(s)) => enqueue_jobs(orders, &s).await,
        Ok(None) => {}
        Err(_) => unsent::remember_unsent(orders, order.clone()),
    }
}

/// Enqueues the jobs a changed order must have, and cancels those it will never ask for again, in one call. A failure is logged and
/// not returned: the row is committed, and the jobs are enqueued when Redis takes them, by this process or by the reconciler. A Redis
/// that hangs keeps its caller waiting no longer than `app.patience`; the call goes on behind its back.
pub fn update_jobs(orders: &Orders, changed: &ChangedOrder) -> impl Future<Output = ()> + Send + use<> {
    let order = &changed.after.order.id;
    send_jobs(orders, order, timers::derive_jobs(&changed.after), changed.superseded.clone())
}

/// As [`update_jobs`], of the jobs of an order that a committed change led to.
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
            // They fire, and find that the row asks for none of them.
            Err(error) if only_cancels => {
                tracing::debug!(order.id = %order, %error, "Superseded timers of an order stay.");
            }
            Err(error) => {
                tracing::warn!(order.id = %order, %error, "The timers of an order could not be enqueued; they will be.");
                unsent::remember_unsent(&orders, order);
            }
        }
    };
    tokio::spawn(send.in_current_span())
}
