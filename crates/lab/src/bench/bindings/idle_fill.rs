//! Creates many bindings directly in Postgres. The product's own code creates their jobs and copies in Redis.

use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{DateTime, TimeDelta, Utc};
use foundation::core::Core;
use model::binding::{BindingConfig, BindingId, IntervalFrom, config::MillisRange, derive};
use sqlx::{Connection, PgConnection, types::Json};
use tokio::time::{Instant, sleep};

use super::{
    BindingsOptions,
    stage::{announce_step, binding_id},
};
use app::App;
use bindings::store::load::list_to_reconcile;
use foundation::{db, redis_keys};
use queue::NewJob;

/// Interval between cycles in milliseconds: half a day, so that nothing happens during the benchmark.
const FAR_MS: u32 = 12 * 3600 * 1000;
/// Bindings per INSERT, and per page.
const CHUNK: u32 = 5_000;
const PAGE: i64 = 500;
/// Jobs moved per call.
const MOVED_AT_ONCE: usize = 20;
/// Timeout for the background writes of one page of copies.
const COPY_WAIT: Duration = Duration::from_secs(60);
const COPY_POLL: Duration = Duration::from_millis(2);

/// Inserts bindings 1..=`count` as they are after their start, each due half a day from now.
pub(super) async fn insert_bindings(options: &BindingsOptions, url: &str, count: u32) -> anyhow::Result<()> {
    let mut db = PgConnection::connect(url).await?;
    let far = MillisRange { least: FAR_MS, most: FAR_MS };
    let config: BindingConfig = BindingsOptions::binding_config(far, IntervalFrom::End);
    for from in (0..count).step_by(CHUNK as usize) {
        let to = count.min(from + CHUNK);
        sqlx::query(include_str!("insert_bindings.sql"))
            .bind(i64::from(from))
            .bind(i64::from(to))
            .bind(i64::from(options.servers))
            .bind(Json(&config))
            .execute(&mut db)
            .await?;
        announce_step(options, &format!("{to} bindings are in Postgres."));
    }
    sqlx::raw_sql("ANALYZE").execute(&mut db).await?;
    db.close().await?;
    Ok(())
}

/// Returns the size of all bindings in Postgres in bytes, with their indexes and history.
pub(super) async fn read_table_bytes(core: &Core) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- bench: size of bindings
         SELECT pg_total_relation_size('bindings') + pg_total_relation_size('binding_events')",
    )
    .fetch_one(&core.db)
    .await
}

/// Enqueues the job of each binding in Redis, and writes its copy.
pub(super) async fn enqueue_bindings(app: &App) -> anyhow::Result<()> {
    let mut after = String::new();
    while let Some(page) = list_to_reconcile(&app.core.db, &after, None, PAGE).await? {
        let jobs: Vec<NewJob> =
            page.rows.iter().filter_map(|row| derive(row, page.now)).map(|timer| timer.job).collect();
        app.core.store.enqueue(&jobs).await?;
        app.bindings.mirror.copy_rows(&page.rows);
        if let Some(last) = page.rows.last() {
            wait_for_copy(&app.core, &last.id).await?;
        }
        after = page.last;
    }
    Ok(())
}

/// Waits until the copy of this binding is written. Copies are written in the order of the requests. More than a few
/// thousand pending ones would be dropped.
async fn wait_for_copy(core: &Core, id: &BindingId) -> anyhow::Result<()> {
    let [state, ..] = redis_keys::binding_copies(id);
    let mut exists = redis::cmd("EXISTS");
    exists.arg(state);
    let deadline = Instant::now() + COPY_WAIT;
    while core.store.run_command::<i64>("exists", &exists).await? == 0 {
        if Instant::now() >= deadline {
            bail!("the copy of {id} is not in Redis within {COPY_WAIT:?}");
        }
        sleep(COPY_POLL).await;
    }
    Ok(())
}

/// Makes bindings 1..=`count` fall due one after another, `apart` from each other, the first at `first`.
pub(super) async fn make_due(core: &Core, count: u32, first: DateTime<Utc>, apart: TimeDelta) -> anyhow::Result<()> {
    let last = binding_id(count)?;
    let moved = sqlx::query(
        "-- bench: bindings that fall due
         UPDATE bindings
         SET next_at = $1::timestamptz + (right(id, 6)::integer - 1) * $2::float8 * interval '1 millisecond',
             version = version + 1, updated_at = dispatchq_now()
         WHERE id <= $3",
    )
    .bind(first)
    .bind(apart.as_seconds_f64() * 1000.0)
    .bind(last.as_str())
    .execute(&core.db)
    .await?;
    anyhow::ensure!(moved.rows_affected() == u64::from(count), "only {} bindings exist", moved.rows_affected());
    let page = list_to_reconcile(&core.db, "", None, i64::from(count)).await?.context("there is no binding")?;
    for rows in page.rows.chunks(MOVED_AT_ONCE) {
        // A delay counts from its arrival at Redis, so the time since an older read would be measured as lateness.
        let now = db::database_now(&core.db).await?;
        let jobs: Vec<NewJob> = rows.iter().filter_map(|row| derive(row, now)).map(|timer| timer.job).collect();
        // An earlier due time replaces a later one.
        core.store.enqueue(&jobs).await?;
    }
    Ok(())
}
