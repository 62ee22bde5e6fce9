//! `escalate:{order}:{alert id}` and `remind:{order}:{alert id}`: tells again about an alert that was not acknowledged.
//!
//! The row of the alert decides, as ever: an early, stale or doubled job sends nothing. Every run returns the jobs that must
//! exist for the order's messages and alerts, which heals a crash between commit and settle.

use jobs::{EscalateAlert, OrderId, RemindDispatchers};
use workers::Outcome;

use crate::{
    capabilities::orders::Orders,
    notifications::{alerts, escalation},
};
use foundation::db;

pub async fn perform_escalate(orders: Orders, job: EscalateAlert) -> Outcome {
    tell_again(&orders, &job.order, job.alert_id).await
}

pub async fn perform_remind(orders: Orders, job: RemindDispatchers) -> Outcome {
    tell_again(&orders, &job.order, job.alert_id).await
}

async fn tell_again(orders: &Orders, order: &OrderId, alert_id: i64) -> Outcome {
    let told = async {
        escalation::tell_again(&orders.core.db, &orders.config.notifications, alert_id).await?;
        alerts::derived_jobs(&orders.core.db, order).await
    };
    told.await.map_or_else(|e| db::database_failed(&*orders.core.rng, &e), Outcome::then_enqueue)
}
