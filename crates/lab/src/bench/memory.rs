//! What one job costs in Redis' memory: `used_memory` after minus before, over many jobs.
//!
//! `used_memory` is what Redis asked its allocator for, tables and pointers included; what the allocator wastes in
//! fragments depends on the history and is left out. A first batch warms up: scripts, buffers, and encodings that small
//! sets have.

use std::time::Duration;

use anyhow::Context;
use tokio::time::sleep;
use workers::NewJob;

use super::{stage::QueueStage, timers};

const FAR: Duration = Duration::from_secs(24 * 3600);
const WARM_UP: u32 = 10_000;
const LOOK: Duration = Duration::from_millis(200);
/// Two looks that differ by less saw the same.
const STILL_BYTES: u64 = 4096;
const LOOKS: usize = 25;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueueMemory {
    pub(super) bytes_per_timer: f64,
    pub(super) bytes_per_job: f64,
}

pub(super) async fn measure_memory(jobs: u32) -> anyhow::Result<QueueMemory> {
    let stage = QueueStage::start().await?;
    let timer = |_: u32| NewJob::after(&timers::bench_timer(1), FAR);
    let with_payload = |number: u32| timers::job_with_payload(number, FAR);
    Ok(QueueMemory {
        bytes_per_timer: bytes_each(&stage, jobs, timer).await?,
        bytes_per_job: bytes_each(&stage, jobs, with_payload).await?,
    })
}

async fn bytes_each(stage: &QueueStage, jobs: u32, make: impl Fn(u32) -> NewJob) -> anyhow::Result<f64> {
    let warm_up: Vec<NewJob> = (0..WARM_UP).map(&make).collect();
    stage.store.enqueue(&warm_up).await?;
    let before = used_memory(stage).await?;
    let batch: Vec<NewJob> = (WARM_UP..WARM_UP + jobs).map(&make).collect();
    stage.store.enqueue(&batch).await?;
    let after = used_memory(stage).await?;
    #[expect(clippy::cast_precision_loss, reason = "a difference of far less than 2^52 bytes")]
    let bytes = after.saturating_sub(before) as f64;
    Ok(bytes / f64::from(jobs))
}

/// Once it stands still: buffers of clients and of the append-only file come and go.
async fn used_memory(stage: &QueueStage) -> anyhow::Result<u64> {
    stage.wait_for_aof_rewrite().await?;
    let mut last = u64::MAX;
    for _ in 0..LOOKS {
        sleep(LOOK).await;
        let info = stage.read_info("memory").await?;
        let used: u64 = info.get("used_memory").context("INFO has no used_memory")?.parse()?;
        if used.abs_diff(last) < STILL_BYTES {
            return Ok(used);
        }
        last = used;
    }
    Ok(last)
}
