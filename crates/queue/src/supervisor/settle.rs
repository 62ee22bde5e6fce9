//! Writes results. During a call the next results collect, so the batch grows with the load and a single result does
//! not wait.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::{RedisOutage, RunCounts, ShardLink, Supervisor, TicketedJob};
use crate::{
    outcome::Outcome,
    retry::RetryPolicy,
    shards::ShardCount,
    store::{EndedSlots, LeaseEnd, SettleRequest, SettleVerdict},
};

/// Maximum number of results per call.
const BATCH: usize = 500;

/// Time for which a drain tries to write the last results.
const LAST_TRIES: Duration = Duration::from_secs(2);

/// Result of one job, from its apalis worker.
pub(crate) struct FinishedJob {
    pub(crate) work: TicketedJob,
    pub(crate) outcome: Outcome,
    pub(crate) duration: Duration,
    /// Policy of the job's next try. `None`: the policy of its kind.
    pub(crate) retry: Option<RetryPolicy>,
}

/// Sends each result to the settle loop of its job's shard.
#[derive(Debug, Clone)]
pub(crate) struct ResultSender(Arc<[OnceLock<mpsc::UnboundedSender<FinishedJob>>]>);

impl ResultSender {
    pub(crate) fn new() -> Self {
        Self((0..ShardCount::MOST).map(|_| OnceLock::new()).collect())
    }

    /// Returns the receiver for the results of one shard's jobs. Called once per shard, before its first take.
    pub(crate) fn open_shard(&self, shard: usize) -> mpsc::UnboundedReceiver<FinishedJob> {
        let (end, results) = mpsc::unbounded_channel();
        let _ = self.0[shard].set(end);
        results
    }

    pub(crate) fn send(&self, finished: FinishedJob) {
        if let Some(end) = self.0.get(usize::from(finished.work.leased.token.shard())).and_then(OnceLock::get) {
            // The receiver lives as long as the run.
            let _ = end.send(finished);
        }
    }
}

/// Settles results of one shard until `flush` is cancelled, and then the remaining ones.
pub(crate) async fn run(
    (supervisor, link): (&Supervisor, &ShardLink),
    mut results: mpsc::UnboundedReceiver<FinishedJob>,
    mut unreadable: mpsc::UnboundedReceiver<SettleRequest>,
    flush: CancellationToken,
) {
    let mut finished = Vec::with_capacity(BATCH);
    let mut unread = Vec::new();
    // The senders are dropped shortly before `flush` is cancelled.
    let mut open = true;
    loop {
        tokio::select! {
            received = results.recv_many(&mut finished, BATCH), if open => open = received > 0,
            Some(settle) = unreadable.recv() => unread.push(settle),
            () = flush.cancelled() => {
                results.close();
                while let Ok(result) = results.try_recv() {
                    finished.push(result);
                }
                settle_batch((supervisor, link), finished.drain(..), Vec::new(), Some(Instant::now() + LAST_TRIES)).await;
                return;
            }
        }
        while let Ok(settle) = unreadable.try_recv() {
            unread.push(settle);
        }
        settle_batch((supervisor, link), finished.drain(..), std::mem::take(&mut unread), None).await;
    }
}

