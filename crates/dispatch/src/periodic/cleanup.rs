//! Removes what has served its time: in small statements, so that no change waits for them, and repeatable at any point.
//!
//! Times are bound and not asked of `dispatchq_now()` row by row, and each batch is the oldest by an index: its cost does not
//! grow with the table. A sweep that fails keeps no other from its work; the job fails afterwards, and says of what.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use workers::store::DeadFilter;

use crate::{
    app::App,
    config::RetentionConfig,
    db::{self, Pool},
    error::ServiceError,
};

/// Rows of one statement: few, so that it takes milliseconds.
const BATCH: i64 = 250;
/// Orders of one statement. Each takes some ten rows of other tables along.
const ORDERS_BATCH: i64 = 100;
/// Dead jobs of one script call.
const DEAD_BATCH: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupMode {
    Remove,
    /// Only counts.
    DryRun,
}

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CleanupReport {
    /// Closed orders with their offers, messages and alerts. Never one whose refund is owed or that has an open alert.
    pub orders: u64,
    /// Offer messages that are done with, of orders that stay, and what was told of orders that never were.
    pub messages: u64,
    /// Why drivers were asked in their order.
    pub rankings: u64,
    pub idempotency_keys: u64,
    /// Runs of schedules, snapshots of queues and areas, notes of the reconciler, callbacks without an order, dead letters decided
    /// on.
    pub records: u64,
    pub dead_jobs: u64,
    /// Sweeps that failed, and why. What they had removed by then is counted.
    pub failed: Vec<String>,
}

/// Removes what is older than `[retention]` says. Fails after the last sweep if one of them failed, and at once when a server
/// is away.
pub async fn run(app: &App, mode: CleanupMode) -> Result<CleanupReport, ServiceError> {
    let report = run_all(app, mode).await?;
    if !report.failed.is_empty() {
        return Err(ServiceError::Incomplete(format!("cleanup failed in part: {}", report.failed.join("; "))));
    }
    Ok(report)
}

/// As [`run`], with the failures in the report.
pub async fn run_all(app: &App, mode: CleanupMode) -> Result<CleanupReport, ServiceError> {
    let keep = &app.config.retention;
    let mut sweeper = TableSweeper { db: &app.db, now: db::database_now(&app.db).await?, mode, failed: Vec::new() };
    let mut report = CleanupReport {
        orders: sweeper.sweep_orders(keep.orders).await?,
        messages: sweeper.sweep_table(&OFFERS, keep.messages).await?
            + sweeper.sweep_table(&MESSAGES, keep.messages).await?
            + sweeper.sweep_table(&ALERTS, keep.messages).await?,
        rankings: sweeper.sweep_table(&RANKINGS, keep.messages).await?,
        idempotency_keys: sweeper.sweep_table(&IDEMPOTENCY_KEYS, RetentionConfig::IDEMPOTENCY_KEYS).await?,
        // As long as the history of orders: it says who decided what.
        records: sweeper.sweep_table(&AREA_CHANGES, keep.events).await?,
        ..CleanupReport::default()
    };
    report.records += sweeper.sweep_table(&ERASURES, keep.erasures).await?;
    for table in [&RUNS, &SNAPSHOTS, &AREA_SNAPSHOTS, &RECONCILE_LOG, &CALLBACKS, &DEAD_LETTERS] {
        report.records += sweeper.sweep_table(table, keep.records).await?;
    }
    if mode == CleanupMode::Remove {
        // First: a flush in between must not bring back what is about to go.
        sweeper.sweep_table(&EXPIRED_DEAD_LETTERS, keep.dead_jobs).await?;
    }
    report.failed = sweeper.failed;
    for queue in jobs::queues::ALL {
        report.dead_jobs += remove_dead_jobs(app, queue, keep.dead_jobs, mode).await?;
    }
    Ok(report)
}

async fn remove_dead_jobs(app: &App, queue: &str, keep: Duration, mode: CleanupMode) -> Result<u64, ServiceError> {
    let mut total = 0;
    if mode == CleanupMode::DryRun {
        let filter = DeadFilter { older_than: keep, ..DeadFilter::default() };
        let mut cursor = None;
        loop {
            let page = app.store.list_dead(queue, &filter, cursor.as_ref()).await?;
            total += page.entries.len() as u64;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(total);
            }
        }
    }
    loop {
        let discarded = app.store.discard_dead_older_than(queue, keep, DEAD_BATCH).await?;
        total += discarded as u64;
        if discarded < DEAD_BATCH {
            return Ok(total);
        }
    }
}

