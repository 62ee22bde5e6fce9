//! Performs the step of a phase.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    lateness::{LatenessBook, LatenessTotal, TOLD_WITHIN},
    nodes,
    phases::{ClusterPhase, ClusterStep},
    stage::{ClusterStage, REDIS},
};
use crate::bench::{played::PlayedStage, processor::ProcessorWatch};
use queue::{Keys, store::key_slot};

/// Time that a master is frozen: longer than a lease, which is 8 s.
const FROZEN: Duration = Duration::from_secs(10);

/// Result of a step.
#[derive(Debug, Default)]
pub(super) struct StepOutcome {
    /// Time until the slot was served again, or all shards were settled. `None` if nothing was done.
    pub(super) took: Option<Duration>,
    pub(super) failovers: u32,
    pub(super) migrated_slots: u32,
    /// Jobs that started while a master was frozen.
    pub(super) meanwhile: Option<LatenessTotal>,
}

impl StepOutcome {
    fn after(took: Duration) -> Self {
        Self { took: Some(took), ..Self::default() }
    }
}

/// Returns the slot with all keys of a shard.
pub(super) fn slot_of_shard(shard: u16) -> u16 {
    key_slot(Keys::of_shard(shard).epoch().as_bytes())
}

/// Performs a step. Reports a killed process to `watch`.
pub(super) async fn take_step(
    stage: &mut ClusterStage,
    phase: &ClusterPhase,
    book: &LatenessBook,
    watch: &mut ProcessorWatch,
) -> anyhow::Result<StepOutcome> {
    let control = slot_of_shard(0);
    match phase.step {
        ClusterStep::Rest => Ok(StepOutcome::default()),
        ClusterStep::FailOver => {
            let took = nodes::fail_over(&stage.cluster, control).await?;
            Ok(StepOutcome { failovers: 1, ..StepOutcome::after(took) })
        }
        ClusterStep::KillMaster => {
            let took = nodes::kill_master(&mut stage.cluster, control, |pid| watch.record_kill(REDIS, pid)).await?;
            Ok(StepOutcome { failovers: 1, ..StepOutcome::after(took) })
        }
        ClusterStep::MoveSlots(count) => {
            let mut took = Duration::ZERO;
            for shard in 0..count {
                took += nodes::move_slot(&stage.cluster, slot_of_shard(shard)).await?;
            }
            Ok(StepOutcome { migrated_slots: count.into(), ..StepOutcome::after(took) })
        }
        ClusterStep::FlushMaster => {
            let begun = Instant::now();
            let lesser = find_lesser_master(stage, phase.shards).await?;
            let flushed = match lesser {
                Some(node) => node,
                None => nodes::find_owner(&stage.cluster, control).await?,
            };
            nodes::flush_node(&stage.cluster, flushed).await?;
            Ok(StepOutcome::after(begun.elapsed()))
        }
        ClusterStep::FreezeMaster => freeze_master(stage, phase.shards, book).await,
        ClusterStep::SetShards => {
            let took = stage.shards.set_shards(phase.shards).await?;
            stage.connect_again().await?;
            Ok(StepOutcome::after(took))
        }
    }
}

/// Freezes a master and its replicas, so that no failover is possible.
async fn freeze_master(stage: &mut ClusterStage, shards: u16, book: &LatenessBook) -> anyhow::Result<StepOutcome> {
    let Some(master) = find_lesser_master(stage, shards).await? else { return Ok(StepOutcome::default()) };
    let mut frozen = nodes::find_replicas(&stage.cluster, master).await?;
    frozen.push(master);
    let begun = Instant::now();
    nodes::freeze_nodes(&stage.cluster, &frozen, true)?;
    let watched = watch_frozen(stage, book, begun + FROZEN).await;
    nodes::freeze_nodes(&stage.cluster, &frozen, false)?;
    Ok(StepOutcome { meanwhile: Some(watched?), ..StepOutcome::after(begun.elapsed()) })
}

/// Returns the jobs that started between now and `end`, as far as workers have reported them.
async fn watch_frozen(stage: &mut ClusterStage, book: &LatenessBook, end: Instant) -> anyhow::Result<LatenessTotal> {
    // Until this time, reports may contain jobs that started earlier.
    stage.wait_until(Instant::now() + TOLD_WITHIN).await?;
    let before = book.total();
    stage.wait_until(end).await?;
    Ok(book.total().since(&before))
}

/// Returns a master with shards but without the control shard. `None` if one master has all shards.
async fn find_lesser_master(stage: &ClusterStage, shards: u16) -> anyhow::Result<Option<usize>> {
    let control = nodes::find_owner(&stage.cluster, slot_of_shard(0)).await?;
    for shard in (1..shards).rev() {
        let owner = nodes::find_owner(&stage.cluster, slot_of_shard(shard)).await?;
        if owner != control {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}
