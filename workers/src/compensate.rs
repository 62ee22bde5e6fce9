//! Requirement: docs/requirements/job-id-retrieval.md.
//!
//! `compensate:{order}`: gives a COMPENSATING order its final status. One transaction writes status, events and alerts.
//!
//! If the database refuses that transaction or is unreachable, support is alerted without it: see
//! [`alarm`](orders::compensation::alarm).

use jobs::{CompensateOrder, OrderId};
use model::{
    decide::timers,
    messages::{self, FAILED_TO_GET_ORDER},
};

use foundation::db;
use model::compensation;
use notify::{alerts, outbox};
use orders::{capability::Orders, compensation::alarm, order_store::load, step};
use queue::{Job, Outcome};

pub async fn perform_compensate(orders: Orders, job: CompensateOrder) -> Outcome {
    match write_compensation(&orders, &job.order).await {
        Ok(Outcome::Done { then, .. }) if then.is_empty() => alert_if_missing(&orders, &job).await,
        Ok(outcome) => outcome,
        Err(error) => {
            alarm::raise_alarm(&orders, &job.order, &error).await;
            db::database_failed(&*orders.core.rng, &error)
        }
    }
}

/// Decides and writes the final status, if the order is still COMPENSATING.
pub async fn write_compensation(orders: &Orders, order: &OrderId) -> Result<Outcome, sqlx::Error> {
    let job = CompensateOrder { order: order.clone() };
    step::decide_sync(orders, order, &job.id(), compensation::compensate_order).await
}

/// Raises an alert if the order no longer exists, because a payment may be affected.
async fn alert_if_missing(orders: &Orders, job: &CompensateOrder) -> Outcome {
    let alert = async {
        if load::load_order(&orders.core.db, &job.order).await?.is_some() {
            return Ok(Vec::new());
        }
        let mut tx = orders.core.db.begin().await?;
        let now = db::database_now(&mut *tx).await?;
        let message = messages::order_missing(&job.order, now);
        let written =
            outbox::insert_messages(&mut tx, &orders.config.notifications, &job.order, &[message], now).await?;
        tx.commit().await?;
        if !written.messages.is_empty() {
            alerts::record_order_alert(&job.order, FAILED_TO_GET_ORDER);
        }
        let timers = timers::message_timers(&job.order, &written.messages, &written.alerts, now);
        Ok(timers.into_iter().map(|t| t.job).collect())
    };
    alert.await.map_or_else(|e: sqlx::Error| db::database_failed(&*orders.core.rng, &e), Outcome::then_enqueue)
}
