//! Reads bindings, many in one statement. If this version cannot read a row that another version wrote, the other rows
//! are not affected.

use std::{collections::HashMap, time::Instant};

use chrono::{DateTime, TimeDelta, Utc};
use jobs::BindingId;
use model::binding::{AccountId, Binding, BindingState, ServerId};
use serde::Serialize;
use sqlx::{FromRow, Row, postgres::PgRow};

use super::{BatchError, LoadResult, servers::ServerStanding};
use foundation::db::{Connection, Pool};

/// A binding with everything that decisions need.
#[derive(Debug, Clone)]
pub struct LoadedBinding {
    pub binding: Binding,
    pub server: ServerStanding,
    /// Time of the read on Postgres' clock.
    pub now: DateTime<Utc>,
    /// Instant on this process' clock before [`now`](Self::now) was read.
    pub asked: Instant,
    /// Instant on this process' clock after [`now`](Self::now) was read.
    pub received: Instant,
}

impl LoadedBinding {
    /// Returns the current time of Postgres, or slightly less. A row written with this time is never dated later than
    /// rows that others write afterwards.
    pub fn current_time(&self) -> DateTime<Utc> {
        self.now + TimeDelta::from_std(self.received.elapsed()).unwrap_or_default()
    }

    /// Returns this process' instant for a time on Postgres' clock, or slightly earlier.
    pub fn instant_of(&self, time: DateTime<Utc>) -> Instant {
        self.asked + (time - self.now).to_std().unwrap_or_default()
    }
}

#[derive(FromRow)]
struct LoadedRow {
    #[sqlx(flatten)]
    binding: Binding,
    #[sqlx(flatten)]
    server: ServerStanding,
    now: DateTime<Utc>,
}

/// Columns of a binding, listed individually, so that a new column does not change the result of a prepared statement.
pub(crate) const BINDING_COLUMNS: &str = "b.id, b.server_id, b.account_id, b.state, b.reason, b.config, b.cycle, b.phase, \
     b.trx_id, b.start_confirmed, b.interval_start, b.next_at, b.call_no, b.call_action, b.call_until, b.asks, b.failures, \
     b.processing_deadline, b.otp_deadline, b.otp_tries, b.otp_value, b.otp_submitted_at, b.unresolved, b.version, \
     b.created_at, b.updated_at, b.deleted_at";

/// Returns one result per id, in the same order.
pub(super) async fn load_all(db: &Pool, ids: &[BindingId]) -> Vec<LoadResult> {
    let loaded = async { load_rows(&mut db.acquire().await?, ids).await };
    match loaded.await {
        Ok(mut rows) => ids.iter().map(|id| rows.remove(id.as_str()).transpose()).collect(),
        Err(error) => {
            let error = BatchError::from(error);
            ids.iter().map(|_| Err(error.clone())).collect()
        }
    }
}

/// Result for each row, by id.
type ReadRows = HashMap<String, Result<LoadedBinding, BatchError>>;

async fn load_rows(db: &mut Connection, ids: &[BindingId]) -> Result<ReadRows, sqlx::Error> {
    let asked = Instant::now();
    let names: Vec<&str> = ids.iter().map(BindingId::as_str).collect();
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
        "-- load bindings
         SELECT {BINDING_COLUMNS}, s.id AS standing_id, s.provider, s.base_url, s.enabled, s.repeats_are_safe,
                s.failures AS server_failures, s.paused_until, dispatchq_now() AS now
         FROM bindings b JOIN provider_servers s ON s.id = b.server_id WHERE b.id = ANY ($1)"
    )))
    .bind(names)
    .fetch_all(db)
    .await?;
    let received = Instant::now();
    let loaded = |LoadedRow { binding, server, now }| LoadedBinding { binding, server, now, asked, received };
    let read = |row| Ok((row_id(row)?, LoadedRow::from_row(row).map(loaded).map_err(BatchError::from)));
    rows.iter().map(read).collect()
}

fn row_id(row: &PgRow) -> Result<String, sqlx::Error> {
    row.try_get("id")
}

