//! The jobs in in_flight: leased by this process and not yet settled. Free permits are concurrency minus these.
//!
//! A std mutex, for it is never held across an await and only for moments.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::Notify;

use super::LEASE;
use crate::{
    job::Delivery,
    store::{EndedSlots, HeldLease, LeasedJob, SUSPECT_AT},
};

/// A job on its way through apalis. The ticket and not the id names it, because a job may be in hand twice: its lease was
/// lost while it ran, and this same process took it again.
#[derive(Debug, Clone)]
pub(crate) struct TicketedJob {
    pub(crate) ticket: u64,
    pub(crate) leased: LeasedJob,
}

impl TicketedJob {
    /// The same but for the payload, which only the handler needs and which may be large.
    pub(crate) fn without_payload(&self) -> Self {
        let Delivery { queue, ref id, due_ms, lateness_ms, failed, lost, ref slots, payload: _ } = self.leased.delivery;
        let (id, slots) = (id.clone(), slots.clone());
        let delivery = Delivery { queue, id, payload: None, due_ms, lateness_ms, failed, lost, slots };
        Self { ticket: self.ticket, leased: LeasedJob { delivery, token: self.leased.token.clone() } }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobStage {
    /// Lies in its queue's channel.
    Waiting,
    Running,
    /// Has a result that is not yet written.
    Finished,
}

struct InHand {
    held: HeldLease,
    /// Slots that came with the lease.
    slots: Option<EndedSlots>,
    queue: usize,
    stage: JobStage,
    suspect: bool,
    /// The lease is not ours any more. The job runs on, for it cannot do harm, but its result will be refused.
    lost: bool,
    expires: Instant,
}

struct QueuePermits {
    name: &'static str,
    concurrency: usize,
    in_hand: usize,
}

struct InFlightTable {
    queues: Vec<QueuePermits>,
    jobs: HashMap<u64, InHand>,
    last_ticket: u64,
    suspects: usize,
}

pub(crate) struct InFlight {
    table: Mutex<InFlightTable>,
    freed: Notify,
    emptied: Notify,
}

impl InFlight {
    pub(crate) fn new(queues: &[(&'static str, usize)]) -> Self {
        let queues = queues.iter().map(|&(name, concurrency)| QueuePermits { name, concurrency, in_hand: 0 }).collect();
        let table = InFlightTable { queues, jobs: HashMap::new(), last_ticket: 0, suspects: 0 };
        Self { table: Mutex::new(table), freed: Notify::new(), emptied: Notify::new() }
    }

    fn lock_table(&self) -> MutexGuard<'_, InFlightTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Free permits per queue, in the order of the queues.
    pub(crate) fn free_permits(&self) -> Vec<(&'static str, usize)> {
        let free = |queue: &QueuePermits| (queue.name, queue.concurrency.saturating_sub(queue.in_hand));
        self.lock_table().queues.iter().map(free).collect()
    }

    pub(crate) fn has_permit(&self, queue: &str) -> bool {
        self.lock_table().queues.iter().any(|known| known.name == queue && known.in_hand < known.concurrency)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock_table().jobs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a job is in hand that must have no neighbours.
    pub(crate) fn holds_suspect(&self) -> bool {
        self.lock_table().suspects > 0
    }

    /// Takes jobs into the hand, just leased; `since` is a moment before the call that leased them. Answers each with the
    /// number of its queue.
    pub(crate) fn add_leased(&self, leased: Vec<LeasedJob>, since: Instant) -> Vec<(usize, TicketedJob)> {
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
        works
    }

    /// The job begins to run. `false`: it was handed back meanwhile and must not.
    pub(crate) fn mark_running(&self, ticket: u64) -> bool {
        let mut table = self.lock_table();
        let Some(job) = table.jobs.get_mut(&ticket) else { return false };
        job.stage = JobStage::Running;
        true
    }

    /// The jobs have results.
    pub(crate) fn mark_finished(&self, tickets: impl Iterator<Item = u64>) {
        let mut table = self.lock_table();
        for ticket in tickets {
            if let Some(job) = table.jobs.get_mut(&ticket) {
                job.stage = JobStage::Finished;
            }
        }
    }

    /// Whether the job's lease can still be in force.
    pub(crate) fn may_settle(&self, ticket: u64, now: Instant) -> bool {
        self.lock_table().jobs.get(&ticket).is_some_and(|job| job.expires > now)
    }

    /// The jobs have left our in_flight: their permits are free.
    pub(crate) fn remove_settled(&self, tickets: impl Iterator<Item = u64>) {
        let mut table = self.lock_table();
        for ticket in tickets {
            table.remove(ticket);
        }
        self.notify_freed(table);
    }

    /// All leases that are ours.
    pub(crate) fn live_leases(&self) -> Vec<(u64, HeldLease)> {
        let table = self.lock_table();
        let ours = table.jobs.iter().filter(|(_, job)| !job.lost);
        ours.map(|(ticket, job)| (*ticket, job.held.clone())).collect()
    }

    /// Leases were renewed by a call begun at `since`.
    pub(crate) fn mark_renewed(&self, tickets: impl Iterator<Item = u64>, since: Instant) {
        let mut table = self.lock_table();
        for ticket in tickets {
            if let Some(job) = table.jobs.get_mut(&ticket) {
                job.expires = since + LEASE;
            }
        }
    }

    /// A lease is not ours any more. `false`: the job has its result already, so this is but its own settle.
    pub(crate) fn mark_lost(&self, ticket: u64) -> bool {
        let mut table = self.lock_table();
        let Some(job) = table.jobs.get_mut(&ticket).filter(|job| job.stage != JobStage::Finished) else { return false };
        job.lost = true;
        true
    }

    /// Removes the jobs that have not begun. Answers those whose lease is ours, and the slots of all.
    pub(crate) fn take_waiting(&self) -> (Vec<HeldLease>, Vec<EndedSlots>) {
        self.take_where(|job| job.stage == JobStage::Waiting)
    }

    /// Removes all jobs. Answers those whose lease is ours, and the slots of all.
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
        self.freed.notify_one();
        if empty {
            self.emptied.notify_one();
        }
    }

    /// Some permit was freed since the last call.
    pub(crate) async fn wait_until_freed(&self) {
        self.freed.notified().await;
    }

    /// Nothing is in hand any more.
    pub(crate) async fn wait_until_empty(&self) {
        while !self.is_empty() {
            self.emptied.notified().await;
        }
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
    fn a_drain_hands_back_the_slots_of_jobs_that_have_not_begun_and_then_of_the_rest() {
        let in_flight = InFlight::new(&[("q", 2)]);
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
        let works = in_flight.add_leased(leased.to_vec(), Instant::now());
        assert!(in_flight.mark_running(works[0].1.ticket));
        let (held, slots) = in_flight.take_waiting();
        assert_eq!(held.iter().map(|held| held.id.as_str()).collect::<Vec<_>>(), ["k:waits"]);
        assert_eq!(slots.iter().map(|slots| slots.grant.holder()).collect::<Vec<_>>(), ["k:waits"]);
        let (held, slots) = in_flight.take_all();
        assert_eq!(held.iter().map(|held| held.id.as_str()).collect::<Vec<_>>(), ["k:begun"]);
        assert_eq!(slots.iter().map(|slots| slots.grant.holder()).collect::<Vec<_>>(), ["k:begun"]);
    }
}
