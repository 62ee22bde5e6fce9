//! What is done when, and with how many shards. Pure.

/// What an operator does to the cluster, or what befalls it, while orders go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterStep {
    /// Nothing: what the load alone takes.
    Rest,
    /// The replica of the master with the control shard takes over by plan.
    FailOver,
    /// The master with the control shard is killed; it comes back once its replica has taken over.
    KillMaster,
    /// The slots of so many shards, the control shard among them, move to other masters.
    MoveSlots(u16),
    /// A master loses its data: one without the control shard, if such a master has shards.
    FlushMaster,
    /// A master with shards, but without the control shard, stands still together with its replicas.
    FreezeMaster,
    /// The queue is cut into as many shards as the phase has.
    SetShards,
}

/// A step, and time that passes afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClusterPhase {
    pub(super) name: &'static str,
    /// How many shards there are at its end.
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

/// Returns the phases of a run, and the names of those left out because the number of shards cannot be changed.
pub(super) fn plan_phases(can_reshard: bool) -> (Vec<ClusterPhase>, Vec<&'static str>) {
    let (played, left_out): (Vec<_>, Vec<_>) = PHASES.into_iter().partition(|phase| can_reshard || phase.shards == 1);
    (played, left_out.into_iter().map(|phase| phase.name).collect())
}
