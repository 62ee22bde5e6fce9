//! What has served its time goes: in small transactions, so that nobody waits for them, and repeatable at any point.

use std::time::Duration;

use serde::Serialize;
use sqlx::PgPool;
use workers::store::DeadFilter;

use crate::{app::App, config::RetentionConfig};

/// Rows of one transaction.
const BATCH: i64 = 1000;
/// Dead jobs of one script call.
const DEAD_BATCH: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Remove,
    /// Only counts.
    DryRun,
}

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Closed orders with their offers, messages and alerts.
    pub orders: u64,
    /// Daily partitions of the history.
    pub event_partitions: Vec<String>,
    /// Offer messages that are done with, of orders that stay, and what was told of orders that never were.
    pub messages: u64,
    /// Why drivers were asked in their order.
    pub rankings: u64,
    pub idempotency_keys: u64,
    /// Runs of schedules, snapshots of queues and areas, notes of the reconciler, callbacks without an order, dead letters decided
    /// on.
    pub records: u64,
    pub dead_jobs: u64,
}

/// Removes what is older than `[retention]` says.
pub async fn run(app: &App, mode: Mode) -> anyhow::Result<Report> {
    let keep = &app.config.retention;
    let db = &app.db;
    let records = [&RUNS, &SNAPSHOTS, &AREA_SNAPSHOTS, &RECONCILE_LOG, &CALLBACKS, &DEAD_LETTERS];
    let mut report = Report {
        orders: sweep(db, &ORDERS, keep.orders, mode).await?,
        messages: sweep(db, &MESSAGES, keep.messages, mode).await? + sweep(db, &ALERTS, keep.messages, mode).await?,
        rankings: sweep(db, &RANKINGS, keep.messages, mode).await?,
        idempotency_keys: sweep(db, &IDEMPOTENCY_KEYS, RetentionConfig::IDEMPOTENCY_KEYS, mode).await?,
        ..Report::default()
    };
    // As long as the history of orders: it says who decided what.
    report.records += sweep(db, &AREA_CHANGES, keep.events, mode).await?;
    report.records += sweep(db, &ERASURES, keep.erasures, mode).await?;
    for table in records {
        report.records += sweep(db, table, keep.records, mode).await?;
    }
    if mode == Mode::Remove {
        // First: a flush in between must not bring back what is about to go.
        sweep(db, &EXPIRED_DEAD_LETTERS, keep.dead_jobs, mode).await?;
    }
    for queue in jobs::queues::ALL {
        report.dead_jobs += dead_jobs(app, queue, keep.dead_jobs, mode).await?;
    }
    // After the orders: no order outlives its history.
    report.event_partitions = sqlx::query_scalar(
        "-- drop event partitions
         SELECT dispatchq_drop_event_partitions(dispatchq_now() - $1 * interval '1 second', $2)",
    )
    .bind(keep.events.as_secs_f64())
    .bind(mode == Mode::DryRun)
    .fetch_all(db)
    .await?;
    Ok(report)
}

async fn dead_jobs(app: &App, queue: &str, keep: Duration, mode: Mode) -> anyhow::Result<u64> {
    let mut total = 0;
    if mode == Mode::DryRun {
        let filter = DeadFilter { older_than: keep, ..DeadFilter::default() };
        let mut cursor = None;
        loop {
            let page = app.store.dead(queue, &filter, cursor.as_ref()).await?;
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

/// A table, how old rows of it are counted, and how a batch of them is removed.
struct Sweep {
    count: &'static str,
    remove: &'static str,
}

async fn sweep(db: &PgPool, table: &Sweep, keep: Duration, mode: Mode) -> Result<u64, sqlx::Error> {
    let seconds = keep.as_secs_f64();
    if mode == Mode::DryRun {
        let count: i64 = sqlx::query_scalar(table.count).bind(seconds).fetch_one(db).await?;
        return Ok(count.unsigned_abs());
    }
    let mut removed = 0;
    loop {
        let batch = sqlx::query(table.remove).bind(seconds).bind(BATCH).execute(db).await?.rows_affected();
        removed += batch;
        if batch < BATCH.unsigned_abs() {
            return Ok(removed);
        }
    }
}

// An order closes after it is created: the second condition adds nothing but the index by age.
const ORDERS: Sweep = Sweep {
    count: "-- count old orders
            SELECT count(*) FROM orders o WHERE closed_at < dispatchq_now() - $1 * interval '1 second'
              AND created_at < dispatchq_now() - $1 * interval '1 second'
              AND NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = o.id AND m.state = 'pending')
              AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = o.id AND b.state = 'cancel_wanted')",
    remove: "-- remove old orders
             WITH old AS (
                 SELECT id FROM orders o WHERE closed_at < dispatchq_now() - $1 * interval '1 second'
                   AND created_at < dispatchq_now() - $1 * interval '1 second'
                   AND NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = o.id AND m.state = 'pending')
                   AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = o.id AND b.state = 'cancel_wanted')
                 LIMIT $2),
             f AS (DELETE FROM offers WHERE order_id IN (SELECT id FROM old)),
             b AS (DELETE FROM bookings WHERE order_id IN (SELECT id FROM old)),
             p AS (DELETE FROM payment_events WHERE order_id IN (SELECT id FROM old)),
             i AS (DELETE FROM inbox WHERE order_id IN (SELECT id FROM old)),
             m AS (DELETE FROM outbox WHERE order_id IN (SELECT id FROM old)),
             a AS (DELETE FROM alerts WHERE order_id IN (SELECT id FROM old))
             DELETE FROM orders WHERE id IN (SELECT id FROM old)",
};