async fn settle_batch(
    (supervisor, link): (&Supervisor, &ShardLink),
    finished: impl Iterator<Item = FinishedJob>,
    unread: Vec<SettleRequest>,
    give_up: Option<Instant>,
) {
    let mut tickets: Vec<Option<u64>> = vec![None; unread.len()];
    let mut settles = unread;
    for FinishedJob { work, outcome, duration, retry } in finished {
        let delivery = &work.leased.delivery;
        if let Some(grant) = &delivery.slots {
            // The run ended without using these slots.
            let ended = EndedSlots { job: delivery.id.clone(), grant: grant.clone() };
            supervisor.control().store.release_unused_slots(ended);
        }
        report_outcome(supervisor, &work, &outcome, duration);
        tickets.push(Some(work.ticket));
        settles.push(match retry {
            Some(retry) => SettleRequest::new(&work.leased, outcome, &retry, rand::random()),
            None => supervisor.registry.settle(&work.leased, outcome),
        });
    }
    supervisor.in_flight.mark_finished(tickets.iter().flatten().copied());
    let mut failures = 0;
    while !settles.is_empty() {
        match supervisor.shards().settle(&link.store, &settles).await {
            Ok(verdicts) => {
                link.outage.record_success();
                supervisor.in_flight.remove_settled(tickets.iter().flatten().copied());
                record_verdicts(supervisor, &settles, verdicts);
                return;
            }
            Err(failure) => {
                link.outage.record_failure(&failure);
                failures += 1;
                let now = Instant::now();
                let gone: Vec<bool> = tickets
                    .iter()
                    .map(|ticket| {
                        give_up.is_some_and(|at| now > at)
                            || !ticket.is_some_and(|t| supervisor.in_flight.may_settle(t, now))
                    })
                    .collect();
                drop_gone(supervisor, &gone, &mut tickets, &mut settles);
                if !settles.is_empty() {
                    tokio::time::sleep(RedisOutage::retry_delay(failures)).await;
                }
            }
        }
    }
}

/// Drops results whose lease must have expired. Their jobs run again, which is harmless.
fn drop_gone(supervisor: &Supervisor, gone: &[bool], tickets: &mut Vec<Option<u64>>, settles: &mut Vec<SettleRequest>) {
    let dropped = gone.iter().filter(|gone| **gone).count();
    if dropped == 0 {
        return;
    }
    warn!(jobs = dropped, "Results could not be written before their leases expired; the jobs run again.");
    supervisor
        .in_flight
        .remove_settled(tickets.iter().zip(gone).filter(|(_, gone)| **gone).filter_map(|(ticket, _)| *ticket));
    let mut kept = gone.iter().map(|gone| !gone);
    tickets.retain(|_| kept.next().unwrap_or(true));
    let mut kept = gone.iter().map(|gone| !gone);
    settles.retain(|_| kept.next().unwrap_or(true));
}

fn report_outcome(supervisor: &Supervisor, work: &TicketedJob, outcome: &Outcome, duration: Duration) {
    let delivery = &work.leased.delivery;
    supervisor.metrics.record_performed(delivery, outcome, duration);
    supervisor.run_times.lock().record_run(delivery.queue, duration);
    match outcome {
        Outcome::Retry(reason) => {
            warn!(job.id = %delivery.id, attempt = delivery.failed + 1, error = %reason, "The job failed; it runs again by its retry policy.");
        }
        Outcome::Done { .. } | Outcome::Snooze { .. } | Outcome::Park(_) | Outcome::Dead(_) => {
            debug!(job.id = %delivery.id, outcome = outcome.label(), lateness_ms = delivery.lateness_ms, "The job was performed.");
        }
    }
}

fn record_verdicts(supervisor: &Supervisor, settles: &[SettleRequest], verdicts: Vec<SettleVerdict>) {
    let mut refused = 0;
    for (settle, verdict) in settles.iter().zip(verdicts) {
        match verdict {
            SettleVerdict::Settled { dead_follow_ups } => {
                if let LeaseEnd::Dead { error } | LeaseEnd::Spent { error } = &settle.end {
                    supervisor.job_died(&settle.id, error);
                }
                for dead in dead_follow_ups {
                    error!(job.id = %dead, after.id = %settle.id, "The follow-up job is dead and will not run; requeue or discard it.");
                }
            }
            SettleVerdict::Refused => {
                refused += 1;
                warn!(job.id = %settle.id, "The result is refused; the job's lease was lost, and it runs again.");
            }
        }
    }
    if refused > 0 {
        supervisor.metrics.record_refused(refused);
    }
    RunCounts::add_to(&supervisor.counts.refused, refused);
    RunCounts::add_to(&supervisor.counts.settled, settles.len() - refused);
}
