//! Changes an order on request, and enqueues what follows.

use jobs::OrderId;

use super::{
    Decision, Snapshot,
    store::{self, ChangeError, Changed},
    timers,
};
use crate::app::App;

/// Decides and writes, then enqueues the jobs the order must now have. Repeating it is harmless.
pub async fn act(app: &App, id: &OrderId, decide: impl FnMut(&Snapshot) -> Decision) -> Result<Changed, ChangeError> {
    let changed = store::change(&app.db, &app.config.notifications, id, decide).await?;
    if let Changed::Yes(after) = &changed {
        enqueue(app, after).await;
    }
    Ok(changed)
}

/// Enqueues the jobs an order must have. A failure is logged and not returned: the row is committed, and the reconciler
/// puts the jobs in within seconds.
pub async fn enqueue(app: &App, snapshot: &Snapshot) {
    let jobs = timers::derived_jobs(snapshot);
    if jobs.is_empty() {
        return;
    }
    if let Err(error) = app.store.enqueue(&jobs).await {
        tracing::warn!(order.id = %snapshot.order.id, %error, "The timers of an order could not be enqueued; the reconciler will.");
    }
}