/// A table, how old rows of it are counted, and how a batch of the oldest is removed. `$1` is a time, `$2` the batch.
#[derive(Debug)]
pub struct TableSweep {
    pub what: &'static str,
    pub count: &'static str,
    pub remove: &'static str,
}

/// Sweeps one table after the other.
struct TableSweeper<'a> {
    db: &'a Pool,
    now: DateTime<Utc>,
    mode: CleanupMode,
    failed: Vec<String>,
}

/// Where the walk over closed orders is: time of closing and id of the last one looked at.
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

    /// Walks over closed orders, the oldest first. Each statement looks at a batch of them and removes those that may go, so
    /// that many that may not cost one look and not one for each batch behind them.
    async fn sweep_orders(&mut self, keep: Duration) -> Result<u64, sqlx::Error> {
        let before = self.now - keep;
        let statement = if self.mode == CleanupMode::DryRun { ORDERS.count } else { ORDERS.remove };
        let mut removed = 0;
        let done = async {
            let (mut closed_at, mut id): Cursor = (DateTime::UNIX_EPOCH, String::new());
            loop {
                let seen: Option<(i64, DateTime<Utc>, String)> = sqlx::query_as(statement)
                    .bind(before)
                    .bind(ORDERS_BATCH)
                    .bind(closed_at)
                    .bind(&id)
                    .fetch_optional(self.db)
                    .await?;
                let Some((batch, last_closed_at, last_id)) = seen else { return Ok(()) };
                removed += batch.unsigned_abs();
                (closed_at, id) = (last_closed_at, last_id);
            }
        }
        .await;
        self.record_failure(ORDERS.what, done)?;
        Ok(removed)
    }

    /// Takes a failed sweep down. A database that is away ends the run: no other sweep would fare better.
    fn record_failure(&mut self, what: &str, done: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
        let Err(error) = done else { return Ok(()) };
        let code =
            error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned();
        // A statement that is slow, or that waits for a lock, says nothing about the next one.
        let is_its_own = ["57014", "55P03"].contains(&code.as_str());
        if db::is_transient(&error) && !is_its_own {
            return Err(error);
        }
        tracing::error!(sweep = what, %error, "Cleanup could not remove what has served its time; it goes on.");
        self.failed.push(format!("{what}: {error}"));
        Ok(())
    }
}

/// Every sweep, for tests of their plans.
pub const SWEEPS: [&TableSweep; 15] = [
    &ORDERS,
    &OFFERS,
    &MESSAGES,
    &ALERTS,
    &RANKINGS,
    &IDEMPOTENCY_KEYS,
    &AREA_CHANGES,
    &ERASURES,
    &RUNS,
    &SNAPSHOTS,
    &AREA_SNAPSHOTS,
    &RECONCILE_LOG,
    &CALLBACKS,
    &DEAD_LETTERS,
    &EXPIRED_DEAD_LETTERS,
];

