//! Expected content of Redis: the jobs as a map, and the effect of each script on them.
//!
//! `take`: leasing. `rebuild`: jobs that may be taken during a rebuild. `operate`: operators' actions. `image`: the
//! reference in Redis' format.

mod image;
mod operate;
mod rebuild;
mod take;

use std::collections::{BTreeMap, BTreeSet};

use super::slots::{SlotTable, WantedSlots};
use queue::{
    SlotNeed,
    store::{EnqueueVerdict, LeaseEnd, LeaseVerdict, RebuildMarker, RepairVerdict},
};

const LEASE_MS: u64 = 8_000;
const PUT_OFF_MS: u64 = 60_000;
const ENQUEUE_TOOK_MS: u64 = 3_000;

/// Content of Redis without the epoch: key -> member or field -> score or value.
pub(super) type Image = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Due { at: u64 },
    Suspect { at: u64 },
    Parked { since: u64 },
    Leased { until: u64, token: String, due: u64, again: Option<u64> },
    Dead { at: u64, record: String },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) queue: &'static str,
    pub(super) state: State,
    envelope: Option<String>,
    /// Slots stated in the envelope.
    slots: Option<SlotNeed>,
    failed: u32,
    pub(super) lost: u32,
    /// Whether the job was delayed on purpose.
    put_off: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) queue: &'static str,
    pub(super) id: String,
    pub(super) delay: u64,
    pub(super) envelope: Option<String>,
    pub(super) slots: Option<SlotNeed>,
}

#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) end: LeaseEnd,
    pub(super) then: Vec<Wanted>,
    pub(super) superseded: Vec<String>,
}

/// Job as returned by a take.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TakenJob {
    pub(super) id: String,
    pub(super) due: u64,
    pub(super) failed: u32,
    pub(super) lost: u32,
    /// Whether it came with its slots.
    pub(super) slots: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Took {
    pub(super) jobs: Vec<TakenJob>,
    pub(super) dead: Vec<String>,
    pub(super) next_due: Option<u64>,
    pub(super) suspects: bool,
    pub(super) has_turn: bool,
    pub(super) is_rebuilding: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) now: u64,
    pub(super) epoch: bool,
    /// Whether the epoch names the running server.
    pub(super) open: bool,
    /// Current rebuild, and its horizon if it has one.
    rebuilding: Option<(RebuildMarker, Option<u64>)>,
    pub(super) slots: SlotTable,
    pub(super) jobs: BTreeMap<String, Job>,
    paused: BTreeSet<&'static str>,
    /// Process that has the turn, and the end of the turn.
    turn: Option<(String, u64)>,
}

impl Reference {
    pub(super) fn new(now: u64) -> Self {
        Self { now, epoch: true, open: true, ..Self::default() }
    }

    pub(super) fn enqueue(&mut self, wanted: &[Wanted], superseded: &[String]) -> Vec<EnqueueVerdict> {
        self.cancel_waiting(superseded);
        wanted.iter().map(|wanted| self.insert(wanted, self.now + wanted.delay)).collect()
    }

    /// Removes all due jobs first, then hands the slots reserved for them to the next in line.
    fn cancel_waiting(&mut self, superseded: &[String]) {
        let is_due = |job: &Job| matches!(job.state, State::Due { .. } | State::Suspect { .. });
        let mut removed = Vec::new();
        for id in superseded {
            if self.jobs.get(id).is_some_and(is_due) {
                self.jobs.remove(id);
                removed.push(id);
            }
        }
        for id in removed {
            self.drop_reservation(id);
        }
    }

