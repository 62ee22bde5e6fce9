//! Data for the pages: closed orders of 90 days with their history, open orders of all kinds, and other records for
//! staff. `fill.sql` creates all of it in Postgres.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, postgres::PgConnectOptions};

use super::ConsoleOptions;

const SCRIPT: &str = include_str!("fill.sql");
/// Number of closed orders with offers, messages and rankings.
pub(super) const EXPLAINED: u32 = 40_000;
/// One open order in this many has a driver or waits for a person. The others wait for a driver.
const VARIED_PART: u32 = 10;

#[derive(Debug)]
pub(super) struct FilledDatabase {
    pub(super) bytes: i64,
    pub(super) took: Duration,
}

/// Returns the number of open orders that have a driver or wait for a person.
pub(super) fn varied_count(open: u32) -> u32 {
    open / VARIED_PART
}

/// Returns the id of the `n`-th order, from 1. `kind` is C for closed orders, N for orders that wait for a driver, and
/// M for other open orders.
pub(super) fn filled_id(kind: char, n: u32) -> String {
    format!("{kind}{n:09}")
}

/// Fills a database without orders. Redis must be flushed afterwards, so that the rebuild enqueues timers and dead
/// jobs.
pub(super) async fn fill_console(url: &str, options: &ConsoleOptions) -> anyhow::Result<FilledDatabase> {
    let (begun, varied) = (Instant::now(), varied_count(options.open.get()));
    // The statements are slow by design, so they are not logged.
    let mut db = PgConnectOptions::from_str(url)?.disable_statement_logging().connect().await?;
    // The script keeps the rows consistent, so triggers are off.
    let settings = "SET session_replication_role = replica; SET synchronous_commit = off; SET work_mem = '256MB'";
    sqlx::raw_sql(settings).execute(&mut db).await?;
    let numbers = [
        ("{closed}", options.closed.get()),
        ("{waiting}", options.open.get() - varied),
        ("{varied}", varied),
        ("{dead}", options.dead),
    ];
    let script = numbers.iter().fold(SCRIPT.to_owned(), |script, (name, n)| script.replace(name, &n.to_string()));
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut db).await?;
    sqlx::raw_sql("VACUUM ANALYZE").execute(&mut db).await?;
    let bytes = sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut db).await?;
    db.close().await?;
    Ok(FilledDatabase { bytes, took: begun.elapsed() })
}
