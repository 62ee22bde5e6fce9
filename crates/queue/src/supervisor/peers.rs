//! Watches the other workers on this machine. If one dies without a drain, frees its slots, so that other jobs need not
//! wait until these slots end by time. Jobs do wait for the slots of workers on other machines, because this process
//! cannot prove that such a worker has died.
//!
//! The leases of the dead worker always end by time: a job may have killed it, and the protection against such jobs
//! depends on the lease. Design: docs/design/slots.md.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Supervisor;
use crate::{
    life::{ProcessLife, own_life},
    store::{Heartbeat, LatenessCounts, StoreError, WorkerEntry},
};

/// Interval of checks of each worker.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Interval at which the names of the workers are read from Redis.
const LIST_EVERY: Duration = Duration::from_secs(5);
/// Maximum time until the other sides of a process' connections notice that it has ended.
const CLOSED_WITHIN: Duration = Duration::from_millis(250);
/// Minimum age of the last heartbeat before a process that was never seen here counts as ended. Machines restored from
/// the same memory snapshot have the same place, although their workers cannot see each other.
const UNSEEN_FOR_MS: u64 = 5_000;

/// Watches until it is stopped. If Redis cannot be reached, slots end by time.
pub(crate) async fn run(supervisor: &Supervisor, stop: CancellationToken) {
    if own_life().is_none() {
        return;
    }
    let _ = stop.run_until_cancelled(PeerWatch::default().watch(supervisor)).await;
}

#[derive(Default)]
struct PeerWatch {
    peers: Vec<WorkerEntry>,
    listed: Option<Instant>,
    /// Boots of processes that were seen alive here.
    seen: HashSet<String>,
}

impl PeerWatch {
    async fn watch(mut self, supervisor: &Supervisor) {
        loop {
            if self.listed.is_none_or(|at| at.elapsed() >= LIST_EVERY) {
                self.list(supervisor).await;
            }
            if self.find_ended().next().is_some() {
                tokio::time::sleep(CLOSED_WITHIN).await;
                // A process that has drained has already removed its entry.
                self.list(supervisor).await;
                let ended: Vec<WorkerEntry> = self.find_ended().cloned().collect();
                for peer in ended {
                    if let Err(error) = hand_back(supervisor, &peer).await {
                        warn!(%error, replica = %peer.replica, "Cannot free the slots of a dead worker yet; this is retried.");
                    }
                    self.peers.retain(|other| other.boot != peer.boot);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn list(&mut self, supervisor: &Supervisor) {
        if let Ok(workers) = supervisor.control().store.list_workers().await {
            self.peers = workers;
        }
        self.listed = Some(Instant::now());
        let lives = |peer: &&WorkerEntry| peer.life.as_ref().is_some_and(ProcessLife::is_seen);
        self.seen = self.peers.iter().filter(lives).map(|peer| peer.boot.clone()).chain(self.known_peers()).collect();
    }

    /// Returns the processes that were seen before and are still listed.
    fn known_peers(&self) -> impl Iterator<Item = String> {
        self.peers.iter().map(|peer| &peer.boot).filter(|boot| self.seen.contains(*boot)).cloned()
    }

    fn find_ended(&self) -> impl Iterator<Item = &WorkerEntry> {
        self.peers.iter().filter(|peer| {
            let is_over = peer.life.as_ref().is_some_and(ProcessLife::is_over);
            is_over && (self.seen.contains(&peer.boot) || peer.seen_ms_ago > UNSEEN_FOR_MS)
        })
    }
}

/// Frees the slots of a dead process and removes its entry. The entry is removed last, so that another check repeats an
/// incomplete attempt.
async fn hand_back(supervisor: &Supervisor, peer: &WorkerEntry) -> Result<(), StoreError> {
    let name = peer.life.as_ref().map_or("", |life| life.name());
    let slots = supervisor.control().store.free_slots_of(&peer.boot, name).await?;
    let last_beat = Heartbeat {
        boot: &peer.boot,
        replica: &peer.replica,
        up: Duration::ZERO,
        info: None,
        lateness: &LatenessCounts::default(),
        now_ms: peer.info.started_ms,
    };
    supervisor.control().store.send_heartbeat(&last_beat).await?;
    info!(replica = %peer.replica, slots, "A worker on this machine has died; its slots are free now, and its jobs run again when their leases expire.");
    Ok(())
}
