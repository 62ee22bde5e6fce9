//! Redis memory of one job: the increase of `used_memory` over many jobs.
//!
//! `used_memory` is the memory that Redis requested from its allocator, including tables and pointers. Fragmentation
//! depends on the history and is not included. A first batch warms up scripts and buffers, and makes the sets too large
//! for Redis' encoding of small sets.

use std::time::Duration;

use super::{Rounds, stage::QueueStage, timers};
use queue::NewJob;

const FAR: Duration = Duration::from_secs(24 * 3600);
const WARM_UP: u32 = 10_000;

pub(super) async fn measure_memory(jobs: u32, rounds: &mut Rounds) -> anyhow::Result<()> {
    let stage = QueueStage::start().await?;
    let timer = |_: u32| NewJob::after(&timers::bench_timer(1), FAR);
    let with_payload = |number: u32| timers::job_with_payload(number, FAR);
    rounds.push("bytes_per_timer", bytes_each(&stage, jobs, timer).await?);
    rounds.push("bytes_per_job", bytes_each(&stage, jobs, with_payload).await?);
    Ok(())
}

async fn bytes_each(stage: &QueueStage, jobs: u32, make: impl Fn(u32) -> NewJob) -> anyhow::Result<f64> {
    let warm_up: Vec<NewJob> = (0..WARM_UP).map(&make).collect();
    stage.store.enqueue(&warm_up).await?;
    let before = stage.read_used_memory().await?;
    let batch: Vec<NewJob> = (WARM_UP..WARM_UP + jobs).map(&make).collect();
    stage.store.enqueue(&batch).await?;
    let after = stage.read_used_memory().await?;
    let bytes = after.saturating_sub(before) as f64;
    Ok(bytes / f64::from(jobs))
}
