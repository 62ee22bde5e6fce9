//! What Redis must have of bindings: the limits, the slots of open calls, and the one job of each row.

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

/// Rows read at a time.
const PAGE: i64 = 500;
/// Rows that one statement looks at for overdue ones: no index knows their times, because they change at every step.
const STRETCH: i64 = 5000;

/// From the begin of a rebuild until it reads the open calls for the last time. Longer than [`QUICK_CLAIM`](super::slots::QUICK_CLAIM): slots were given before
/// Redis lost them, so all quick claims are written by then.
const QUICK_CLAIMS_WRITTEN: Duration = Duration::from_millis(300);

/// What one look at the rows yields.
#[derive(Debug)]
pub struct BindingJobPage {
    pub rows: u64,
    pub timers: Vec<BindingTimer>,
    /// The last id that was looked at; the next page begins after it.
    pub last: String,
}

/// One page of the jobs that bindings must have. `overdue_secs`: only of rows whose time passed so long ago.
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

/// Where a walk over UNRESOLVED transactions is.
pub type UnresolvedCursor = (DateTime<Utc>, String, i64);

/// One page of the jobs that UNRESOLVED transactions must have, those that are due first.
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

/// Before the epoch is written: limits, then the slots of calls that are open, then those that are overdue line up by their
/// time. All other jobs are put back as those of orders are. Returns whether a binding may call.
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

/// Immediately before the epoch is written: counts the calls that were claimed since their rows were read, with slots from before Redis
/// lost them. A worker whose claim took longer looks at its slots again, and makes no call without them. `begun`: after that loss.
pub async fn restore_late_claims(bindings: &Bindings, begun: Instant) -> Result<(), ServiceError> {
    tokio::time::sleep(QUICK_CLAIMS_WRITTEN.saturating_sub(begun.elapsed())).await;
    let (rows, now) = list_calling(&bindings.core.db).await?;
    bindings.core.store.restore_slots(&list_open_calls(bindings, &rows, now).await?).await?;
    Ok(())
}

/// The bindings whose call is open, and the time by which that is judged. Once for each rebuild: it looks at every binding that has a timer.
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

/// Returns whether the job of this row is to make a call.
fn may_call(row: &Binding) -> bool {
    row.phase != BindingPhase::WaitingOtp || row.otp_value.is_some()
}

/// The open calls of these rows, whose slots count until their time is over: at the server that they go to, in the name of
/// the job that makes them.
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
