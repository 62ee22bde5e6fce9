//! Daily partitions of the history. Each partition of `order_events` holds the events of one UTC day. Design:
//! docs/design/postgres.md.
//!
//! Days are added in advance and dropped after their retention. The locks for this do not block changes of orders:
//! ATTACH and DETACH CONCURRENTLY take SHARE UPDATE EXCLUSIVE on the history, and all other steps lock only the day's
//! table. If a reader locks a day for more than 200 ms, the step is postponed and retried some minutes later.
//!
//! The owner of the history does this on a separate connection (`database.maintenance_url`). One process at a time does
//! it.

use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use serde::Serialize;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgExecutor};
use tokio_util::sync::CancellationToken;

use super::Pool;
use crate::{
    config::{address::without_password, database::DatabaseConfig},
    error::{DuringContext, ServiceError},
};

/// Number of days that are added in advance.
const DAYS_AHEAD: usize = 14;
/// Minimum number of future days before an operator is alerted. Without a partition for the current day, Postgres can
/// store neither events nor changes of orders.
pub const FEWEST_DAYS_AHEAD: u64 = 7;
/// Pause between two passes, and the shorter pause after a pass that failed or postponed a step.
const INTERVAL: Duration = Duration::from_secs(3600);
const RETRY_INTERVAL: Duration = Duration::from_secs(300);
/// Timeout for one pass. The next pass does the remaining work.
const PASS_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum orders older than a day that is due to be dropped. With more, the cleanup is behind, and the day is kept
/// until it has caught up.
const MAX_OLDER_ORDERS: i64 = 100_000;
/// Comment on a table that is due to be dropped. A table that an operator detached and wants to keep has no such
/// comment.
const MARK: &str = "dispatchq: served its time";
/// Advisory lock id: an arbitrary number, the same in every process.
const LOCK: i64 = 0x6470_6869_7374_6461;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HistoryDaysReport {
    pub added: Vec<NaiveDate>,
    pub dropped: Vec<NaiveDate>,
    /// Steps that were postponed because another session holds a lock, and the reasons.
    pub postponed: Vec<String>,
}

/// Runs until `stop`. With a maintenance login it adds and drops days. In either case it logs an error when few future
/// days exist.
pub async fn run(database: DatabaseConfig, keep: Duration, db: Pool, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let mut pause = INTERVAL;
        if !database.maintenance_url.is_empty() {
            match keep_days(&database, keep).await {
                Ok(None) => {}
                Ok(Some(report)) if report.postponed.is_empty() => {}
                Ok(Some(report)) => {
                    tracing::info!(postponed = ?report.postponed, "Days of the history could not be added or dropped yet.");
                    pause = RETRY_INTERVAL;
                }
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "The history days could not be maintained; retrying."
                    );
                    pause = RETRY_INTERVAL;
                }
            }
        }
        let counted = tokio::time::timeout(PASS_TIMEOUT, count_ahead(&db)).await;
        match counted.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
            Ok(days) if days < FEWEST_DAYS_AHEAD => tracing::error!(
                days,
                "Few future days of the history exist; without one no order can change. Run: dispatchq migrate --partitions"
            ),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "The days of the history could not be counted."),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Adds missing days and drops those older than `keep` (`retention.events`). Returns `None` if another process is doing
/// this.
pub async fn keep_days(database: &DatabaseConfig, keep: Duration) -> Result<Option<HistoryDaysReport>, ServiceError> {
    tokio::time::timeout(PASS_TIMEOUT, keep_days_once(database, keep))
        .await
        .map_err(|_| ServiceError::Incomplete("the pass took too long; the next pass continues".to_owned()))?
}

async fn keep_days_once(database: &DatabaseConfig, keep: Duration) -> Result<Option<HistoryDaysReport>, ServiceError> {
    let mut db = connect_maintenance(database).await?;
    let mine: bool = sqlx::query_scalar(
        "-- try maintenance lock
         SELECT pg_try_advisory_lock(dispatchq_lock($1::bigint))",
    )
    .bind(LOCK)
    .fetch_one(&mut db)
    .await?;
    if !mine {
        return Ok(None);
    }
    let mut report = HistoryDaysReport::default();
    let done = async {
        add_missing(&mut db, &mut report).await?;
        drop_old(&mut db, keep, &mut report).await
    }
    .await;
    // Closing the session releases the lock.
    let _ = db.close().await;
    done.map(|()| Some(report))
}