// Alerts stay as long as their order; alerts about an order that never was go with the offers.
const MESSAGES: Sweep = Sweep {
    count: "-- count old messages
            SELECT count(*) FROM outbox m WHERE state <> 'pending'
              AND (kind = 'OFFER' OR NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = m.order_id))
              AND created_at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old messages
             DELETE FROM outbox WHERE id IN (
                 SELECT id FROM outbox m WHERE state <> 'pending'
                   AND (kind = 'OFFER' OR NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = m.order_id))
                   AND created_at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

// Those about an order that never was, once nobody waits for them.
const ALERTS: Sweep = Sweep {
    count: "-- count old alerts
            SELECT count(*) FROM alerts a WHERE acked_at IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = a.order_id)
              AND raised_at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old alerts
             DELETE FROM alerts WHERE id IN (
                 SELECT id FROM alerts a WHERE acked_at IS NOT NULL
                   AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = a.order_id)
                   AND raised_at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

// Callbacks of orders go with their orders; those of bookings nobody knows have nobody else.
const CALLBACKS: Sweep = Sweep {
    count: "-- count old callbacks
            SELECT count(*) FROM inbox WHERE state = 'unmatched'
              AND received_at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old callbacks
             DELETE FROM inbox WHERE id IN (
                 SELECT id FROM inbox WHERE state = 'unmatched'
                   AND received_at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const RANKINGS: Sweep = Sweep {
    count: "-- count old rankings
            SELECT count(*) FROM rankings WHERE at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old rankings
             DELETE FROM rankings WHERE (order_id, attempt_no) IN (
                 SELECT order_id, attempt_no FROM rankings
                 WHERE at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const AREA_CHANGES: Sweep = Sweep {
    count: "-- count old changes of areas
            SELECT count(*) FROM admission_audit WHERE at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old changes of areas
             DELETE FROM admission_audit WHERE id IN (
                 SELECT id FROM admission_audit
                 WHERE at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const ERASURES: Sweep = Sweep {
    count: "-- count old erasures
            SELECT count(*) FROM erasures WHERE erased_at < (SELECT dispatchq_now()) - $1 * interval '1 second'",
    remove: "-- remove old erasures
             DELETE FROM erasures WHERE id IN (
                 SELECT id FROM erasures
                 WHERE erased_at < (SELECT dispatchq_now()) - $1 * interval '1 second' LIMIT $2)",
};

const IDEMPOTENCY_KEYS: Sweep = Sweep {
    count: "-- count old idempotency keys
            SELECT count(*) FROM idempotency_keys WHERE created_at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old idempotency keys
             DELETE FROM idempotency_keys WHERE (api_key_id, key) IN (
                 SELECT api_key_id, key FROM idempotency_keys
                 WHERE created_at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const RUNS: Sweep = Sweep {
    count: "-- count old schedule runs
            SELECT count(*) FROM schedule_runs WHERE slot < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old schedule runs
             DELETE FROM schedule_runs WHERE (name, slot) IN (
                 SELECT name, slot FROM schedule_runs
                 WHERE slot < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const SNAPSHOTS: Sweep = Sweep {
    count: "-- count old snapshots
            SELECT count(*) FROM queue_snapshots WHERE at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old snapshots
             DELETE FROM queue_snapshots WHERE (at, queue) IN (
                 SELECT at, queue FROM queue_snapshots
                 WHERE at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const AREA_SNAPSHOTS: Sweep = Sweep {
    count: "-- count old area snapshots
            SELECT count(*) FROM waiting_snapshots WHERE at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old area snapshots
             DELETE FROM waiting_snapshots WHERE (at, area_id, service_type) IN (
                 SELECT at, area_id, service_type FROM waiting_snapshots
                 WHERE at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const RECONCILE_LOG: Sweep = Sweep {
    count: "-- count old reconciliations
            SELECT count(*) FROM reconcile_log WHERE at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old reconciliations
             DELETE FROM reconcile_log WHERE at IN (
                 SELECT at FROM reconcile_log WHERE at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

const DEAD_LETTERS: Sweep = Sweep {
    count: "-- count old dead letters
            SELECT count(*) FROM dead_letters WHERE resolved_at < dispatchq_now() - $1 * interval '1 second'",
    remove: "-- remove old dead letters
             DELETE FROM dead_letters WHERE (job_id, died_at) IN (
                 SELECT job_id, died_at FROM dead_letters
                 WHERE resolved_at < dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};

/// The copies of dead jobs that nobody decided on; they stay as records for a while.
const EXPIRED_DEAD_LETTERS: Sweep = Sweep {
    count: "-- count expired dead letters
            SELECT count(*) FROM dead_letters
            WHERE resolved_at IS NULL AND died_at <= dispatchq_now() - $1 * interval '1 second'",
    remove: "-- expire dead letters
             UPDATE dead_letters SET resolved_at = dispatchq_now(), resolved_by = 'cleanup', resolved_how = 'expired',
                    resolved_why = 'nobody decided on it in time'
             WHERE (job_id, died_at) IN (
                 SELECT job_id, died_at FROM dead_letters
                 WHERE resolved_at IS NULL AND died_at <= dispatchq_now() - $1 * interval '1 second' LIMIT $2)",
};
