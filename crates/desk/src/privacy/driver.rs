//! Erasure of a driver in many small transactions, so that a change of an order never waits long, whatever the size of
//! the tables.
//!
//! 1. The driver's orders, some at a time by index, each with all its dependent rows (`dispatchq_erase_driver_orders`).
//!    The first of these transactions removes the driver's row and keys.
//! 2. Tables that name drivers without an order: rankings, messages, stored responses. An index on the names would cost
//!    each write, so these tables are scanned by primary key.
//! 3. The steps of orders, in the same way.
//!
//! The row in `erasures` stores the position, which is written with each step. If the process dies, the next erasure
//! (by cleanup or `privacy replay`) continues there. Each step may be repeated.

use model::ids::DriverId;
use serde::{Deserialize, Serialize};
use sqlx::{PgExecutor, types::Json};

use super::ErasureRecord;
use foundation::{core::Core, loops::report_progress, work_slice::WorkSlice};
use orders::{
    feed::{self, FeedCursor},
    fleet::driver_index::{self, DriverPlace},
};

/// Orders of one transaction. Each order has about ten rows in other tables and needs a lookup in each later day of the
/// history.
const ORDERS_AT_ONCE: i32 = 50;
/// Rows that one statement scans.
const ROWS_AT_ONCE: i64 = 1_000;
/// Table of the last step.
const FEED: &str = "order_feed";

/// Position of an erasure, stored as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureProgress {
    /// Table that is being scanned; `None`: orders.
    table: Option<String>,
    /// Primary key of the last scanned row, or the feed position in the last step; empty: none.
    after: Vec<String>,
    /// Number of orders that had data so far.
    pub(super) orders: i64,
}

impl ErasureProgress {
    /// Returns whether an erasure can reach this position. Positions from requests are checked with it.
    pub fn is_valid(&self) -> bool {
        let is_key = match self.table.as_deref() {
            None => self.after.is_empty(),
            Some(FEED) => self.after.len() <= 1,
            Some(table) => WALKS.iter().any(|walk| walk.table == table && walk.first.len() == self.after.len()),
        };
        is_key && (0..=i64::from(i32::MAX)).contains(&self.orders)
    }
}

/// Scan of a table. `$1` is the driver, `$2` the primary key of the last scanned row, `$3` the number of rows, `$4` the
/// pseudonym. Returns the primary key of the last scanned row, or no row at the end of the table.
#[derive(Debug)]
pub struct TableWalk {
    pub table: &'static str,
    /// Primary key before the first row.
    pub first: &'static [&'static str],
    /// Whether the pseudonym replaces the driver. Otherwise rows are removed, and there is no `$4`.
    pub is_renamed: bool,
    pub statement: &'static str,
}

