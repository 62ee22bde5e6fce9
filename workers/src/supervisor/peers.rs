//! Watches the other workers of this machine, and hands back what one held that has ended without a drain: others need not wait
//! until its leases and slots end by their time. Those of other machines do wait, for there nothing proves that it is gone.

use std::time::{Duration, Instant};

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
const LIST_EVERY: Duration = Duration::from_secs(2);
/// Connections of a process end with it. What it had asked of others hears of that within this time.
const CLOSED_WITHIN: Duration = Duration::from_millis(250);

/// Watches until told to stop. Redis that cannot be asked is no matter: then leases and slots end by their time.
pub(crate) async fn run(supervisor: &Supervisor, stop: CancellationToken) {
    if own_life().is_none() {
        return;
    }
    let _ = stop.run_until_cancelled(watch(supervisor)).await;
}

async fn watch(supervisor: &Supervisor) {
    let (mut peers, mut listed): (Vec<WorkerEntry>, Option<Instant>) = (Vec::new(), None);
    loop {
        if listed.is_none_or(|at| at.elapsed() >= LIST_EVERY) {
            if let Ok(workers) = supervisor.control().store.list_workers().await {
                peers = workers;
            }
            listed = Some(Instant::now());
        }
        let is_over = |peer: &mut WorkerEntry| peer.life.as_ref().is_some_and(ProcessLife::is_over);
        let gone: Vec<WorkerEntry> = peers.extract_if(.., is_over).collect();
        if gone.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        tokio::time::sleep(CLOSED_WITHIN).await;
        for peer in &gone {
            if let Err(error) = hand_back(supervisor, peer).await {
                warn!(%error, replica = %peer.replica, "What a worker held that is gone could not be handed back; again in a moment.");
            }
        }
    }
}

/// Its name goes last: while it stands there, another look does what this one did not.
async fn hand_back(supervisor: &Supervisor, peer: &WorkerEntry) -> Result<(), StoreError> {
    let name = peer.life.as_ref().map_or("", |life| life.name());
    let slots = supervisor.control().store.free_slots_of(&peer.boot, name).await?;
    let queues = supervisor.in_flight.queues();
    let mut leases = 0;
    for link in supervisor.links.opened() {
        leases += link.store.end_leases_of(&peer.boot, &queues).await?;
    }
    let last_beat = Heartbeat {
        boot: &peer.boot,
        replica: &peer.replica,
        up: Duration::ZERO,
        info: None,
        lateness: &LatenessCounts::default(),
        now_ms: peer.info.started_ms,
    };
    supervisor.control().store.send_heartbeat(&last_beat).await?;
    info!(replica = %peer.replica, leases, slots, "A worker of this machine has died; what it held goes to others now.");
    Ok(())
}
