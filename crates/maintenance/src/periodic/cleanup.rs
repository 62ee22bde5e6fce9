//! Removes rows after their retention time. The statements are small, so that changes do not wait for them, and can be
//! repeated at any point.
//!
//! Times are bound as parameters instead of evaluating `dispatchq_now()` per row. Each batch takes the oldest rows by
//! index, so its cost does not grow with the table. If a sweep fails, the others still run, and the job fails at the
//! end with the names of the failed sweeps. Cleanup also finishes interrupted erasures.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::{
    capability::Maintenance,
    periodic::{
        binding_sweeps,
        sweeps::{self, TableSweep},
    },
};
use desk::privacy;
use foundation::{
    core::Core,
    db::{self, Pool},
    error::ServiceError,
};
use queue::store::DeadFilter;
use settings::RetentionConfig;

/// Rows of one statement; few, so that it takes milliseconds.
const BATCH: i64 = 250;
/// Orders or transactions of one statement. Each has about ten rows in other tables.
const FAMILY_BATCH: i64 = 100;
/// Dead jobs of one script call.
const DEAD_BATCH: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupMode {
    Remove,
    /// Only counts the rows.
    DryRun,
}

/// Number of rows that were removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CleanupReport {
    /// Closed orders with their offers, messages and alerts. Orders with an owed refund or an open alert are kept.
    pub orders: u64,
    /// Finished offer messages of orders that are kept, messages about orders that do not exist, messages about
    /// bindings, and acknowledged alerts about bindings.
    pub messages: u64,
    pub rankings: u64,
    pub idempotency_keys: u64,
    /// Steps of orders, runs of schedules, snapshots of queues, areas and totals, admission counts, shadow refusals,
    /// reconciler log entries, callbacks without an order, decided dead letters, plans with their items, and expired
    /// desk claims.
    pub records: u64,
    pub dead_jobs: u64,
    /// Final transactions of bindings, with their calls. The newest transaction of a binding is kept, and so are those
    /// after one that is not final.
    pub transactions: u64,
    /// Deleted bindings without transactions.
    pub bindings: u64,
    /// Failed sweeps with their errors. Rows that they removed before the failure are counted.
    pub failed: Vec<String>,
}

/// Removes rows that are older than `[retention]`. If a sweep fails, the function runs the others and then fails. It
/// fails immediately if a server is unavailable.
pub async fn run(maintenance: &Maintenance, mode: CleanupMode) -> Result<CleanupReport, ServiceError> {
    let report = run_all(maintenance, mode).await?;
    if !report.failed.is_empty() {
        return Err(ServiceError::Incomplete(format!("cleanup failed in part: {}", report.failed.join("; "))));
    }
    Ok(report)
}

/// Same as [`run`], but returns failed sweeps in the report.
pub async fn run_all(maintenance: &Maintenance, mode: CleanupMode) -> Result<CleanupReport, ServiceError> {
    let keep = &maintenance.config.retention;
    let mut sweeper = TableSweeper {
        db: &maintenance.core.db,
        now: db::database_now(&maintenance.core.db).await?,
        mode,
        failed: Vec::new(),
    };
    let mut report = CleanupReport {
        orders: sweeper.walk_table(&sweeps::ORDERS, keep.orders).await?,
        messages: sweeper.sweep_table(&sweeps::OFFERS, keep.messages).await?
            + sweeper.sweep_table(&sweeps::MESSAGES, keep.messages).await?
            + sweeper.sweep_table(&binding_sweeps::BINDING_MESSAGES, keep.messages).await?
            + sweeper.sweep_table(&binding_sweeps::BINDING_ALERTS, keep.messages).await?
            + sweeper.sweep_table(&sweeps::ALERTS, keep.messages).await?,
        rankings: sweeper.sweep_table(&sweeps::RANKINGS, keep.messages).await?,
        idempotency_keys: sweeper.sweep_table(&sweeps::IDEMPOTENCY_KEYS, RetentionConfig::IDEMPOTENCY_KEYS).await?,
        // Kept as long as the history of orders, because these records show the authors of decisions.
        records: sweeper.sweep_table(&sweeps::AREA_CHANGES, keep.events).await?
            + sweeper.sweep_table(&sweeps::FEED, keep.events).await?
            + sweeper.sweep_table(&sweeps::STAFF_ACTIONS, keep.events).await?
            + sweeper.sweep_table(&sweeps::STAFF_REQUESTS, keep.events).await?
            + sweeper.sweep_table(&binding_sweeps::BINDING_EVENTS, keep.events).await?,
        transactions: sweeper.walk_table(&binding_sweeps::TRANSACTIONS, keep.transactions).await?,
        ..CleanupReport::default()
    };
    report.bindings = sweeper.sweep_table(&binding_sweeps::DELETED_BINDINGS, keep.transactions).await?;
    report.records += sweeper.sweep_table(&sweeps::ERASURES, keep.erasures).await?;
    // The record in `staff_actions` remains.
    report.records += sweeper.sweep_table(&sweeps::DESK_TAKES, Duration::ZERO).await?;
    for table in [
        &sweeps::SESSIONS,
        &sweeps::PEOPLES_KEYS,
        &sweeps::RUNS,
        &sweeps::SNAPSHOTS,
        &sweeps::AREA_SNAPSHOTS,
        &sweeps::GLANCE_SNAPSHOTS,
        &sweeps::ADMISSION_COUNTS,
        &sweeps::SHADOW_REFUSALS,
        &sweeps::RECONCILE_LOG,
        &sweeps::CALLBACKS,
        &sweeps::DEAD_LETTERS,
        &sweeps::PLAN_ITEMS,
        &sweeps::PLANS,
    ] {
        report.records += sweeper.sweep_table(table, keep.records).await?;
    }
    if mode == CleanupMode::Remove {
        // Runs before the removal in Redis. Otherwise a flush in between would restore these dead letters.
        sweeper.sweep_table(&sweeps::EXPIRED_DEAD_LETTERS, keep.dead_jobs).await?;
    }
    report.failed = sweeper.failed;
    for queue in jobs::queues::ALL {
        report.dead_jobs += remove_dead_jobs(&maintenance.core, queue, keep.dead_jobs, mode).await?;
    }
    if mode == CleanupMode::Remove {
        // Runs last, because an erasure may take longer than this run has left. The next run continues it.
        report.failed.extend(privacy::resume_erasures(&maintenance.core).await?);
    }
    Ok(report)
}