    fn insert(&mut self, wanted: &Wanted, due: u64) -> EnqueueVerdict {
        let Some(job) = self.jobs.get_mut(&wanted.id) else {
            self.jobs.insert(wanted.id.clone(), Job::new(wanted, State::Due { at: due }));
            return EnqueueVerdict::Inserted;
        };
        match &mut job.state {
            State::Dead { .. } => EnqueueVerdict::Dead,
            State::Parked { .. } => EnqueueVerdict::Kept,
            State::Leased { again, .. } => {
                *again = Some(again.unwrap_or(due).min(due));
                EnqueueVerdict::Again
            }
            State::Due { at } | State::Suspect { at } if due < *at => {
                *at = due;
                EnqueueVerdict::Moved
            }
            State::Due { .. } | State::Suspect { .. } => EnqueueVerdict::Kept,
        }
    }

    pub(super) fn repair(&mut self, wanted: &[Wanted]) -> Vec<RepairVerdict> {
        let dues: Vec<u64> = wanted.iter().map(|wanted| self.now + wanted.delay).collect();
        self.repair_at(wanted, &dues)
    }

    fn repair_at(&mut self, wanted: &[Wanted], dues: &[u64]) -> Vec<RepairVerdict> {
        let is_fine = |(wanted, due): (&Wanted, &u64)| {
            let Some(job) = self.jobs.get(&wanted.id) else { return false };
            let tolerance = match *due {
                _ if job.has_tries() => PUT_OFF_MS,
                due if due <= self.now => 0,
                _ => ENQUEUE_TOOK_MS,
            };
            match job.state {
                State::Leased { .. } | State::Parked { .. } => true,
                State::Due { at } | State::Suspect { at } => at <= self.now.max(*due) + tolerance,
                State::Dead { .. } => false,
            }
        };
        let fine: Vec<bool> = wanted.iter().zip(dues).map(is_fine).collect();
        let repair = |((wanted, due), fine): ((&Wanted, &u64), bool)| {
            if fine {
                return RepairVerdict::Fine;
            }
            match self.insert(wanted, *due) {
                EnqueueVerdict::Inserted => RepairVerdict::Inserted,
                EnqueueVerdict::Moved => RepairVerdict::Moved,
                EnqueueVerdict::Kept | EnqueueVerdict::Again => RepairVerdict::Fine,
                EnqueueVerdict::Dead => RepairVerdict::Dead,
            }
        };
        wanted.iter().zip(dues).zip(fine).map(repair).collect()
    }

    pub(super) fn all_suspects(&self) -> BTreeSet<String> {
        let suspects = self.jobs.iter().filter(|(_, job)| matches!(job.state, State::Suspect { .. }));
        suspects.map(|(id, _)| id.clone()).collect()
    }

    fn holds(&self, id: &str, token: &str) -> bool {
        matches!(self.jobs.get(id), Some(Job { state: State::Leased { token: present, .. }, .. }) if present == token)
    }

    /// Ends leases. Returns `None` for a refused settle, otherwise its dead follow-ups.
    pub(super) fn settle(&mut self, settles: &[Ended]) -> Vec<Option<Vec<String>>> {
        let settled: Vec<bool> = settles
            .iter()
            .map(|ended| self.holds(&ended.id, &ended.token) && self.end(&ended.id, &ended.end))
            .collect();
        for (ended, _) in settles.iter().zip(&settled).filter(|(_, settled)| **settled) {
            if let (LeaseEnd::Park(need), Some(Job { state: State::Parked { .. }, queue, .. })) =
                (&ended.end, self.jobs.get(&ended.id))
                && !self.slots.is_parked(&ended.id)
            {
                let wanted = WantedSlots::new(queue, need);
                self.park(&ended.id, wanted);
            }
        }
        self.hand_out(&BTreeSet::new());
        let superseded = settles.iter().zip(&settled).filter(|(_, settled)| **settled);
        let superseded: Vec<_> = superseded.flat_map(|(ended, _)| ended.superseded.clone()).collect();
        self.cancel_waiting(&superseded);
        let mut answers = Vec::new();
        for (ended, settled) in settles.iter().zip(settled) {
            let now = self.now;
            let dead = ended
                .then
                .iter()
                .filter(|wanted| settled && self.insert(wanted, now + wanted.delay) == EnqueueVerdict::Dead);
            let dead = dead.map(|wanted| wanted.id.clone()).collect();
            answers.push(settled.then_some(dead));
        }
        answers
    }

