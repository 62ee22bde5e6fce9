//! Ends orders far past their lifetime, using only Postgres, because Redis may have lost their jobs.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    decide::Decision,
    order::{Order, OrderStatus},
};

use super::{
    pages::STRETCH,
    repair::{changed_jobs, log_and_continue},
};
use crate::capability::Maintenance;
use foundation::{error::ServiceError, loops::report_progress};
use orders::{compensation, fleet, seen::Basis};
use queue::NewJob;

/// Time after the end of the lifetime at which an order is ended here, without a job.
const FAR_OVERDUE: Duration = Duration::from_secs(60);

fn is_far_overdue(order: &Order, now: DateTime<Utc>) -> bool {
    let long_ago = now - FAR_OVERDUE;
    order.is_past_lifetime(long_ago) || (order.status == OrderStatus::Compensating && order.updated_at < long_ago)
}

/// Ends every order far past its lifetime, using only Postgres, because Redis may have lost its job. Returns their
/// number.
///
/// Their follow-up jobs are enqueued if Redis accepts them; otherwise the reconciler enqueues them later.
pub async fn end_far_overdue(maintenance: &Maintenance) -> Result<u64, ServiceError> {
    let (mut ended, mut after, mut redis_answers) = (0, String::new(), true);
    loop {
        // Each statement reads this many open orders, even if few of them are overdue.
        let (last, page): (Option<String>, Vec<String>) = sqlx::query_as(include_str!("end_far_overdue.sql"))
            .bind(&after)
            .bind(FAR_OVERDUE.as_secs_f64())
            .bind(STRETCH)
            .fetch_one(&maintenance.core.db)
            .await?;
        let Some(last) = last else { return Ok(ended) };
        after = last;
        let mut follow_ups = Vec::new();
        for order in page.iter().filter_map(|id| id.parse::<OrderId>().ok()) {
            if let Some(jobs) = log_and_continue(end_order(maintenance, &order).await, &order)? {
                ended += 1;
                follow_ups.extend(jobs);
            }
            report_progress();
        }
        if redis_answers && let Err(error) = maintenance.core.queue().enqueue(&follow_ups).await {
            tracing::warn!(%error, "Orders past their lifetime were ended; the reconciler enqueues their jobs when Redis responds.");
            redis_answers = false;
        }
    }
}

/// Ends an order without its job. Returns the jobs that it must have now, or `None` if it did not have to end.
async fn end_order(maintenance: &Maintenance, id: &OrderId) -> Result<Option<Vec<NewJob>>, ServiceError> {
    let ended = maintenance
        .orders
        .change(id, Basis::Fresh, |s| {
            if !is_far_overdue(&s.order, s.now) {
                Decision::Unchanged
            } else if s.order.status == OrderStatus::Compensating {
                compensation::decide::compensate_order(s).into()
            } else {
                fleet::decide::end_lifetime(s).into()
            }
        })
        .await;
    changed_jobs(&maintenance.orders, ended).await
}