// The first condition is that of the index orders_removable: the order is closed and its refund is not owed.
const ORDERS: TableSweep = TableSweep {
    what: "orders",
    count: "-- count old orders
            WITH seen AS MATERIALIZED (
                SELECT id, closed_at FROM orders
                WHERE (status IN ('COMPLETED', 'CANCELLED_BY_SYSTEM', 'REFUNDED')
                       OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')
                           AND payment_status NOT IN ('PAID', 'SETTLEMENT')))
                  AND closed_at < $1 AND (closed_at, id) > ($3, $4)
                ORDER BY closed_at, id LIMIT $2),
            old AS (
                SELECT id FROM seen s
                WHERE NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = s.id AND m.state = 'pending')
                  AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = s.id AND b.state = 'cancel_wanted')
                  AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = s.id AND a.acked_at IS NULL))
            SELECT (SELECT count(*) FROM old), closed_at, id FROM seen ORDER BY closed_at DESC, id DESC LIMIT 1",
    remove: "-- remove old orders
             WITH seen AS MATERIALIZED (
                 SELECT id, closed_at FROM orders
                 WHERE (status IN ('COMPLETED', 'CANCELLED_BY_SYSTEM', 'REFUNDED')
                        OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')
                            AND payment_status NOT IN ('PAID', 'SETTLEMENT')))
                   AND closed_at < $1 AND (closed_at, id) > ($3, $4)
                 ORDER BY closed_at, id LIMIT $2),
             old AS MATERIALIZED (
                 SELECT id FROM seen s
                 WHERE NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = s.id AND m.state = 'pending')
                   AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = s.id AND b.state = 'cancel_wanted')
                   AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = s.id AND a.acked_at IS NULL)),
             f AS (DELETE FROM offers WHERE order_id IN (SELECT id FROM old)),
             b AS (DELETE FROM bookings WHERE order_id IN (SELECT id FROM old)),
             p AS (DELETE FROM payment_events WHERE order_id IN (SELECT id FROM old)),
             i AS (DELETE FROM inbox WHERE order_id IN (SELECT id FROM old)),
             m AS (DELETE FROM outbox WHERE order_id IN (SELECT id FROM old)),
             a AS (DELETE FROM alerts WHERE order_id IN (SELECT id FROM old)),
             e AS (DELETE FROM order_events_kept WHERE order_id IN (SELECT id FROM old)),
             o AS (DELETE FROM orders WHERE id IN (SELECT id FROM old) RETURNING 1)
             SELECT (SELECT count(*) FROM o), closed_at, id FROM seen ORDER BY closed_at DESC, id DESC LIMIT 1",
};

const OFFERS: TableSweep = TableSweep {
    what: "offer messages",
    count: "-- count old offer messages
            SELECT count(*) FROM outbox WHERE kind = 'OFFER' AND state <> 'pending' AND created_at < $1",
    remove: "-- remove old offer messages
             DELETE FROM outbox WHERE id IN (
                 SELECT id FROM outbox WHERE kind = 'OFFER' AND state <> 'pending' AND created_at < $1
                 ORDER BY created_at LIMIT $2)",
};

// Messages go with their order; these are about an order that may never have been.
const MESSAGES: TableSweep = TableSweep {
    what: "messages",
    count: "-- count old messages
            SELECT count(*) FROM outbox m
            WHERE kind = 'FAILED_TO_GET_ORDER' AND state <> 'pending' AND created_at < $1
              AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = m.order_id)",
    remove: "-- remove old messages
             DELETE FROM outbox WHERE id IN (
                 SELECT id FROM outbox m
                 WHERE kind = 'FAILED_TO_GET_ORDER' AND state <> 'pending' AND created_at < $1
                   AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = m.order_id)
                 ORDER BY created_at LIMIT $2)",
};

// Those about an order that never was, once they are acknowledged.
const ALERTS: TableSweep = TableSweep {
    what: "alerts",
    count: "-- count old alerts
            SELECT count(*) FROM alerts a
            WHERE kind = 'FAILED_TO_GET_ORDER' AND acked_at IS NOT NULL AND raised_at < $1
              AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = a.order_id)",
    remove: "-- remove old alerts
             DELETE FROM alerts WHERE id IN (
                 SELECT id FROM alerts a
                 WHERE kind = 'FAILED_TO_GET_ORDER' AND acked_at IS NOT NULL AND raised_at < $1
                   AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = a.order_id)
                 ORDER BY raised_at LIMIT $2)",
};

// Callbacks of orders go with their orders; those of unknown bookings have no order.
const CALLBACKS: TableSweep = TableSweep {
    what: "callbacks",
    count: "-- count old callbacks
            SELECT count(*) FROM inbox WHERE state = 'unmatched' AND received_at < $1",
    remove: "-- remove old callbacks
             DELETE FROM inbox WHERE id IN (
                 SELECT id FROM inbox WHERE state = 'unmatched' AND received_at < $1 ORDER BY received_at LIMIT $2)",
};

const RANKINGS: TableSweep = TableSweep {
    what: "rankings",
    count: "-- count old rankings
            SELECT count(*) FROM rankings WHERE at < $1",
    remove: "-- remove old rankings
             DELETE FROM rankings WHERE (order_id, attempt_no) IN (
                 SELECT order_id, attempt_no FROM rankings WHERE at < $1 ORDER BY at LIMIT $2)",
};

