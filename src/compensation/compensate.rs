//! `compensate:{order}`: gives a COMPENSATING order its final status. Status, events and alerts are one transaction.

use jobs::Compensate;
use workers::{Job, Outcome};

use super::decide;
use crate::{
    app::App,
    notifications::{messages, outbox},
    orders::{store, timers},
    worker::step,
};

pub async fn perform(app: App, job: Compensate) -> Outcome {
    match step::alone(&app, &job.order, &job.id(), decide::compensate).await {
        Outcome::Done { then } if then.is_empty() => alert_if_missing(&app, &job).await,
        outcome => outcome,
    }
}

/// An order that vanished while money may be at stake is somebody's business.
async fn alert_if_missing(app: &App, job: &Compensate) -> Outcome {
    let alert = async {
        if store::load(&app.db, &job.order).await?.is_some() {
            return Ok(Vec::new());
        }
        let mut tx = app.db.begin().await?;
        let now = store::now(&mut *tx).await?;
        let message = messages::order_missing(&job.order, now);
        let rows = outbox::insert(&mut tx, &app.config.notifications, &job.order, &message, now).await?;
        tx.commit().await?;
        Ok(rows.iter().map(|m| timers::message_timer(&job.order, m.id, m.next_attempt_at, now).job).collect())
    };
    alert.await.map_or_else(|e: sqlx::Error| step::database_failed(&e), Outcome::then)
}
