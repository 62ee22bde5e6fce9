//! The jobs in flight: leased by this process and not yet settled. The free permits of a queue are its concurrency,
//! minus these jobs, minus the permits reserved for running takes.
//!
//! A blocking mutex is enough: it is held only briefly and never across an await.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::LEASE;
use crate::{
    job::Delivery,
    shards::ShardCount,
    store::{EndedSlots, HeldLease, LeasedJob, SUSPECT_AT},
};

/// Job on its way through apalis. The ticket identifies it instead of the id, because one job may be in flight twice:
/// its lease was lost while it ran, and the same process took it again.
#[derive(Debug, Clone)]
pub(crate) struct TicketedJob {
    pub(crate) ticket: u64,
    pub(crate) leased: LeasedJob,
}

impl TicketedJob {
    /// Returns a copy without the payload, which only the handler needs and which may be large.
    pub(crate) fn without_payload(&self) -> Self {
        let Delivery { queue, ref id, due_ms, lateness_ms, failed, lost, ref slots, .. } = self.leased.delivery;
        let (id, slots) = (id.clone(), slots.clone());
        let delivery = Delivery { queue, id, payload: None, due_ms, lateness_ms, failed, lost, slots };
        Self { ticket: self.ticket, leased: LeasedJob { delivery, token: self.leased.token.clone() } }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobStage {
    /// Waits in its queue's channel.
    Waiting,
    Running,
    /// Has a result that is not written yet.
    Finished,
}

struct InHand {
    held: HeldLease,
    /// Slots that came with the lease.
    slots: Option<EndedSlots>,
    queue: usize,
    stage: JobStage,
    suspect: bool,
    /// Whether this process has lost the lease. The job keeps running, which is harmless, but its result will be
    /// refused.
    lost: bool,
    expires: Instant,
}

struct QueuePermits {
    name: &'static str,
    concurrency: usize,
    in_hand: usize,
    /// Permits of running takes.
    reserved: usize,
}

struct InFlightTable {
    queues: Vec<QueuePermits>,
    jobs: HashMap<u64, InHand>,
    last_ticket: u64,
    suspects: usize,
    /// Shard whose suspects this process runs. Until they end, it takes no jobs from other shards.
    suspect_shard: Option<usize>,
}

pub(crate) struct InFlight {
    table: Mutex<InFlightTable>,
    /// One notification per possible shard; the shard's take loop waits for it.
    freed: Vec<Notify>,
    /// Number of open shards.
    shards: AtomicUsize,
    emptied: Notify,
}

/// Permits of a running take, per queue in the order of the queues.
pub(crate) type Permits = Vec<(&'static str, usize)>;

impl InFlight {
    pub(crate) fn new(queues: &[(&'static str, usize)], shards: usize) -> Self {
        let permits = |&(name, concurrency)| QueuePermits { name, concurrency, in_hand: 0, reserved: 0 };
        let queues = queues.iter().map(permits).collect();
        let table = InFlightTable { queues, jobs: HashMap::new(), last_ticket: 0, suspects: 0, suspect_shard: None };
        let freed = (0..ShardCount::MOST).map(|_| Notify::new()).collect();
        Self { table: Mutex::new(table), freed, shards: AtomicUsize::new(shards), emptied: Notify::new() }
    }

    pub(crate) fn set_shards(&self, shards: usize) {
        self.shards.store(shards, Ordering::Relaxed);
        self.notify_shards();
    }

    fn has_several_shards(&self) -> bool {
        self.shards.load(Ordering::Relaxed) > 1
    }

    fn notify_shards(&self) {
        self.freed[..self.shards.load(Ordering::Relaxed)].iter().for_each(Notify::notify_one);
    }

    fn lock_table(&self) -> MutexGuard<'_, InFlightTable> {
        self.table.lock()
    }

    /// Reserves a fraction of the free permits for a take: their number divided by `share`, and at least one if any is
    /// free. The reservation ends with [`add_leased`](Self::add_leased) or [`give_back`](Self::give_back).
    pub(crate) fn reserve_permits(&self, share: usize) -> Permits {
        let reserve = |queue: &mut QueuePermits| {
            let part = queue.free().div_ceil(share);
            queue.reserved += part;
            (queue.name, part)
        };
        self.lock_table().queues.iter_mut().map(reserve).collect()
    }

    /// Returns the permits of a take that leased no jobs.
    pub(crate) fn give_back(&self, permits: &Permits) {
        self.end_reservation(self.lock_table(), permits);
    }

    /// Returns zero permits per queue, for a take that must lease no jobs.
    pub(crate) fn no_permits(&self) -> Permits {
        self.lock_table().queues.iter().map(|queue| (queue.name, 0)).collect()
    }

    fn end_reservation(&self, mut table: MutexGuard<'_, InFlightTable>, permits: &Permits) {
        for (queue, (_, part)) in table.queues.iter_mut().zip(permits) {
            queue.reserved -= part;
        }
        let reserved_any = permits.iter().any(|(_, part)| *part > 0);
        // Takes from other shards may have had too few permits.
        let is_worth_it =
            self.has_several_shards() && reserved_any && table.queues.iter().any(|queue| queue.free() > 0);
        drop(table);
        if is_worth_it {
            self.notify_shards();
        }
    }

    /// Starts running the suspects of this shard, unless those of another shard are running. Returns whether the
    /// suspects of this shard may run. Takes in progress may still bring jobs of other shards.
    pub(crate) fn begin_suspects(&self, shard: usize) -> bool {
        *self.lock_table().suspect_shard.get_or_insert(shard) == shard
    }

    /// Ends the suspects' run that [`begin_suspects`](Self::begin_suspects) started.
    pub(crate) fn end_suspects(&self, shard: usize) {
        let ended = self.lock_table().suspect_shard.take_if(|running| *running == shard).is_some();
        if ended && self.has_several_shards() {
            self.notify_shards();
        }
    }

    pub(crate) fn runs_suspects_of_other(&self, shard: usize) -> bool {
        self.lock_table().suspect_shard.is_some_and(|running| running != shard)
    }

    pub(crate) fn has_permit(&self, queue: &str) -> bool {
        self.lock_table().queues.iter().any(|known| known.name == queue && known.free() > 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock_table().jobs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a running take may bring jobs.
    pub(crate) fn has_running_take(&self) -> bool {
        self.lock_table().queues.iter().any(|queue| queue.reserved > 0)
    }

    /// Returns whether no job is in flight, and no running take may bring one.
    pub(crate) fn is_idle(&self) -> bool {
        let table = self.lock_table();
        table.jobs.is_empty() && table.queues.iter().all(|queue| queue.reserved == 0)
    }

    /// Returns whether a suspect is in flight, which must run alone.
    pub(crate) fn holds_suspect(&self) -> bool {
        self.lock_table().suspects > 0
    }

    /// Adds jobs that were just leased under these permits. `since` is a time before the call that leased them. Returns
    /// each job with the number of its queue.
    pub(crate) fn add_leased(
        &self,
        leased: Vec<LeasedJob>,
        permits: &Permits,
        since: Instant,
    ) -> Vec<(usize, TicketedJob)> {
        let mut table = self.lock_table();
        let mut works = Vec::with_capacity(leased.len());
        for leased in leased {
            let Some(queue) = table.queues.iter().position(|queue| queue.name == leased.delivery.queue) else {
                continue;
            };
            let suspect = leased.delivery.lost >= SUSPECT_AT;
            let held =
                HeldLease { queue: leased.delivery.queue, id: leased.delivery.id.clone(), token: leased.token.clone() };
            let grant = leased.delivery.slots.clone();
            let slots = grant.map(|grant| EndedSlots { job: held.id.clone(), grant });
            let job =
                InHand { held, slots, queue, stage: JobStage::Waiting, suspect, lost: false, expires: since + LEASE };
            table.last_ticket += 1;
            table.queues[queue].in_hand += 1;
            table.suspects += usize::from(suspect);
            let ticket = table.last_ticket;
            table.jobs.insert(ticket, job);
            works.push((queue, TicketedJob { ticket, leased }));
        }
        self.end_reservation(table, permits);
        works
    }

    /// Marks the job as running. `false` means that the job was handed back and must not run.
    pub(crate) fn mark_running(&self, ticket: u64) -> bool {
        let mut table = self.lock_table();
        let Some(job) = table.jobs.get_mut(&ticket) else { return false };
        job.stage = JobStage::Running;
        true
    }

    /// Marks jobs that have results.
    pub(crate) fn mark_finished(&self, tickets: impl Iterator<Item = u64>) {
        let mut table = self.lock_table();
        for ticket in tickets {
            if let Some(job) = table.jobs.get_mut(&ticket) {
                job.stage = JobStage::Finished;
            }
        }
    }

    /// Returns whether the job's lease may still be valid.
    pub(crate) fn may_settle(&self, ticket: u64, now: Instant) -> bool {
        self.lock_table().jobs.get(&ticket).is_some_and(|job| job.expires > now)
    }

    /// Removes settled jobs and frees their permits.
    pub(crate) fn remove_settled(&self, tickets: impl Iterator<Item = u64>) {
        let mut table = self.lock_table();
        for ticket in tickets {
            table.remove(ticket);
        }
        self.notify_freed(table);
    }

    /// Returns the leases of a shard that this process has not lost.
    pub(crate) fn live_leases(&self, shard: u16) -> Vec<(u64, HeldLease)> {
        let table = self.lock_table();
        let ours = table.jobs.iter().filter(|(_, job)| !job.lost && job.held.token.shard() == shard);
        ours.map(|(ticket, job)| (*ticket, job.held.clone())).collect()
    }

    /// Records that a call started at `since` renewed these leases.
    pub(crate) fn mark_renewed(&self, tickets: impl Iterator<Item = u64>, since: Instant) {
        let mut table = self.lock_table();
        for ticket in tickets {
            if let Some(job) = table.jobs.get_mut(&ticket) {
                job.expires = since + LEASE;
            }
        }
    }

    /// Records a lost lease. `false` means that the job already has a result, so its own settle may have ended the
    /// lease.
    pub(crate) fn mark_lost(&self, ticket: u64) -> bool {
        let mut table = self.lock_table();
        let Some(job) = table.jobs.get_mut(&ticket).filter(|job| job.stage != JobStage::Finished) else { return false };
        job.lost = true;
        true
    }

    /// Removes the jobs that have not started. Returns the leases that were not lost, and the slots of all these jobs.
    pub(crate) fn take_waiting(&self) -> (Vec<HeldLease>, Vec<EndedSlots>) {
        self.take_where(|job| job.stage == JobStage::Waiting)
    }

    /// Removes all jobs. Returns the leases that were not lost, and the slots of all jobs.
    pub(crate) fn take_all(&self) -> (Vec<HeldLease>, Vec<EndedSlots>) {
        self.take_where(|_| true)
    }

    fn take_where(&self, wanted: impl Fn(&InHand) -> bool) -> (Vec<HeldLease>, Vec<EndedSlots>) {
        let mut table = self.lock_table();
        let tickets: Vec<u64> = table.jobs.iter().filter(|(_, job)| wanted(job)).map(|(ticket, _)| *ticket).collect();
        let taken: Vec<InHand> = tickets.into_iter().filter_map(|ticket| table.remove(ticket)).collect();
        self.notify_freed(table);
        let slots = taken.iter().filter_map(|job| job.slots.clone()).collect();
        let ours = taken.into_iter().filter(|job| !job.lost).map(|job| job.held);
        (ours.collect(), slots)
    }

    fn notify_freed(&self, table: MutexGuard<'_, InFlightTable>) {
        let empty = table.jobs.is_empty();
        drop(table);
        self.notify_shards();
        if empty {
            self.emptied.notify_one();
        }
    }

    /// Waits until a permit was freed since the last call for this shard.
    pub(crate) async fn wait_until_freed(&self, shard: usize) {
        self.freed[shard].notified().await;
    }

    /// Waits until no job is in flight.
    pub(crate) async fn wait_until_empty(&self) {
        while !self.is_empty() {
            self.emptied.notified().await;
        }
    }
}

impl QueuePermits {
    fn free(&self) -> usize {
        self.concurrency.saturating_sub(self.in_hand + self.reserved)
    }
}

impl InFlightTable {
    fn remove(&mut self, ticket: u64) -> Option<InHand> {
        let job = self.jobs.remove(&ticket)?;
        self.queues[job.queue].in_hand -= 1;
        self.suspects -= usize::from(job.suspect);
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        job::JobId,
        slots::{SlotGrant, SlotNeed},
        store::LeaseToken,
    };

    #[test]
    fn drain_returns_slots_of_waiting_jobs_first() {
        let in_flight = InFlight::new(&[("q", 2)], 1);
        let token = LeaseToken::new("boot", 1);
        let hold = Duration::from_secs(1);
        let need = SlotNeed::new("group", "own", hold).unwrap();
        let ends_by = Instant::now() + hold;
        let leased = ["k:begun", "k:waits"].map(|id| LeasedJob {
            delivery: Delivery {
                queue: "q",
                id: JobId::parse(id).unwrap(),
                payload: None,
                due_ms: 0,
                lateness_ms: 0,
                failed: 0,
                lost: 0,
                slots: Some(SlotGrant::new(id, need.clone(), ends_by)),
            },
            token: token.clone(),
        });
        let works = in_flight.add_leased(leased.to_vec(), &in_flight.reserve_permits(1), Instant::now());
        assert!(in_flight.mark_running(works[0].1.ticket));
        let (held, slots) = in_flight.take_waiting();
        assert_eq!(held.iter().map(|held| held.id.as_str()).collect::<Vec<_>>(), ["k:waits"]);
        assert_eq!(slots.iter().map(|slots| slots.grant.holder()).collect::<Vec<_>>(), ["k:waits"]);
        let (held, slots) = in_flight.take_all();
        assert_eq!(held.iter().map(|held| held.id.as_str()).collect::<Vec<_>>(), ["k:begun"]);
        assert_eq!(slots.iter().map(|slots| slots.grant.holder()).collect::<Vec<_>>(), ["k:begun"]);
    }

    /// Each take reserves half of the free permits, so a silent shard keeps no more than that. The last permit is not
    /// split.
    #[test]
    fn takes_from_several_shards_share_the_permits() {
        let in_flight = InFlight::new(&[("q", 5)], 2);
        let first = in_flight.reserve_permits(2);
        let second = in_flight.reserve_permits(2);
        let third = in_flight.reserve_permits(4);
        assert_eq!((first[0].1, second[0].1, third[0].1), (3, 1, 1));
        assert!(!in_flight.has_permit("q") && in_flight.is_empty() && !in_flight.is_idle());
        for permits in [first, second, third] {
            in_flight.give_back(&permits);
        }
        assert!(in_flight.has_permit("q") && in_flight.is_idle());
        assert_eq!(in_flight.reserve_permits(1)[0].1, 5);
    }

    #[test]
    fn suspects_run_for_one_shard_at_a_time() {
        let in_flight = InFlight::new(&[("q", 1)], 2);
        assert!(in_flight.begin_suspects(1) && in_flight.begin_suspects(1) && !in_flight.begin_suspects(0));
        assert!(in_flight.runs_suspects_of_other(0) && !in_flight.runs_suspects_of_other(1));
        in_flight.end_suspects(0);
        assert!(in_flight.runs_suspects_of_other(0));
        in_flight.end_suspects(1);
        assert!(in_flight.begin_suspects(0));
    }
}