async fn connect_maintenance(database: &DatabaseConfig) -> Result<PgConnection, ServiceError> {
    let DatabaseUrl { name, url } = maintenance_url(database);
    let options = database.maintenance_options()?.application_name("dispatchq maintenance").options([
        ("lock_timeout", "200"),
        ("statement_timeout", "60000"),
        ("idle_in_transaction_session_timeout", "30000"),
    ]);
    PgConnection::connect_with(&options)
        .await
        .during(|| format!("cannot reach Postgres at {}; check {name}", without_password(url)))
}

struct DatabaseUrl<'a> {
    name: &'static str,
    url: &'a str,
}

/// Returns the maintenance login, or the normal login if there is none.
fn maintenance_url(database: &DatabaseConfig) -> DatabaseUrl<'_> {
    if database.maintenance_url.is_empty() {
        DatabaseUrl { name: "database.url", url: &database.url }
    } else {
        DatabaseUrl { name: "database.maintenance_url", url: &database.maintenance_url }
    }
}

/// Adds the missing days from today to 14 days ahead. Waits for other processes that do the same. Returns how many days
/// were missing.
pub async fn add_ahead(db: &mut PgConnection) -> Result<usize, ServiceError> {
    sqlx::query(
        "-- maintenance lock
         SELECT pg_advisory_lock(dispatchq_lock($1::bigint))",
    )
    .bind(LOCK)
    .execute(&mut *db)
    .await?;
    let mut report = HistoryDaysReport::default();
    let done = add_missing(db, &mut report).await;
    sqlx::query(
        "-- give maintenance lock back
         SELECT pg_advisory_unlock(dispatchq_lock($1::bigint))",
    )
    .bind(LOCK)
    .execute(db)
    .await?;
    done?;
    if !report.postponed.is_empty() {
        return Err(ServiceError::Incomplete(format!("{}; try again", report.postponed.join("; "))));
    }
    Ok(report.added.len())
}

/// Returns how many consecutive days after today have a partition.
pub async fn count_ahead(db: &Pool) -> Result<u64, sqlx::Error> {
    let mut db = db.acquire().await?;
    let today = database_now(&mut db).await?.date_naive();
    let there = list_days(&mut db).await?;
    let has = |day: &NaiveDate| there.iter().any(|d| d.day == *day);
    let in_a_row = today.iter_days().take_while(has).count() as u64;
    Ok(in_a_row.saturating_sub(1))
}

#[derive(Debug, Clone, Copy, sqlx::FromRow)]
struct HistoryDay {
    day: NaiveDate,
    /// Its DETACH was interrupted. New statements no longer see the partition.
    going: bool,
}

async fn database_now(db: impl PgExecutor<'_>) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar(
        "-- now
         SELECT dispatchq_now()",
    )
    .fetch_one(db)
    .await
}

async fn list_days(db: impl PgExecutor<'_>) -> Result<Vec<HistoryDay>, sqlx::Error> {
    sqlx::query_as(
        "-- days of the history
         SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day, i.inhdetachpending AS going
         FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'order_events'::regclass AND c.relname ~ '^order_events_[0-9]{8}$'
         ORDER BY c.relname",
    )
    .fetch_all(db)
    .await
}

async fn add_missing(db: &mut PgConnection, report: &mut HistoryDaysReport) -> Result<(), ServiceError> {
    let today = database_now(&mut *db).await?.date_naive();
    let there = list_days(&mut *db).await?;
    for day in today.iter_days().take(DAYS_AHEAD + 1) {
        if there.iter().any(|d| d.day == day) {
            continue;
        }
        let added = sqlx::query(
            "-- add day
             SELECT dispatchq_add_history_day($1)",
        )
        .bind(day)
        .execute(&mut *db)
        .await;
        if !report.is_done(added, || format!("adding {day}"))? {
            return Ok(());
        }
        report.added.push(day);
    }
    Ok(())
}

async fn drop_old(db: &mut PgConnection, keep: Duration, report: &mut HistoryDaysReport) -> Result<(), ServiceError> {
    let before = database_now(&mut *db).await? - keep;
    let there = list_days(&mut *db).await?;
    // Postgres allows one pending DETACH at a time, so an interrupted one is finished first.
    for HistoryDay { day, .. } in there.iter().filter(|d| d.going) {
        if !report.is_done(change_day(db, *day, DayDdl::FinishDetach).await, || format!("detaching {day}"))? {
            return Ok(());
        }
    }
    for day in list_marked_days(db).await? {
        drop_detached(db, day, report).await?;
    }
    for HistoryDay { day, .. } in there.iter().filter(|d| !d.going && end_of_day(d.day) <= before) {
        match keep_events_of_older_orders(db, *day, report).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            failed => {
                report.is_done(failed, || format!("keeping events of {day}"))?;
                return Ok(());
            }
        }
        if !report.is_done(change_day(db, *day, DayDdl::Mark).await, || format!("marking {day}"))? {
            return Ok(());
        }
        if !report.is_done(change_day(db, *day, DayDdl::Detach).await, || format!("detaching {day}"))? {
            return Ok(());
        }
        drop_detached(db, *day, report).await?;
    }
    Ok(())
}