    fn end(&mut self, id: &str, end: &LeaseEnd) -> bool {
        let now = self.now;
        let job = self.jobs.get_mut(id).unwrap();
        let State::Leased { due, again, .. } = job.state else { unreachable!() };
        let after = |delay: &std::time::Duration| {
            let at = now + u64::try_from(delay.as_millis()).unwrap();
            State::Due { at: again.map_or(at, |again| again.min(at)) }
        };
        match end {
            LeaseEnd::Snooze { delay } => {
                job.state = after(delay);
                (job.lost, job.put_off) = (0, true);
            }
            LeaseEnd::Retry { delay } => {
                job.state = after(delay);
                job.failed += 1;
                job.lost = 0;
            }
            LeaseEnd::Park(_) => {
                job.state = State::Parked { since: now };
                job.put_off = false;
            }
            LeaseEnd::Dead { error } => job.bury(now, error, due),
            LeaseEnd::Spent { error } => {
                job.failed += 1;
                job.bury(now, error, due);
            }
            LeaseEnd::Done => match again {
                Some(at) => {
                    job.state = State::Due { at };
                    (job.failed, job.lost, job.put_off) = (0, 0, false);
                }
                None => {
                    self.jobs.remove(id);
                }
            },
        }
        true
    }

    pub(super) fn extend(&mut self, held: &[(String, String)]) -> Vec<LeaseVerdict> {
        let end = self.now + LEASE_MS;
        self.renew(held, |job| {
            if let State::Leased { until, .. } = &mut job.state {
                *until = end;
            }
        })
    }

    pub(super) fn release(&mut self, held: &[(String, String)]) -> Vec<LeaseVerdict> {
        let now = self.now;
        self.renew(held, |job| {
            if let State::Leased { due, again, .. } = job.state {
                job.state = State::Due { at: again.map_or(due, |again| again.min(due)).min(now) };
            }
        })
    }

    /// Checks all tokens before it changes the first lease.
    fn renew(&mut self, held: &[(String, String)], change: impl Fn(&mut Job)) -> Vec<LeaseVerdict> {
        let ours: Vec<bool> = held.iter().map(|(id, token)| self.holds(id, token)).collect();
        for ((id, _), _) in held.iter().zip(&ours).filter(|(_, ours)| **ours) {
            change(self.jobs.get_mut(id).unwrap());
        }
        ours.into_iter().map(|ours| if ours { LeaseVerdict::Yes } else { LeaseVerdict::Lost }).collect()
    }

    pub(super) fn flush(&mut self) {
        let slots = SlotTable::with_counts(self.slots.counts);
        *self = Self { now: self.now, slots, ..Self::default() };
    }
}

impl Job {
    pub(super) fn new(wanted: &Wanted, state: State) -> Self {
        let (queue, envelope, slots) = (wanted.queue, wanted.envelope.clone(), wanted.slots.clone());
        Self { queue, state, envelope, slots, failed: 0, lost: 0, put_off: false }
    }

    /// Returns whether the job has an entry in `tries`.
    fn has_tries(&self) -> bool {
        (self.failed, self.lost) != (0, 0) || self.put_off
    }

    fn bury(&mut self, now: u64, error: &str, due: u64) {
        let Self { queue, failed, lost, .. } = self;
        let envelope = self.envelope.as_deref().unwrap_or("null");
        let record = format!(
            r#"{{"queue":"{queue}","error":"{error}","failed":{failed},"lost":{lost},"due_ms":{due},"died_ms":{now},"payload":{envelope}}}"#
        );
        self.state = State::Dead { at: now, record };
    }
}
