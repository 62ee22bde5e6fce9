//! Leases due jobs when permits are free, and sleeps until the next one is due.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{LEASE, Permits, RedisOutage, ShardLink, Supervisor, TicketedJob, turn::SuspectTurn};
use crate::{
    shards::Shards,
    store::{DeadJob, LeaseToken, LeasedJob, SettleRequest, TakeAnswer, TakeErrands, TakeMode, TakeRequest},
};

/// Longest sleep. A lost wake message delays a job by no more than this.
const IDLE_POLL: Duration = Duration::from_secs(1);

/// Interval of takes while the epoch is missing.
const EPOCH_POLL: Duration = Duration::from_millis(250);

/// Minimum time between takes that look for expired leases and slots, unless the previous take left some of them.
const EXPIRED_LOOK: Duration = Duration::from_millis(100);

/// Minimum pause after a take that leased no jobs, before another take for due jobs. Another process was faster, or the
/// due jobs wait for slots. Wake messages and slots to free do not wait for it.
const EMPTY_PAUSE: Duration = Duration::from_millis(3);

/// Action after a take.
enum NextTake {
    /// Take again at once: there is more to lease or to rescue than one take may handle.
    Now,
    /// Sleep until this time, because no job can be due before it. A signal ends the sleep.
    Sleep { until: Instant, when_freed: bool },
    /// Wait this long. No signal ends the pause.
    Pause(Duration),
}

/// Loop of takes from one shard.
pub(crate) struct TakeLoop<'a> {
    supervisor: &'a Supervisor,
    link: &'a ShardLink,
    shard: usize,
    /// One channel per queue, to the queue's worker.
    channels: Vec<mpsc::UnboundedSender<TicketedJob>>,
    /// Settle requests for jobs that cannot be read.
    unreadable: mpsc::UnboundedSender<SettleRequest>,
    gate: watch::Receiver<bool>,
    /// Current shards, to see whether this one is open.
    shards: watch::Receiver<Shards>,
    wakes: Option<broadcast::Receiver<String>>,
    sequence: u64,
    turn: SuspectTurn,
    /// Failed takes in a row.
    failures: u32,
    epoch_missing: bool,
    /// Time of the last take that looked for expired leases and slots; `None` if the next take must look.
    expired_looked: Option<Instant>,
}

impl Drop for TakeLoop<'_> {
    fn drop(&mut self) {
        // From here on, waiting slots are sent immediately, however the loop ends.
        self.link.store.end_carrying();
    }
}

impl<'a> TakeLoop<'a> {
    pub(crate) fn new(
        supervisor: &'a Supervisor,
        shard: usize,
        channels: Vec<mpsc::UnboundedSender<TicketedJob>>,
        unreadable: mpsc::UnboundedSender<SettleRequest>,
    ) -> Self {
        Self {
            supervisor,
            link: supervisor.link(shard),
            shard,
            channels,
            unreadable,
            gate: supervisor.gate.watch_state(),
            shards: supervisor.current.clone(),
            wakes: None,
            sequence: 0,
            turn: SuspectTurn::default(),
            failures: 0,
            epoch_missing: false,
            expired_looked: None,
        }
    }

