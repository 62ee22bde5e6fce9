//! Jobs that Redis must have for plans.

use chrono::{DateTime, Utc};
use model::{ids::PlanId, plan::plan_job};

use super::store;
use foundation::db::Pool;
use queue::NewJob;

/// Rows read at a time.
const PAGE: i64 = 500;

/// Job that a running plan must have, and the due time from its row.
#[derive(Debug)]
pub struct PlanTimer {
    pub job: NewJob,
    pub due: DateTime<Utc>,
}

/// Returns one page of the jobs that running plans must have, and the last plan of the page. With `overdue_secs`, only
/// plans that are overdue by at least this time.
pub async fn next_page(
    db: &Pool,
    after: PlanId,
    overdue_secs: Option<f64>,
) -> Result<Option<(Vec<PlanTimer>, PlanId)>, sqlx::Error> {
    let rows = store::list_running(db, after, overdue_secs, PAGE).await?;
    let Some(last) = rows.last() else { return Ok(None) };
    let timer = |row: &store::RunningPlan| PlanTimer { job: plan_job(row.id, row.next_at, row.now), due: row.next_at };
    Ok(Some((rows.iter().map(timer).collect(), last.id)))
}
