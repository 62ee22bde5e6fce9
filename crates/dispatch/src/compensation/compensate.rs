//! `compensate:{order}`: gives a COMPENSATING order its final status. Status, events and alerts are one transaction.
//!
//! If the database refuses that transaction, or stays away, support is alerted without it: see
//! [`alarm`](crate::notifications::alarm).

use jobs::{Compensate, OrderId};
use workers::{Job, Outcome};

use super::decide;
use crate::{
    app::App,
    notifications::{alarm, messages, outbox},
    orders::{store, timers},
    worker::step,
};

pub async fn perform(app: App, job: Compensate) -> Outcome {
    match write(&app, &job.order).await {
        Ok(Outcome::Done { then }) if then.is_empty() => alert_if_missing(&app, &job).await,
        Ok(outcome) => outcome,
        Err(error) => {
            alarm::raise(&app, &job.order, &error).await;
            step::database_failed(&error)
        }
    }
}

/// Decides and writes, if the order still asks for it.
pub async fn write(app: &App, order: &OrderId) -> Result<Outcome, sqlx::Error> {
    let job = Compensate { order: order.clone() };
    step::try_decide_sync(app, order, &job.id(), decide::compensate).await
}

/// An order that vanished while money may be at stake is an alert.
async fn alert_if_missing(app: &App, job: &Compensate) -> Outcome {
    let alert = async {
        if store::load(&app.db, &job.order).await?.is_some() {
            return Ok(Vec::new());
        }
        let mut tx = app.db.begin().await?;
        let now = store::now(&mut *tx).await?;
        let message = messages::order_missing(&job.order, now);
        let written = outbox::insert(&mut tx, &app.config.notifications, &job.order, &[message], now).await?;
        tx.commit().await?;
        let timers = timers::of_messages(&job.order, &written.messages, &written.alerts, now);
        Ok(timers.into_iter().map(|t| t.job).collect())
    };
    alert.await.map_or_else(|e: sqlx::Error| step::database_failed(&e), Outcome::then)
}
