//! Plan of steps and numbers of shards. Pure.

/// Operation or fault that a phase performs on the cluster while orders are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterStep {
    /// No step: the load alone.
    Rest,
    /// Planned failover of the master with the control shard.
    FailOver,
    /// Kill of the master with the control shard. It restarts after its replica has taken over.
    KillMaster,
    /// Move of the slots of this many shards to other masters, including the control shard.
    MoveSlots(u16),
    /// Flush of a master. If several masters have shards, it is one without the control shard.
    FlushMaster,
    /// Freeze of a master with shards but without the control shard, together with its replicas.
    FreezeMaster,
    /// Change of the number of shards to that of the phase.
    SetShards,
}

/// A step, and the time after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClusterPhase {
    pub(super) name: &'static str,
    /// Number of shards at its end.
    pub(super) shards: u16,
    pub(super) step: ClusterStep,
}

use ClusterStep::{FailOver, FlushMaster, FreezeMaster, KillMaster, MoveSlots, Rest, SetShards};

const PHASES: [ClusterPhase; 14] = [
    ClusterPhase { name: "one_shard", shards: 1, step: Rest },
    ClusterPhase { name: "failover", shards: 1, step: FailOver },
    ClusterPhase { name: "killed_master", shards: 1, step: KillMaster },
    ClusterPhase { name: "moved_slot", shards: 1, step: MoveSlots(1) },
    ClusterPhase { name: "flushed_master", shards: 1, step: FlushMaster },
    ClusterPhase { name: "resharded_to_4", shards: 4, step: SetShards },
    ClusterPhase { name: "four_shards", shards: 4, step: Rest },
    ClusterPhase { name: "unreachable_master", shards: 4, step: FreezeMaster },
    ClusterPhase { name: "failover_of_4", shards: 4, step: FailOver },
    ClusterPhase { name: "resharded_to_16", shards: 16, step: SetShards },
    ClusterPhase { name: "sixteen_shards", shards: 16, step: Rest },
    ClusterPhase { name: "flushed_master_of_16", shards: 16, step: FlushMaster },
    ClusterPhase { name: "moved_slots_of_16", shards: 16, step: MoveSlots(4) },
    ClusterPhase { name: "resharded_back_to_4", shards: 4, step: SetShards },
];

/// Returns the phases of a run, and the names of phases that are skipped because the number of shards cannot be
/// changed.
pub(super) fn plan_phases(can_reshard: bool) -> (Vec<ClusterPhase>, Vec<&'static str>) {
    let (played, left_out): (Vec<_>, Vec<_>) = PHASES.into_iter().partition(|phase| can_reshard || phase.shards == 1);
    (played, left_out.into_iter().map(|phase| phase.name).collect())
}