/// Returns the binding of a row. Logs an error and returns `None` if this version cannot read it.
pub(crate) fn read_binding(row: &PgRow) -> Option<Binding> {
    let read = Binding::from_row(row).inspect_err(|error| {
        let binding_id = row_id(row).unwrap_or_default();
        tracing::error!(binding_id, %error, "This version cannot read the row of a binding; the row is skipped.");
    });
    read.ok()
}

/// One page of the bindings that must have a job, without unreadable rows.
#[derive(Debug)]
pub struct ReconcilePage {
    pub rows: Vec<Binding>,
    /// Last id of the page; the next page starts after it.
    pub last: String,
    pub now: DateTime<Utc>,
}

/// Returns one page of the bindings that must have a job, ordered by id. With `overdue_secs`, the page contains only
/// bindings that are overdue by at least this time; the others still count towards the length of the page.
pub async fn list_to_reconcile(
    db: &Pool,
    after: &str,
    overdue_secs: Option<f64>,
    limit: i64,
) -> Result<Option<ReconcilePage>, sqlx::Error> {
    let mut session = db.acquire().await?;
    let (last, now): (Option<String>, DateTime<Utc>) = sqlx::query_as(
        "-- stretch of bindings to reconcile
         SELECT max(id), dispatchq_now()
         FROM (SELECT id FROM bindings WHERE needs_timer AND id > $1 ORDER BY id LIMIT $2) page",
    )
    .bind(after)
    .bind(limit)
    .fetch_one(&mut session)
    .await?;
    let Some(last) = last else { return Ok(None) };
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
        "-- bindings to reconcile
         SELECT {BINDING_COLUMNS} FROM bindings b
         WHERE b.needs_timer AND b.id > $1 AND b.id <= $2
           AND ($3::float8 IS NULL
                OR least(b.next_at, b.call_until, b.otp_deadline) < $4::timestamptz - $3 * interval '1 second')
         ORDER BY b.id"
    )))
    .bind(after)
    .bind(&last)
    .bind(overdue_secs)
    .bind(now)
    .fetch_all(&mut session)
    .await?;
    Ok(Some(ReconcilePage { rows: rows.iter().filter_map(read_binding).collect(), last, now }))
}

/// A row that another version has written and this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableBinding {
    pub id: String,
    pub error: String,
}

/// One page of bindings, ordered by id.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingPage {
    pub rows: Vec<Binding>,
    /// Rows of the page that are unreadable.
    pub unreadable: Vec<UnreadableBinding>,
    /// Last id of a full page, even if its row is unreadable; the next page starts after it.
    pub next: Option<String>,
}

/// Returns one page of bindings that are not deleted, ordered by id. Filters that are `None` match all.
pub async fn list_rows(
    db: &Pool,
    server: Option<&ServerId>,
    account: Option<&AccountId>,
    state: Option<BindingState>,
    after: &str,
    limit: i64,
) -> Result<BindingPage, sqlx::Error> {
    let found = sqlx::query(sqlx::AssertSqlSafe(format!(
        "-- list bindings
         SELECT {BINDING_COLUMNS} FROM bindings b
         WHERE b.deleted_at IS NULL AND b.id > $1 AND ($2::text IS NULL OR b.server_id = $2)
           AND ($3::text IS NULL OR b.account_id = $3) AND ($4::text IS NULL OR b.state = $4)
         ORDER BY b.id LIMIT $5"
    )))
    .bind(after)
    .bind(server)
    .bind(account)
    .bind(state)
    .bind(limit)
    .fetch_all(db)
    .await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|n| n == limit);
    let next = found.last().filter(|_| is_full).map(row_id).transpose()?;
    let mut page = BindingPage { rows: Vec::with_capacity(found.len()), unreadable: Vec::new(), next };
    for row in &found {
        match Binding::from_row(row) {
            Ok(binding) => page.rows.push(binding),
            Err(error) => page.unreadable.push(UnreadableBinding { id: row_id(row)?, error: error.to_string() }),
        }
    }
    Ok(page)
}