/// All scans; public for tests of their query plans.
pub const WALKS: [TableWalk; 7] = [
    TableWalk {
        table: "rankings",
        first: &["", "0"],
        is_renamed: false,
        statement: "-- erase driver from rankings
            WITH page AS MATERIALIZED (
                SELECT order_id, attempt_no, $1::text = ANY (drivers) AS names_driver FROM rankings
                WHERE (order_id, attempt_no) > (($2::text[])[1], ($2::text[])[2]::integer)
                ORDER BY order_id, attempt_no LIMIT $3),
            gone AS (
                DELETE FROM rankings r USING page p
                WHERE p.names_driver AND r.order_id = p.order_id AND r.attempt_no = p.attempt_no)
            SELECT ARRAY[order_id, attempt_no::text] FROM page ORDER BY page.order_id DESC, page.attempt_no DESC LIMIT 1",
    },
    TableWalk {
        table: "outbox",
        first: &["0"],
        is_renamed: true,
        // The dedupe key of some messages is `{driver}-{version}`. Other messages have numbers and ids that may look
        // like a driver's.
        statement: include_str!("driver_outbox.sql"),
    },
    TableWalk {
        table: "alerts",
        first: &["0"],
        is_renamed: true,
        // Names are compared in their JSON form, so that D1 does not match D10.
        statement: "-- erase driver from alerts
            WITH page AS MATERIALIZED (
                SELECT id, strpos(payload::text, to_json($1::text)::text) > 0 AS names_driver
                FROM alerts WHERE id > ($2::text[])[1]::bigint ORDER BY id LIMIT $3),
            renamed AS (
                UPDATE alerts a
                SET payload = replace(a.payload::text, to_json($1::text)::text, to_json($4::text)::text)::jsonb,
                    ack_note = CASE WHEN strpos(a.ack_note, $1::text) > 0 THEN NULL ELSE a.ack_note END
                FROM page p WHERE p.names_driver AND a.id = p.id)
            SELECT ARRAY[id::text] FROM page ORDER BY page.id DESC LIMIT 1",
    },
    TableWalk {
        table: "idempotency_keys",
        first: &["00000000-0000-0000-0000-000000000000", ""],
        is_renamed: false,
        statement: "-- erase driver from stored answers
            WITH page AS MATERIALIZED (
                SELECT holder_id, key, strpos(body::text, to_json($1::text)::text) > 0 AS names_driver FROM idempotency_keys
                WHERE (holder_id, key) > (($2::text[])[1]::uuid, ($2::text[])[2]) ORDER BY holder_id, key LIMIT $3),
            gone AS (
                DELETE FROM idempotency_keys k USING page p
                WHERE p.names_driver AND k.holder_id = p.holder_id AND k.key = p.key)
            SELECT ARRAY[holder_id::text, key] FROM page ORDER BY page.holder_id DESC, page.key DESC LIMIT 1",
    },
    TableWalk {
        table: "dead_letters",
        first: &["", "-infinity"],
        is_renamed: false,
        // The row stays as a record that a job died.
        statement: "-- erase driver from dead jobs
            WITH page AS MATERIALIZED (
                SELECT job_id, died_at, strpos(envelope, to_json($1::text)::text) > 0 AS names_driver FROM dead_letters
                WHERE (job_id, died_at) > (($2::text[])[1], ($2::text[])[2]::timestamptz) ORDER BY job_id, died_at LIMIT $3),
            emptied AS (
                UPDATE dead_letters d SET envelope = NULL, error = 'erased', resolved_why = NULL
                FROM page p WHERE p.names_driver AND d.job_id = p.job_id AND d.died_at = p.died_at)
            SELECT ARRAY[job_id, died_at::text] FROM page ORDER BY page.job_id DESC, page.died_at DESC LIMIT 1",
    },
    TableWalk {
        table: "staff_actions",
        first: &["0"],
        is_renamed: true,
        statement: "-- erase driver among actions of staff
            WITH page AS MATERIALIZED (
                SELECT id, subject = $1::text OR right(subject, length($1::text) + 1) = ' ' || $1::text
                       OR coalesce(strpos(reason, $1::text) > 0, false) AS names_driver
                FROM staff_actions WHERE id > ($2::text[])[1]::bigint ORDER BY id LIMIT $3)
            SELECT ARRAY[max(id)::text] FROM page
            HAVING dispatchq_redact_staff_actions(
                coalesce(array_agg(id) FILTER (WHERE names_driver), '{}'), $1::text, $4::text) >= 0 AND count(*) > 0",
    },
    TableWalk {
        table: "proof_violations",
        first: &["0"],
        is_renamed: true,
        // Ids are compared as whole words, so that D1 does not match D10. Ids of partners' drivers may have any character.
        statement: include_str!("driver_violations.sql"),
    },
];

