//! Watches the other workers of this machine, and frees the slots of one that has ended without a drain: others need not wait until
//! they end by their time. Those of other machines do wait, for there nothing proves that it is gone. Its leases end by their time
//! everywhere: a job may be what killed it, and what guards against that counts on the lease.
//! Design: docs/design/slots.md.

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

/// How often each of them is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often Redis is asked for their names.
const LIST_EVERY: Duration = Duration::from_secs(5);
/// Connections of a process end with it. What it had asked of others hears of that within this time.
const CLOSED_WITHIN: Duration = Duration::from_millis(250);
/// One that was never seen here counts as ended only when it has missed its heartbeats for so long, too. Copies of one machine's memory
/// share what says where a process is, and their workers are not to be seen from each other.
const UNSEEN_FOR_MS: u64 = 5_000;

/// Watches until told to stop. Redis that cannot be asked is no matter: then slots end by their time.
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
    /// Boots of processes that were seen to live here.
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
                // One that has drained has taken its name away by now.
                self.list(supervisor).await;
                let ended: Vec<WorkerEntry> = self.find_ended().cloned().collect();
                for peer in ended {
                    if let Err(error) = hand_back(supervisor, &peer).await {
                        warn!(%error, replica = %peer.replica, "The slots of a worker that is gone could not be freed; again in a moment.");
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

    /// Those seen before that are still on the list.
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

/// Its name goes last: while it stands there, another look does what this one did not.
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
    info!(replica = %peer.replica, slots, "A worker of this machine has died; its slots go to others now, its jobs when their leases end.");
    Ok(())
}