async fn remove_dead_jobs(core: &Core, queue: &str, keep: Duration, mode: CleanupMode) -> Result<u64, ServiceError> {
    let mut total = 0;
    if mode == CleanupMode::DryRun {
        let filter = DeadFilter { older_than: keep, ..DeadFilter::default() };
        let mut cursor = None;
        loop {
            let page = core.queue().list_dead(queue, &filter, cursor.as_ref()).await?;
            total += page.entries.len() as u64;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(total);
            }
        }
    }
    loop {
        let discarded = core.queue().discard_dead_older_than(queue, keep, DEAD_BATCH).await?;
        total += discarded as u64;
        if discarded < DEAD_BATCH {
            return Ok(total);
        }
    }
}

/// Sweeps one table after the other.
struct TableSweeper<'a> {
    db: &'a Pool,
    now: DateTime<Utc>,
    mode: CleanupMode,
    failed: Vec<String>,
}

/// Position of a scan: time and id of the last row.
type Cursor = (DateTime<Utc>, String);

impl TableSweeper<'_> {
    async fn sweep_table(&mut self, table: &TableSweep, keep: Duration) -> Result<u64, sqlx::Error> {
        let before = self.now - keep;
        let mut removed = 0;
        let done = async {
            if self.mode == CleanupMode::DryRun {
                let count: i64 = sqlx::query_scalar(table.count).bind(before).fetch_one(self.db).await?;
                removed = count.unsigned_abs();
                return Ok(());
            }
            loop {
                let batch = sqlx::query(table.remove).bind(before).bind(BATCH).execute(self.db).await?.rows_affected();
                removed += batch;
                if batch < BATCH.unsigned_abs() {
                    return Ok(());
                }
            }
        }
        .await;
        self.record_failure(table.what, done)?;
        Ok(removed)
    }

    /// Scans a table from its oldest rows on. Each statement reads a batch and removes the rows that may be removed.
    /// Rows that must stay are therefore read once, not once for each batch after them.
    async fn walk_table(&mut self, table: &TableSweep, keep: Duration) -> Result<u64, sqlx::Error> {
        let before = self.now - keep;
        let statement = if self.mode == CleanupMode::DryRun { table.count } else { table.remove };
        let mut removed = 0;
        let done = async {
            let (mut at, mut id): Cursor = (DateTime::UNIX_EPOCH, String::new());
            loop {
                let seen: Option<(i64, DateTime<Utc>, String)> = sqlx::query_as(statement)
                    .bind(before)
                    .bind(FAMILY_BATCH)
                    .bind(at)
                    .bind(&id)
                    .fetch_optional(self.db)
                    .await?;
                let Some((batch, last_at, last_id)) = seen else { return Ok(()) };
                removed += batch.unsigned_abs();
                (at, id) = (last_at, last_id);
            }
        }
        .await;
        self.record_failure(table.what, done)?;
        Ok(removed)
    }

    /// Records a failed sweep. If the database is unavailable, the run ends, because the other sweeps would fail too.
    fn record_failure(&mut self, what: &str, done: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
        let Err(error) = done else { return Ok(()) };
        let code =
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned();
        // A statement timeout or lock timeout does not affect the next statement.
        let is_its_own = ["57014", "55P03"].contains(&code.as_str());
        if db::is_transient(&error) && !is_its_own {
            return Err(error);
        }
        tracing::error!(sweep = what, %error, "A sweep of the cleanup failed; the other sweeps continue.");
        self.failed.push(format!("{what}: {error}"));
        Ok(())
    }
}