/// Erases the driver of this record, starting at a position. Returns whether the erasure is finished; the slice may end
/// first.
pub(super) async fn erase_driver(
    core: &Core,
    erasure: &ErasureRecord,
    pseudonym: &str,
    progress: &mut ErasureProgress,
    slice: WorkSlice,
) -> Result<bool, sqlx::Error> {
    let driver = DriverId::from(erasure.subject_id.as_str());
    let place: Option<DriverPlace> = sqlx::query_as(
        "-- place of erased driver
         SELECT id, service_types, lat, lng, false AS available FROM drivers WHERE id = $1",
    )
    .bind(&driver)
    .fetch_optional(&core.db)
    .await?;
    let mut is_done = true;
    if progress.table.is_none() {
        is_done = erase_orders_of(core, erasure, &driver, pseudonym, progress, slice).await?;
    }
    if let Some(place) = place {
        // An unavailable driver leaves the index in Redis.
        driver_index::upsert_driver(core, &place).await;
    }
    if !is_done {
        return Ok(false);
    }
    // The steps are first: a replay to a webhook endpoint copies the driver of a step into a message. If another version
    // has stored a table that is not in the list, all tables are scanned again.
    let begun = progress.table.as_deref();
    let place = WALKS.iter().position(|walk| begun == Some(walk.table));
    if place.is_none() {
        if begun != Some(FEED) {
            (progress.table, progress.after) = (Some(FEED.to_owned()), Vec::new());
            save_progress(&core.db, erasure, progress).await?;
        }
        if !erase_steps_of(core, erasure, &driver, pseudonym, progress, slice).await? {
            return Ok(false);
        }
    }
    for walk in &WALKS[place.unwrap_or(0)..] {
        if !walk_table(core, erasure, &driver, pseudonym, walk, progress, slice).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn erase_orders_of(
    core: &Core,
    erasure: &ErasureRecord,
    driver: &DriverId,
    pseudonym: &str,
    progress: &mut ErasureProgress,
    slice: WorkSlice,
) -> Result<bool, sqlx::Error> {
    loop {
        let mut tx = core.db.begin().await?;
        let erased: i64 = sqlx::query_scalar(
            "-- erase orders of driver
             SELECT dispatchq_erase_driver_orders($1, $2, $3)",
        )
        .bind(driver)
        .bind(pseudonym)
        .bind(ORDERS_AT_ONCE)
        .fetch_one(&mut *tx)
        .await?;
        progress.orders += erased;
        save_progress(&mut *tx, erasure, progress).await?;
        tx.commit().await?;
        report_progress();
        if erased < i64::from(ORDERS_AT_ONCE) {
            return Ok(true);
        }
        if slice.is_over() {
            return Ok(false);
        }
    }
}

async fn walk_table(
    core: &Core,
    erasure: &ErasureRecord,
    driver: &DriverId,
    pseudonym: &str,
    walk: &TableWalk,
    progress: &mut ErasureProgress,
    slice: WorkSlice,
) -> Result<bool, sqlx::Error> {
    if progress.table.as_deref() != Some(walk.table) {
        progress.table = Some(walk.table.to_owned());
        progress.after = walk.first.iter().map(ToString::to_string).collect();
    }
    loop {
        let mut tx = core.db.begin().await?;
        let page = sqlx::query_scalar(walk.statement).bind(driver).bind(&progress.after).bind(ROWS_AT_ONCE);
        let page = if walk.is_renamed { page.bind(pseudonym) } else { page };
        let last: Option<Vec<String>> = page.fetch_optional(&mut *tx).await?;
        let Some(last) = last else { return tx.rollback().await.map(|()| true) };
        progress.after = last;
        save_progress(&mut *tx, erasure, progress).await?;
        tx.commit().await?;
        report_progress();
        if slice.is_over() {
            return Ok(false);
        }
    }
}

/// Same as [`walk_table`], for the steps of orders.
async fn erase_steps_of(
    core: &Core,
    erasure: &ErasureRecord,
    driver: &DriverId,
    pseudonym: &str,
    progress: &mut ErasureProgress,
    slice: WorkSlice,
) -> Result<bool, sqlx::Error> {
    // There is no position before the first step, or if another version stored none.
    let mut after: FeedCursor = progress.after.first().and_then(|place| place.parse().ok()).unwrap_or_default();
    loop {
        let mut tx = core.db.begin().await?;
        let last = feed::erase_driver_in_page(&mut *tx, driver, pseudonym, after).await?;
        let Some(last) = last else { return tx.rollback().await.map(|()| true) };
        after = last;
        progress.after = vec![last.to_string()];
        save_progress(&mut *tx, erasure, progress).await?;
        tx.commit().await?;
        report_progress();
        if slice.is_over() {
            return Ok(false);
        }
    }
}

/// Reads the position of an unfinished erasure. `None`: the erasure is finished.
pub(super) async fn load_progress(
    core: &Core,
    erasure: &ErasureRecord,
) -> Result<Option<ErasureProgress>, sqlx::Error> {
    let kept: Option<Option<Json<ErasureProgress>>> = sqlx::query_scalar(
        "-- progress of erasure
         SELECT progress FROM erasures WHERE subject = $1 AND subject_id = $2 AND erased_at = $3 AND orders IS NULL",
    )
    .bind(erasure.subject)
    .bind(&erasure.subject_id)
    .bind(erasure.erased_at)
    .fetch_optional(&core.db)
    .await?;
    Ok(kept.map(|kept| kept.map(|Json(progress)| progress).unwrap_or_default()))
}

pub(super) async fn save_progress(
    db: impl PgExecutor<'_>,
    erasure: &ErasureRecord,
    progress: &ErasureProgress,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- keep progress of erasure
         SELECT dispatchq_note_erasure($1, $2, $3, $4, NULL)",
    )
    .bind(erasure.subject)
    .bind(&erasure.subject_id)
    .bind(erasure.erased_at)
    .bind(Json(progress))
    .execute(db)
    .await
    .map(drop)
}
