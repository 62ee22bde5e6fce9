//! Restores what Redis must contain for bindings: the limits, the slots of open calls, and the one job of each row.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::binding::{Binding, BindingPhase, BindingTimer, calling_job, derive};
use sqlx::FromRow;

use super::{servers, slots::slots_for_call};
use crate::{
    capability::Bindings,
    store::{
        load::{BINDING_COLUMNS, list_to_reconcile, read_binding},
        transactions::{OpenCallRoute, find_open_routes},
    },
};
use foundation::{core::Core, db::Pool, error::ServiceError, loops::report_progress};
use queue::{
    NewJob,
    store::{OngoingWork, WaitingJob},
};

/// Number of rows read at a time.
const PAGE: i64 = 500;
/// Number of rows that one statement searches for overdue bindings. There is no index on their times, because the times
/// change at every step.
const STRETCH: i64 = 5000;

/// Time from the start of a rebuild until it reads the open calls for the last time. It is longer than
/// [`QUICK_CLAIM`](super::slots::QUICK_CLAIM): slots were granted before Redis lost them, so by then all quick claims
/// are written.
const QUICK_CLAIMS_WRITTEN: Duration = Duration::from_millis(300);

/// Result of one page of rows.
#[derive(Debug)]
pub struct BindingJobPage {
    pub rows: u64,
    pub timers: Vec<BindingTimer>,
    /// Last id of the page; the next page starts after it.
    pub last: String,
}

/// Returns one page of the jobs that bindings must have. With `overdue_secs`, only jobs that are overdue by at least
/// this time.
pub async fn next_page(
    core: &Core,
    after: &str,
    overdue_secs: Option<f64>,
) -> Result<Option<BindingJobPage>, sqlx::Error> {
    let limit = if overdue_secs.is_some() { STRETCH } else { PAGE };
    let page = list_to_reconcile(&core.db, after, overdue_secs, limit).await?;
    Ok(page.map(|page| BindingJobPage {
        rows: page.rows.len() as u64,
        timers: page.rows.iter().filter_map(|row| derive(row, page.now)).collect(),
        last: page.last,
    }))
}

