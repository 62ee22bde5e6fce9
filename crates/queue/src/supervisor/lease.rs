//! Renews leases, sends heartbeats, and hands back the jobs that a drain leaves. Design:
//! docs/design/queue.md.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{LEASE, RunCounts, ShardLink, Supervisor, own_use};
use crate::store::{Heartbeat, HeldLease, LeaseVerdict, WorkerInfo};

/// Interval of renewals: a quarter of a lease, so three renewals may fail before a lease is lost.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// Delay after a failed renewal.
const RENEW_AGAIN: Duration = Duration::from_millis(250);

/// Time that a drain waits for Redis to take its jobs back. After that, their leases expire.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// Renews the leases of one shard until it is stopped. In the control shard it also sends heartbeats.
pub(crate) async fn run((supervisor, link): (&Supervisor, &ShardLink), stop: CancellationToken) {
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let begun = Instant::now();
        let renewed = renew_leases(supervisor, link).await;
        if link.store.shard() == 0 {
            send_heartbeat(supervisor, true).await;
        }
        wait = if renewed { RENEW_EVERY.saturating_sub(begun.elapsed()) } else { RENEW_AGAIN };
    }
}

/// Returns `false` if the call to Redis failed.
async fn renew_leases(supervisor: &Supervisor, link: &ShardLink) -> bool {
    let (tickets, held): (Vec<u64>, Vec<HeldLease>) =
        supervisor.in_flight.live_leases(link.store.shard()).into_iter().unzip();
    if held.is_empty() {
        return true;
    }
    let begun = Instant::now();
    let verdicts = match link.store.extend(&held, LEASE).await {
        Ok(verdicts) => verdicts,
        Err(error) => {
            link.outage.record_failure(&error);
            return false;
        }
    };
    link.outage.record_success();
    let verdicts = || tickets.iter().zip(&held).zip(&verdicts);
    let ours = verdicts().filter(|(_, verdict)| **verdict == LeaseVerdict::Yes);
    supervisor.in_flight.mark_renewed(ours.map(|((ticket, _), _)| *ticket), begun);
    for ((ticket, held), _) in verdicts().filter(|(_, verdict)| **verdict == LeaseVerdict::Lost) {
        if supervisor.in_flight.mark_lost(*ticket) {
            warn!(job.id = %held.id, "The job's lease is lost while it runs; its result will be refused, and it runs again.");
        }
    }
    true
}

/// Sends one heartbeat. With `alive = false`, sends the last one.
pub(crate) async fn send_heartbeat(supervisor: &Supervisor, alive: bool) {
    let lateness = std::mem::take(&mut *supervisor.lateness.lock());
    let runs = supervisor.run_times.lock().report(Instant::now());
    // Read before the jobs are counted: a drained process without jobs stays without jobs.
    let drain_ms = supervisor.followed_drain();
    let info = WorkerInfo {
        in_hand: supervisor.in_flight.len(),
        drain_ms,
        runs,
        resident_bytes: own_use::resident_bytes(),
        cpu_percent: supervisor.processor.lock().measure(Instant::now()),
        ..supervisor.info.clone()
    };
    let beat = Heartbeat {
        boot: &supervisor.boot,
        replica: &supervisor.replica,
        up: supervisor.started.elapsed(),
        info: alive.then_some(&info),
        lateness: &lateness,
        now_ms: supervisor.now_ms.load(Ordering::Relaxed),
    };
    if let Err(error) = supervisor.control().store.send_heartbeat(&beat).await {
        supervisor.control().outage.record_failure(&error);
        supervisor.lateness.lock().merge_counts(lateness);
    }
}

/// Hands jobs back to their shards, due as before and with no try spent.
pub(crate) async fn release_leases(supervisor: &Supervisor, held: Vec<HeldLease>) {
    for link in supervisor.links.opened() {
        let of_shard = held.iter().filter(|held| held.token.shard() == link.store.shard()).cloned().collect();
        release_of_shard(supervisor, link, of_shard).await;
    }
}

async fn release_of_shard(supervisor: &Supervisor, link: &ShardLink, held: Vec<HeldLease>) {
    if held.is_empty() {
        return;
    }
    match tokio::time::timeout(RELEASE_WITHIN, link.store.release(&held)).await {
        Ok(Ok(verdicts)) => {
            let released = verdicts.iter().filter(|verdict| **verdict == LeaseVerdict::Yes).count();
            RunCounts::add_to(&supervisor.counts.released, released);
        }
        Ok(Err(error)) => {
            warn!(jobs = held.len(), %error, "Jobs could not be handed back; they run when their leases expire.");
        }
        Err(_) => {
            warn!(
                jobs = held.len(),
                "Redis is slow. Jobs could not be handed back; they run when their leases expire."
            );
        }
    }
}
