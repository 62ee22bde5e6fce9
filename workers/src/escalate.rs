//! Requirement: docs/requirements/job-id-retrieval.md.
//!
//! `escalate:{order}:{alert id}`: sends an alert again if support has not acknowledged it.
//!
//! The alert's row decides: an early, stale or duplicate job sends nothing. Every run returns the jobs that must exist
//! for the order's messages and alerts, which repairs a crash between commit and settle.

use jobs::{EscalateAlert, OrderId};

use foundation::db;
use notify::{alerts, escalation};
use orders::capability::Orders;
use queue::Outcome;

pub async fn perform_escalate(orders: Orders, job: EscalateAlert) -> Outcome {
    tell_again(&orders, &job.order, job.alert_id).await
}

pub(crate) async fn tell_again(orders: &Orders, order: &OrderId, alert_id: i64) -> Outcome {
    let told = async {
        escalation::tell_again(&orders.core.db, &orders.config.notifications, alert_id).await?;
        alerts::derived_jobs(&orders.core.db, order).await
    };
    told.await.map_or_else(|e| db::database_failed(&*orders.core.rng, &e), Outcome::then_enqueue)
}
