//! Measures the rebuild from the flush to the epoch.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use foundation::core::Core;
use tokio::time::sleep;

use crate::bench::machine;
use queue::store::Takeable;

const LOOK: Duration = Duration::from_millis(2);
/// Number of checks per read of a worker's memory.
const MEMORY_LOOKS: u32 = 10;
/// Timeout, much longer than a working rebuild takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Times of a rebuild since the flush.
#[derive(Debug, Clone, Copy)]
pub(super) struct RebuildFigures {
    /// Time until the first horizon.
    pub(super) horizon: Duration,
    /// Time until a worker leased a job again.
    pub(super) first_taken: Duration,
    /// Time until the epoch.
    pub(super) whole: Duration,
    /// Number of restored timers.
    pub(super) timers: i64,
    /// Maximum memory growth of the worker that rebuilds.
    pub(super) grown_bytes: Option<u64>,
}

pub(super) async fn watch_rebuild(core: &Core, worker: u32) -> anyhow::Result<RebuildFigures> {
    let rebuilds = count_rebuilds(core).await?;
    let before = machine::rss_bytes_of_process(worker);
    let mut leased = redis::cmd("HLEN");
    leased.arg(core.store.keys().lease_table());
    core.store.run_command::<()>("flush", &redis::cmd("FLUSHALL")).await?;
    let flushed = Instant::now();
    let (mut horizon, mut first_taken, mut whole) = (None, None, None);
    let mut most = before;
    for look in 0_u32.. {
        let takeable = core.store.takeable().await?;
        let leases: u64 = core.store.run_command("leases", &leased).await?;
        let now = flushed.elapsed();
        if takeable != Takeable::Nothing {
            horizon.get_or_insert(now);
        }
        if leases > 0 {
            first_taken.get_or_insert(now);
        }
        if takeable == Takeable::All {
            whole.get_or_insert(now);
        }
        if look.is_multiple_of(MEMORY_LOOKS) && whole.is_none() {
            most = most.max(machine::rss_bytes_of_process(worker));
        }
        if first_taken.is_some() && whole.is_some() {
            break;
        }
        if now > PATIENCE {
            bail!("after {PATIENCE:?} the epoch is {takeable:?}, and {leases} jobs are leased");
        }
        sleep(LOOK).await;
    }
    let missed = "the loop ends when all has been seen";
    Ok(RebuildFigures {
        horizon: horizon.context(missed)?,
        first_taken: first_taken.context(missed)?,
        whole: whole.context(missed)?,
        timers: count_timers(core, rebuilds).await?,
        grown_bytes: most.zip(before).map(|(most, before)| most.saturating_sub(before)),
    })
}

async fn count_rebuilds(core: &Core) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- bench: rebuilds
         SELECT count(*) FROM reconcile_log WHERE rebuild",
    )
    .fetch_one(&core.db)
    .await
}

/// Returns the number of timers that the reconciler recorded for the rebuild after the first `rebuilds`. Waits for that
/// record.
async fn count_timers(core: &Core, rebuilds: i64) -> anyhow::Result<i64> {
    let begun = Instant::now();
    while count_rebuilds(core).await? <= rebuilds {
        if begun.elapsed() > PATIENCE {
            bail!("the reconciler has not recorded its rebuild");
        }
        sleep(Duration::from_millis(50)).await;
    }
    let timers = sqlx::query_scalar(
        "-- bench: timers put back
         SELECT inserted FROM reconcile_log WHERE rebuild ORDER BY at DESC LIMIT 1",
    );
    Ok(timers.fetch_one(&core.db).await?)
}