#[derive(FromRow)]
struct UnresolvedRow {
    #[sqlx(try_from = "String")]
    binding_id: BindingId,
    cycle: i64,
    settle_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

/// Position in the list of UNRESOLVED transactions.
pub type UnresolvedCursor = (DateTime<Utc>, String, i64);

/// Returns one page of the jobs that UNRESOLVED transactions must have, earliest first.
pub async fn next_unresolved(
    db: &Pool,
    after: &UnresolvedCursor,
    overdue_secs: Option<f64>,
) -> Result<Option<(Vec<BindingTimer>, UnresolvedCursor)>, sqlx::Error> {
    let rows: Vec<UnresolvedRow> = sqlx::query_as(
        "-- unresolved transactions to reconcile
         SELECT binding_id, cycle, settle_at, dispatchq_now() AS now FROM transactions
         WHERE settle_at IS NOT NULL AND (settle_at, binding_id, cycle) > ($1, $2, $3)
           AND ($4::float8 IS NULL OR settle_at < (SELECT dispatchq_now()) - $4 * interval '1 second')
         ORDER BY settle_at, binding_id, cycle LIMIT $5",
    )
    .bind(after.0)
    .bind(&after.1)
    .bind(after.2)
    .bind(overdue_secs)
    .bind(PAGE)
    .fetch_all(db)
    .await?;
    let Some(last) = rows.last() else { return Ok(None) };
    let cursor = (last.settle_at, last.binding_id.to_string(), last.cycle);
    let timer = |row: &UnresolvedRow| {
        let job = jobs::SettleTransaction { binding: row.binding_id.clone(), cycle: row.cycle.unsigned_abs() };
        let left = (row.settle_at - row.now).to_std().unwrap_or_default();
        BindingTimer { job: NewJob::after(&job, left), due: row.settle_at }
    };
    Ok(Some((rows.iter().map(timer).collect(), cursor)))
}

/// Restores limits, slots and lines before the epoch is written. The order is: limits, slots of open calls, and the
/// overdue jobs in their lines, by due time. All other jobs are restored like those of orders. Returns whether any
/// binding may call.
pub async fn restore_lines(bindings: &Bindings) -> Result<bool, ServiceError> {
    servers::publish_limits(bindings).await?;
    let mut may_any_call = false;
    let mut overdue: Vec<(DateTime<Utc>, WaitingJob)> = Vec::new();
    let mut after = String::new();
    loop {
        let Some(page) = list_to_reconcile(&bindings.core.db, &after, None, PAGE).await? else { break };
        let (rows, now) = (page.rows, page.now);
        (after, may_any_call) = (page.last, true);
        bindings.core.store.restore_slots(&list_open_calls(bindings, &rows, now).await?).await?;
        for row in &rows {
            let Some(timer) = derive(row, now).filter(|timer| timer.is_due(now) && may_call(row)) else { continue };
            if let Ok(need) = slots_for_call(bindings, &row.server_id, row) {
                overdue.push((timer.due, WaitingJob { job: timer.job, need }));
            }
        }
        bindings.mirror.copy_rows(&rows);
        report_progress();
    }
    overdue.sort_by_key(|(due, _)| *due);
    let lines: Vec<WaitingJob> = overdue.into_iter().map(|(_, waiting)| waiting).collect();
    bindings.core.store.park_jobs(&lines).await?;
    report_progress();
    Ok(may_any_call)
}

/// Restores the slots of calls that were claimed after their rows were read, immediately before the epoch is written.
/// Their slots were granted before Redis lost them. A worker with a slower claim checks its slots and makes no call
/// without them. `begun` is a time after the loss.
pub async fn restore_late_claims(bindings: &Bindings, begun: Instant) -> Result<(), ServiceError> {
    tokio::time::sleep(QUICK_CLAIMS_WRITTEN.saturating_sub(begun.elapsed())).await;
    let (rows, now) = list_calling(&bindings.core.db).await?;
    bindings.core.store.restore_slots(&list_open_calls(bindings, &rows, now).await?).await?;
    Ok(())
}

/// Returns the bindings with an open call, and the time of the check. It reads every binding that has a timer, so it
/// runs once per rebuild.
async fn list_calling(db: &Pool) -> Result<(Vec<Binding>, DateTime<Utc>), sqlx::Error> {
    let mut session = db.acquire().await?;
    let now: DateTime<Utc> = sqlx::query_scalar(
        "-- time of open calls
         SELECT dispatchq_now()",
    )
    .fetch_one(&mut session)
    .await?;
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
        "-- bindings with an open call
         SELECT {BINDING_COLUMNS} FROM bindings b WHERE b.needs_timer AND b.call_until > $1"
    )))
    .bind(now)
    .fetch_all(&mut session)
    .await?;
    Ok((rows.iter().filter_map(read_binding).collect(), now))
}

/// Returns whether the job of this row will make a call.
fn may_call(row: &Binding) -> bool {
    row.phase != BindingPhase::WaitingOtp || row.otp_value.is_some()
}

/// Returns the open calls of these rows. Their slots are held until the end of the call, at the server of the call, for
/// the job that makes it.
async fn list_open_calls(
    bindings: &Bindings,
    rows: &[Binding],
    now: DateTime<Utc>,
) -> Result<Vec<OngoingWork>, sqlx::Error> {
    let open: Vec<&Binding> = rows.iter().filter(|row| row.call_until.is_some_and(|until| until > now)).collect();
    let routes = find_open_routes(&bindings.core.db, &open).await?;
    let work = |row: &&Binding| ongoing_work(bindings, row, routes.get(&row.id), now);
    Ok(open.iter().filter_map(work).collect())
}

fn ongoing_work(
    bindings: &Bindings,
    row: &Binding,
    route: Option<&OpenCallRoute>,
    now: DateTime<Utc>,
) -> Option<OngoingWork> {
    let left = (row.call_until? - now).to_std().ok()?;
    let server = route.map_or(&row.server_id, |route| &route.server_id);
    let id = calling_job(row, route.is_some_and(|route| route.follows_loss))?;
    let need = slots_for_call(bindings, server, row).ok()?;
    Some(OngoingWork { queue: jobs::queues::BINDING, id, need, left })
}
