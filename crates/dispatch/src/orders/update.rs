//! Changes an order on request, and enqueues what follows.

use jobs::OrderId;
use model::{
    decide::{Decision, timers},
    ids::OfferId,
    order::Snapshot,
};
use tracing::Instrument;
use workers::{JobAddress, NewJob};

use crate::{
    app::App,
    crash,
    dead_letter_rows::{self, Resolution},
    error::ServiceError,
    orders::{
        accept_gate,
        commit::{self, ChangeError, ChangeOutcome, ChangedOrder},
        unsent,
    },
};

/// Decides and writes, then enqueues the jobs the order must now have and cancels those it left behind. Repeating it is harmless.
pub async fn update_order(
    app: &App,
    id: &OrderId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    update_about(app, id, None, decide).await
}

/// As [`update_order`], of a decision on this offer, however old it is.
pub async fn update_for_offer(
    app: &App,
    id: &OrderId,
    offer: OfferId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    update_about(app, id, Some(offer), decide).await
}

async fn update_about(
    app: &App,
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
    let changed = commit::change_about(app, id, offer, decide).await?;
    if let ChangeOutcome::Yes(changed) = &changed {
        let after = &changed.after;
        if was_held && !after.order.held_for_review {
            revive_dead_timers(app, after).await;
        }
        if had_driver && after.order.status.is_searching() {
            accept_gate::forget_lock(app, id).await;
        }
        update_jobs(app, changed).await;
    }
    Ok(changed)
}

/// A person has decided that a held order goes on: a timer that is dead must not hold it again.
async fn revive_dead_timers(app: &App, snapshot: &Snapshot) {
    let ids: Vec<_> = timers::derive_jobs(snapshot).into_iter().map(|job| job.id.to_string()).collect();
    let revived = Resolution::revived("its order was taken out of review");
    let done = async {
        dead_letter_rows::resolve_jobs(&app.db, &ids, &revived).await?;
        app.queue().discard(&ids, &jobs::queues::ALL).await?;
        Ok::<_, ServiceError>(())
    };
    if let Err(error) = done.await {
        tracing::warn!(order.id = %snapshot.order.id, %error, "The dead timers of an order could not be removed.");
    }
}

/// Enqueues the jobs a new order must have, as [`update_jobs`] does.
pub async fn enqueue_jobs(app: &App, snapshot: &Snapshot) {
    send_jobs(app, &snapshot.order.id, timers::derive_jobs(snapshot), Vec::new()).await;
}

/// Enqueues the jobs a changed order must have, and cancels those it will never ask for again, in one call. A failure is logged and
/// not returned: the row is committed, and the jobs are enqueued when Redis takes them, by this process or by the reconciler. A Redis
/// that hangs keeps its caller waiting no longer than `app.patience`; the call goes on behind its back.
pub async fn update_jobs(app: &App, changed: &ChangedOrder) {
    let order = &changed.after.order.id;
    send_jobs(app, order, timers::derive_jobs(&changed.after), changed.superseded.clone()).await;
}

/// As [`update_jobs`], of the jobs of an order that a committed change led to.
pub async fn send_jobs(app: &App, order: &OrderId, jobs: Vec<NewJob>, superseded: Vec<JobAddress>) {
    if jobs.is_empty() && superseded.is_empty() {
        return;
    }
    crash::reach_point("request", "enqueues");
    let (app_of_task, order) = (app.clone(), order.clone());
    let send = async move {
        let only_cancels = jobs.is_empty();
        match app_of_task.timer_calls.send(&order, jobs, superseded).await {
            Ok(()) => {}
            // They fire, and find that the row asks for none of them.
            Err(error) if only_cancels => {
                tracing::debug!(order.id = %order, %error, "Superseded timers of an order stay.");
            }
            Err(error) => {
                tracing::warn!(order.id = %order, %error, "The timers of an order could not be enqueued; they will be.");
                unsent::remember_unsent(&app_of_task, order);
            }
        }
    };
    let sent = tokio::spawn(send.in_current_span());
    let _ = tokio::time::timeout(app.patience, sent).await;
}
