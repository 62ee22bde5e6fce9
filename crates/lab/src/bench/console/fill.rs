//! What pages show: closed orders of 90 days with their history, open orders of all kinds, and what else staff look after. All of it is
//! made in Postgres itself, by `fill.sql`.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, postgres::PgConnectOptions};

use super::ConsoleOptions;

const SCRIPT: &str = include_str!("fill.sql");
/// Closed orders that have offers, messages and rankings.
pub(super) const EXPLAINED: u32 = 40_000;
/// One open order in ten is with a driver or waits for a person; the others wait for a driver.
const VARIED_PART: u32 = 10;

#[derive(Debug)]
pub(super) struct FilledDatabase {
    pub(super) bytes: i64,
    pub(super) took: Duration,
}

/// Open orders that are with a driver or wait for a person.
pub(super) fn varied_count(open: u32) -> u32 {
    open / VARIED_PART
}

/// Id of the `n`-th order, from 1. `kind` is C for closed ones, N for those that wait for a driver, M for the others.
pub(super) fn filled_id(kind: char, n: u32) -> String {
    format!("{kind}{n:09}")
}

/// Fills a database that holds no order. Its Redis must be flushed afterwards: the rebuild puts timers and dead jobs there.
pub(super) async fn fill_console(url: &str, options: &ConsoleOptions) -> anyhow::Result<FilledDatabase> {
    let (begun, varied) = (Instant::now(), varied_count(options.open.get()));
    // The statements take long, and that is worth no warning.
    let mut db = PgConnectOptions::from_str(url)?.disable_statement_logging().connect().await?;
    // Rows fit each other by the way they are made: no trigger has to look.
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