const AREA_CHANGES: TableSweep = TableSweep {
    what: "changes of areas",
    count: "-- count old changes of areas
            SELECT count(*) FROM admission_audit WHERE at < $1",
    remove: "-- remove old changes of areas
             DELETE FROM admission_audit WHERE id IN (
                 SELECT id FROM admission_audit WHERE at < $1 ORDER BY at LIMIT $2)",
};

const ERASURES: TableSweep = TableSweep {
    what: "erasures",
    count: "-- count old erasures
            SELECT count(*) FROM erasures WHERE erased_at < $1",
    remove: "-- remove old erasures
             DELETE FROM erasures WHERE id IN (
                 SELECT id FROM erasures WHERE erased_at < $1 ORDER BY erased_at LIMIT $2)",
};

const IDEMPOTENCY_KEYS: TableSweep = TableSweep {
    what: "idempotency keys",
    count: "-- count old idempotency keys
            SELECT count(*) FROM idempotency_keys WHERE created_at < $1",
    remove: "-- remove old idempotency keys
             DELETE FROM idempotency_keys WHERE (api_key_id, key) IN (
                 SELECT api_key_id, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
};

const RUNS: TableSweep = TableSweep {
    what: "schedule runs",
    count: "-- count old schedule runs
            SELECT count(*) FROM schedule_runs WHERE slot < $1",
    remove: "-- remove old schedule runs
             DELETE FROM schedule_runs WHERE (name, slot) IN (
                 SELECT name, slot FROM schedule_runs WHERE slot < $1 ORDER BY slot LIMIT $2)",
};

const SNAPSHOTS: TableSweep = TableSweep {
    what: "snapshots of queues",
    count: "-- count old snapshots
            SELECT count(*) FROM queue_snapshots WHERE at < $1",
    remove: "-- remove old snapshots
             DELETE FROM queue_snapshots WHERE (at, queue) IN (
                 SELECT at, queue FROM queue_snapshots WHERE at < $1 ORDER BY at LIMIT $2)",
};

const AREA_SNAPSHOTS: TableSweep = TableSweep {
    what: "snapshots of areas",
    count: "-- count old area snapshots
            SELECT count(*) FROM waiting_snapshots WHERE at < $1",
    remove: "-- remove old area snapshots
             DELETE FROM waiting_snapshots WHERE (at, area_id, service_type) IN (
                 SELECT at, area_id, service_type FROM waiting_snapshots WHERE at < $1 ORDER BY at LIMIT $2)",
};

const RECONCILE_LOG: TableSweep = TableSweep {
    what: "reconciliations",
    count: "-- count old reconciliations
            SELECT count(*) FROM reconcile_log WHERE at < $1",
    remove: "-- remove old reconciliations
             DELETE FROM reconcile_log WHERE at IN (SELECT at FROM reconcile_log WHERE at < $1 ORDER BY at LIMIT $2)",
};

const DEAD_LETTERS: TableSweep = TableSweep {
    what: "dead letters",
    count: "-- count old dead letters
            SELECT count(*) FROM dead_letters WHERE resolved_at < $1",
    remove: "-- remove old dead letters
             DELETE FROM dead_letters WHERE (job_id, died_at) IN (
                 SELECT job_id, died_at FROM dead_letters WHERE resolved_at < $1 ORDER BY resolved_at LIMIT $2)",
};

/// The copies of dead jobs that were not decided on; they stay as records for a while.
const EXPIRED_DEAD_LETTERS: TableSweep = TableSweep {
    what: "expired dead letters",
    count: "-- count expired dead letters
            SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL AND died_at <= $1",
    remove: "-- expire dead letters
             UPDATE dead_letters SET resolved_at = dispatchq_now(), resolved_by = 'cleanup', resolved_how = 'expired',
                    resolved_why = 'no one decided on it in time'
             WHERE (job_id, died_at) IN (
                 SELECT job_id, died_at FROM dead_letters
                 WHERE resolved_at IS NULL AND died_at <= $1 ORDER BY died_at LIMIT $2)",
};