    /// Takes until it is stopped. Jobs of the last take are then in flight but not started.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if self.supervisor.count_open() <= self.shard {
                self.link.store.end_carrying();
                self.wait_until_opened(&stop).await;
                continue;
            }
            if self.wakes.is_none() {
                // If this fails, the next take fails, too, and reports the error.
                self.wakes = self.link.store.subscribe_wakes().await.ok();
            }
            self.link.store.begin_carrying();
            match self.take_jobs(&stop).await {
                NextTake::Now => {}
                NextTake::Sleep { until, when_freed } => self.sleep_until_work(until, when_freed, &stop).await,
                NextTake::Pause(delay) => {
                    self.link.store.end_carrying();
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(delay) => {}
                    }
                }
            }
        }
    }

    /// Waits while the shard is closed. Its jobs in flight are settled as usual.
    async fn wait_until_opened(&mut self, stop: &CancellationToken) {
        if self.turn.is_ours() {
            // In Redis the turn expires.
            self.turn.give_up(Instant::now());
        }
        self.supervisor.in_flight.end_suspects(self.shard);
        self.wakes = None;
        let shard = self.shard;
        let opened = async { self.shards.wait_for(|shards| shards.stores().len() > shard).await.is_ok() };
        if stop.run_until_cancelled(opened).await == Some(false) {
            // The number of shards can no longer change.
            stop.cancelled().await;
        }
    }

    async fn take_jobs(&mut self, stop: &CancellationToken) -> NextTake {
        let supervisor = self.supervisor;
        let is_open = *self.gate.borrow_and_update();
        let others_suspects = supervisor.in_flight.runs_suspects_of_other(self.shard);
        let mode = if others_suspects {
            TakeMode::Rest
        } else if supervisor.in_flight.holds_suspect() {
            TakeMode::Quiesce
        } else if !is_open {
            // A process that may not take leaves the suspects to other processes.
            TakeMode::Rest
        } else {
            self.turn.next_mode(supervisor.in_flight.is_idle(), Instant::now())
        };
        if !self.turn.is_ours() && !supervisor.in_flight.holds_suspect() {
            supervisor.in_flight.end_suspects(self.shard);
        }
        // A take without permits still rescues expired leases of other processes.
        let permits = self.reserve_permits(is_open && !others_suspects);

        self.sequence += 1;
        let token = LeaseToken::new(&supervisor.boot, self.sequence).of_shard(self.link.store.shard());
        let request = TakeRequest { queues: &permits, token: &token, lease: LEASE, mode };
        let begun = Instant::now();
        let carried = self.link.store.take_carried();
        let finds_expired = self.expired_looked.is_none_or(|at| begun - at >= EXPIRED_LOOK);
        let errands = TakeErrands { ended: &carried, finds_expired };
        let taken = self.link.store.take_beside(&request, &errands).await;
        let ended = Instant::now();
        self.link.store.finish_carried(carried, taken.is_err());
        if finds_expired && taken.is_ok() {
            self.expired_looked = Some(begun);
        }
        match taken {
            Err(error) => {
                supervisor.in_flight.give_back(&permits);
                self.link.outage.record_failure(&error);
                self.failures = self.failures.saturating_add(1);
                // The subscription may have been lost with the connection.
                self.wakes = None;
                self.leave_turn_to_others(ended);
                NextTake::Pause(RedisOutage::retry_delay(self.failures))
            }
            Ok(TakeAnswer::NoEpoch) => {
                supervisor.in_flight.give_back(&permits);
                self.record_answer();
                self.report_missing_epoch();
                NextTake::Pause(EPOCH_POLL)
            }
            Ok(TakeAnswer::Jobs {
                jobs,
                unreadable,
                now_ms,
                next_due_ms,
                dead,
                suspects,
                has_turn,
                more_expired,
                is_rebuilding,
            }) => {
                self.record_answer();
                self.epoch_missing &= is_rebuilding;
                if is_rebuilding {
                    // The process that rebuilds may have died before it finished.
                    self.notify_missing_epoch();
                }
                if self.shard == 0 {
                    supervisor.now_ms.store(now_ms, Ordering::Relaxed);
                }
                let full = permits
                    .iter()
                    .any(|(queue, free)| *free == jobs.iter().filter(|leased| leased.delivery.queue == *queue).count());
                let found_nothing = jobs.is_empty();
                self.report_taken(&jobs, &dead);
                for settle in unreadable {
                    let _ = self.unreadable.send(settle);
                }
                self.deliver_jobs(jobs, &permits, begun, stop);
                let wait = next_due_ms.map_or(IDLE_POLL, |due_ms| Duration::from_millis(due_ms.saturating_sub(now_ms)));
                let holds_suspect = supervisor.in_flight.holds_suspect();
                let changed = self.turn.update_after_take(has_turn, suspects, holds_suspect, ended);
                if self.turn.is_ours() && !supervisor.in_flight.begin_suspects(self.shard) {
                    self.turn.give_up(ended);
                }
                let is_idle = supervisor.in_flight.is_idle();
                if more_expired {
                    self.expired_looked = None;
                }
                // A turn that has just started waits until this process has no jobs in flight.
                if more_expired || wait.is_zero() || changed && (is_idle || !has_turn) {
                    return NextTake::Now;
                }
                let wait = self.turn.rests_for(ended).map_or(wait, |rest| wait.min(rest)).min(IDLE_POLL);
                let wait = if found_nothing { wait.max(EMPTY_PAUSE) } else { wait };
                NextTake::Sleep { until: ended + wait, when_freed: full || self.turn.is_ours() || holds_suspect }
            }
        }
    }

    /// Reserves permits if this take may lease jobs. The gate is read again after the reservation, so that a closed gate
    /// without a reservation proves that no jobs follow.
    fn reserve_permits(&self, may_lease: bool) -> Permits {
        let in_flight = &self.supervisor.in_flight;
        if !may_lease {
            return in_flight.no_permits();
        }
        let permits = in_flight.reserve_permits(self.link.share());
        if self.supervisor.gate.is_open() {
            return permits;
        }
        in_flight.give_back(&permits);
        in_flight.no_permits()
    }

    /// Gives the turn up after a failed take. Other shards waited for this shard's suspects, which cannot be taken now.
    fn leave_turn_to_others(&mut self, now: Instant) {
        let supervisor = self.supervisor;
        if supervisor.count_open() > 1 && self.turn.is_ours() && !supervisor.in_flight.holds_suspect() {
            self.turn.give_up(now);
            supervisor.in_flight.end_suspects(self.shard);
        }
    }

    fn record_answer(&mut self) {
        self.failures = 0;
        self.link.outage.record_success();
    }

    fn report_missing_epoch(&mut self) {
        if !self.epoch_missing {
            warn!("Redis does not have the queue's jobs; the worker takes none until they are rebuilt.");
            self.epoch_missing = true;
        }
        self.notify_missing_epoch();
    }

    fn notify_missing_epoch(&self) {
        if let Some(notify) = &self.supervisor.on_missing_epoch {
            notify.notify_one();
        }
    }

    fn report_taken(&self, jobs: &[LeasedJob], dead: &[DeadJob]) {
        let mut lateness = self.supervisor.lateness.lock();
        for LeasedJob { delivery, .. } in jobs {
            self.supervisor.metrics.record_taken(delivery);
            lateness.record_lateness(delivery.lateness_ms);
            if delivery.lost > 0 {
                info!(job.id = %delivery.id, lost = delivery.lost, "The job's last delivery was lost; it runs again.");
            }
        }
        drop(lateness);
        for job in dead {
            self.supervisor.metrics.record_lost(job.queue);
            self.supervisor.job_died(&job.id, &job.error);
        }
    }

    fn deliver_jobs(&self, jobs: Vec<LeasedJob>, permits: &Permits, since: Instant, stop: &CancellationToken) {
        let works = self.supervisor.in_flight.add_leased(jobs, permits, since);
        if stop.is_cancelled() {
            return;
        }
        for (queue, work) in works {
            // The receivers live as long as the run.
            let _ = self.channels[queue].send(work);
        }
    }

    async fn sleep_until_work(&mut self, until: Instant, when_freed: bool, stop: &CancellationToken) {
        let in_flight = &self.supervisor.in_flight;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(until.into()) => return,
                () = in_flight.wait_until_freed(self.shard), if when_freed => return,
                () = self.link.store.wait_for_gathered() => return,
                // The sender lives as long as the gate, which the supervisor keeps.
                _ = self.gate.changed() => return,
                woken = wait_for_wake(&mut self.wakes, in_flight) => if woken { return },
            }
        }
    }
}

/// Waits for a wake message. Returns `true` if it is for a queue that has a free permit.
async fn wait_for_wake(wakes: &mut Option<broadcast::Receiver<String>>, in_flight: &super::InFlight) -> bool {
    let Some(receiver) = wakes else { return std::future::pending().await };
    let first = receiver.recv().await;
    let mut worth_it = match first {
        Ok(queue) => in_flight.has_permit(&queue),
        Err(broadcast::error::RecvError::Lagged(_)) => true,
        Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
    };
    // The next take serves all messages that have arrived so far.
    while let Ok(queue) = receiver.try_recv() {
        worth_it |= in_flight.has_permit(&queue);
    }
    worth_it
}