async fn drop_detached(
    db: &mut PgConnection,
    day: NaiveDate,
    report: &mut HistoryDaysReport,
) -> Result<(), ServiceError> {
    if report.is_done(change_day(db, day, DayDdl::Drop).await, || format!("dropping {day}"))? {
        report.dropped.push(day);
    }
    Ok(())
}

/// Returns the days that were marked and detached but not dropped.
async fn list_marked_days(db: &mut PgConnection) -> Result<Vec<NaiveDate>, sqlx::Error> {
    sqlx::query_scalar(
        "-- detached days
         SELECT to_date(right(relname, 8), 'YYYYMMDD') FROM pg_class
         WHERE relkind = 'r' AND relname ~ '^order_events_[0-9]{8}$' AND NOT relispartition
           AND pg_table_is_visible(oid) AND obj_description(oid, 'pg_class') = $1
         ORDER BY relname",
    )
    .bind(MARK)
    .fetch_all(db)
    .await
}

/// Moves the events of orders that are older than the end of the day and still exist. There are few, because the
/// cleanup has removed the others. Returns whether the day can be dropped.
async fn keep_events_of_older_orders(
    db: &mut PgConnection,
    day: NaiveDate,
    report: &mut HistoryDaysReport,
) -> Result<bool, sqlx::Error> {
    let (from, to) = (end_of_day(day) - Days::new(1), end_of_day(day));
    let orders: Vec<String> = sqlx::query_scalar(
        "-- orders older than a day
         SELECT id FROM orders WHERE created_at < $1 ORDER BY created_at LIMIT $2",
    )
    // One extra day, in case a clock was set back.
    .bind(to + Days::new(1))
    .bind(MAX_OLDER_ORDERS)
    .fetch_all(&mut *db)
    .await?;
    if orders.len() as u64 >= MAX_OLDER_ORDERS.unsigned_abs() {
        report.postponed.push(format!("dropping {day}: cleanup has to remove older orders first"));
        return Ok(false);
    }
    // Not a prepared statement: planning for these values locks no other day.
    sqlx::query(
        "-- keep events of older orders
         WITH moved AS (
             DELETE FROM order_events WHERE at >= $1 AND at < $2 AND order_id = ANY ($3)
             RETURNING seq, order_id, from_status, to_status, reason, actor, attempt_no, detail, at, key_id)
         INSERT INTO order_events_kept (seq, order_id, from_status, to_status, reason, actor, attempt_no, detail, at,
                                        key_id)
         SELECT * FROM moved",
    )
    .persistent(false)
    .bind(from)
    .bind(to)
    .bind(&orders)
    .execute(db)
    .await?;
    Ok(true)
}

fn end_of_day(day: NaiveDate) -> DateTime<Utc> {
    (day + Days::new(1)).and_time(NaiveTime::MIN).and_utc()
}

/// Statement that changes one day's table. DETACH CONCURRENTLY cannot run in a function or a transaction, and takes no
/// parameters.
#[derive(Debug, Clone, Copy)]
enum DayDdl {
    Mark,
    Detach,
    FinishDetach,
    Drop,
}

async fn change_day(db: &mut PgConnection, day: NaiveDate, ddl: DayDdl) -> Result<(), sqlx::Error> {
    // Built from a date only, so it is safe in SQL.
    let table = format!("order_events_{}", day.format("%Y%m%d"));
    let statement = match ddl {
        DayDdl::Mark => format!("COMMENT ON TABLE {table} IS '{MARK}'"),
        DayDdl::Detach => format!("ALTER TABLE order_events DETACH PARTITION {table} CONCURRENTLY"),
        DayDdl::FinishDetach => format!("ALTER TABLE order_events DETACH PARTITION {table} FINALIZE"),
        DayDdl::Drop => format!("DROP TABLE {table}"),
    };
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(db).await.map(drop)
}

impl HistoryDaysReport {
    /// Returns whether the step succeeded. Records the step as postponed if it failed on a lock or statement timeout;
    /// returns any other error.
    fn is_done<T>(&mut self, result: Result<T, sqlx::Error>, what: impl Fn() -> String) -> Result<bool, ServiceError> {
        let Err(error) = result else { return Ok(true) };
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        // lock_not_available, query_canceled
        if code.is_some_and(|code| ["55P03", "57014"].contains(&code.as_ref())) {
            self.postponed.push(format!("{}: {error}", what()));
            return Ok(false);
        }
        Err(error).during(what)
    }
}
