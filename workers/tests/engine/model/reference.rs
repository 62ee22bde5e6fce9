//! What Redis should hold: the jobs as a map, and what each script does to them.

use std::collections::{BTreeMap, BTreeSet};

use workers::store::{Cancelled, Discarded, End, Enqueued, Renewed, Repaired, Requeued, Rescheduled, TakeMode};

const LEASE_MS: u64 = 8_000;
const TOLERANCE_MS: u64 = 60_000;
const QUIESCE_MS: u64 = 30_000;

/// Redis, all of it but the epoch: key -> member or field -> score or value.
pub(super) type Image = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Debug, Clone, PartialEq)]
enum State {
    Due { at: u64 },
    Leased { until: u64, token: String, due: u64, again: Option<u64> },
    Dead { at: u64, record: String },
}

#[derive(Debug, Clone, PartialEq)]
struct Job {
    queue: &'static str,
    state: State,
    envelope: Option<String>,
    failed: u32,
    lost: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) queue: &'static str,
    pub(super) id: String,
    pub(super) delay: u64,
    pub(super) envelope: Option<String>,
}

/// One job as a take answers it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TakenJob {
    pub(super) id: String,
    pub(super) due: u64,
    pub(super) failed: u32,
    pub(super) lost: u32,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Took {
    pub(super) jobs: Vec<TakenJob>,
    pub(super) dead: Vec<String>,
    pub(super) next_due: Option<u64>,
    pub(super) suspects: bool,
    pub(super) quiesce: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) now: u64,
    pub(super) epoch: bool,
    jobs: BTreeMap<String, Job>,
    paused: BTreeSet<&'static str>,
    quiesce: BTreeMap<&'static str, (String, u64)>,
}

impl Reference {
    pub(super) fn new(now: u64) -> Self {
        Self { now, epoch: true, ..Self::default() }
    }

    pub(super) fn enqueue(&mut self, wanted: &[Wanted]) -> Vec<Enqueued> {
        wanted.iter().map(|wanted| self.insert(wanted)).collect()
    }

    fn insert(&mut self, wanted: &Wanted) -> Enqueued {
        let due = self.now + wanted.delay;
        let Some(job) = self.jobs.get_mut(&wanted.id) else {
            let (queue, envelope) = (wanted.queue, wanted.envelope.clone());
            self.jobs
                .insert(wanted.id.clone(), Job { queue, state: State::Due { at: due }, envelope, failed: 0, lost: 0 });
            return Enqueued::Inserted;
        };
        match &mut job.state {
            State::Dead { .. } => Enqueued::Dead,
            State::Leased { again, .. } => {
                *again = Some(again.unwrap_or(due).min(due));
                Enqueued::Again
            }
            State::Due { at } if due < *at => {
                *at = due;
                Enqueued::Moved
            }
            State::Due { .. } => Enqueued::Kept,
        }
    }

    pub(super) fn repair(&mut self, wanted: &[Wanted]) -> Vec<Repaired> {
        let fine: Vec<bool> = wanted
            .iter()
            .map(|wanted| match self.jobs.get(&wanted.id).map(|job| &job.state) {
                Some(State::Leased { .. }) => true,
                Some(State::Due { at }) => *at <= self.now + wanted.delay + TOLERANCE_MS,
                Some(State::Dead { .. }) | None => false,
            })
            .collect();
        let repair = |(wanted, fine): (&Wanted, bool)| {
            if fine {
                return Repaired::Fine;
            }
            match self.insert(wanted) {
                Enqueued::Inserted => Repaired::Inserted,
                Enqueued::Moved => Repaired::Moved,
                Enqueued::Kept | Enqueued::Again => Repaired::Fine,
                Enqueued::Dead => Repaired::Dead,
            }
        };
        wanted.iter().zip(fine).map(repair).collect()
    }

    /// Ids of a queue's jobs that are due now, the oldest first; then those that come later.
    fn due(&self, queue: &str) -> Vec<(u64, String)> {
        let due = |(id, job): (&String, &Job)| match job.state {
            State::Due { at } if job.queue == queue => Some((at, id.clone())),
            _ => None,
        };
        let mut all: Vec<_> = self.jobs.iter().filter_map(due).collect();
        all.sort();
        all
    }

    fn rescue(&mut self, queue: &str) -> Vec<String> {
        let expired = |(id, job): (&String, &Job)| match job.state {
            State::Leased { until, .. } if job.queue == queue && until <= self.now => Some((until, id.clone())),
            _ => None,
        };
        let mut expired: Vec<_> = self.jobs.iter().filter_map(expired).collect();
        expired.sort();
        let mut dead = Vec::new();
        for (_, id) in expired {
            let job = self.jobs.get_mut(&id).unwrap();
            let State::Leased { due, again, .. } = job.state else { unreachable!() };
            job.lost += 1;
            if job.lost >= 5 {
                let error = format!("lost {} deliveries: its worker died or lost Redis each time", job.lost);
                job.bury(self.now, &error, due);
                dead.push(id);
            } else {
                job.state = State::Due { at: again.map_or(due, |again| again.min(due)) };
            }
        }
        dead
    }

    fn lease(&mut self, id: &str, token: &str, took: &mut Took) {
        let job = self.jobs.get_mut(id).unwrap();
        let State::Due { at } = job.state else { unreachable!() };
        job.state = State::Leased { until: self.now + LEASE_MS, token: token.to_owned(), due: at, again: None };
        took.jobs.push(TakenJob { id: id.to_owned(), due: at, failed: job.failed, lost: job.lost });
    }

    pub(super) fn take(
        &mut self,
        permits: &[(&'static str, usize)],
        mode: TakeMode,
        boot: &str,
        token: &str,
    ) -> Option<Took> {
        if !self.epoch {
            return None;
        }
        let mut took = Took::default();
        for (queue, _) in permits {
            took.dead.extend(self.rescue(queue));
        }
        let quiescing = mode == TakeMode::Quiesce;
        let is_open = |(queue, many): &&(&'static str, usize)| (*many > 0 || quiescing) && !self.paused.contains(queue);
        let open: Vec<_> = permits.iter().filter(is_open).collect();
        let is_suspect = |jobs: &BTreeMap<String, Job>, id: &str| jobs[id].lost >= 2;
        let due_now = |this: &Self, queue: &str| {
            let due = this.due(queue).into_iter().take_while(|(at, _)| *at <= this.now);
            due.map(|(_, id)| id).collect::<Vec<_>>()
        };
        if mode == TakeMode::Alone {
            for (queue, _) in &open {
                if let Some(id) = due_now(self, queue).into_iter().find(|id| is_suspect(&self.jobs, id)) {
                    self.lease(&id, token, &mut took);
                    return Some(took);
                }
            }
        }
        for &&(queue, many) in &open {
            let due = due_now(self, queue);
            if quiescing {
                if due.iter().any(|id| is_suspect(&self.jobs, id)) {
                    took.suspects = true;
                    took.quiesce |= self.may_quiesce(queue, boot);
                }
                continue;
            }
            let fit: Vec<String> = due.iter().filter(|id| !is_suspect(&self.jobs, id)).take(many).cloned().collect();
            let passed_over = due.iter().take(many).any(|id| is_suspect(&self.jobs, id));
            if passed_over {
                took.suspects = true;
                took.quiesce |= self.may_quiesce(queue, boot);
            }
            for id in &fit {
                self.lease(id, token, &mut took);
            }
            if fit.len() < many {
                let left = self.due(queue).into_iter().map(|(at, _)| at).find(|at| !passed_over || *at > self.now);
                took.next_due = [took.next_due, left].into_iter().flatten().min();
            }
        }
        Some(took)
    }

    fn may_quiesce(&mut self, queue: &'static str, boot: &str) -> bool {
        if self.quiesce.get(queue).is_some_and(|(other, until)| other != boot && *until > self.now) {
            return false;
        }
        self.quiesce.insert(queue, (boot.to_owned(), self.now + QUIESCE_MS));
        true
    }

    fn holds(&self, id: &str, token: &str) -> bool {
        matches!(self.jobs.get(id), Some(Job { state: State::Leased { token: present, .. }, .. }) if present == token)
    }

    /// `None` where the settle is refused, else the follow-ups that lie dead.
    pub(super) fn settle(&mut self, settles: &[(String, String, End, Vec<Wanted>)]) -> Vec<Option<Vec<String>>> {
        let settled: Vec<bool> =
            settles.iter().map(|(id, token, end, _)| self.holds(id, token) && self.end(id, end)).collect();
        let mut answers = Vec::new();
        for ((_, _, _, then), settled) in settles.iter().zip(settled) {
            let dead = then.iter().filter(|wanted| settled && self.insert(wanted) == Enqueued::Dead);
            let dead = dead.map(|wanted| wanted.id.clone()).collect();
            answers.push(settled.then_some(dead));
        }
        answers
    }

    fn end(&mut self, id: &str, end: &End) -> bool {
        let now = self.now;
        let job = self.jobs.get_mut(id).unwrap();
        let State::Leased { due, again, .. } = job.state else { unreachable!() };
        let after = |delay: &std::time::Duration| {
            let at = now + u64::try_from(delay.as_millis()).unwrap();
            State::Due { at: again.map_or(at, |again| again.min(at)) }
        };
        match end {
            End::Snooze { delay } => {
                job.state = after(delay);
                job.lost = 0;
            }
            End::Retry { delay } => {
                job.state = after(delay);
                job.failed += 1;
                job.lost = 0;
            }
            End::Dead { error } => job.bury(now, error, due),
            End::Spent { error } => {
                job.failed += 1;
                job.bury(now, error, due);
            }
            End::Done => match again {
                Some(at) => {
                    job.state = State::Due { at };
                    (job.failed, job.lost) = (0, 0);
                }
                None => {
                    self.jobs.remove(id);
                }
            },
        }
        true
    }

    pub(super) fn extend(&mut self, held: &[(String, String)]) -> Vec<Renewed> {
        let end = self.now + LEASE_MS;
        self.renew(held, |job| {
            if let State::Leased { until, .. } = &mut job.state {
                *until = end;
            }
        })
    }

    pub(super) fn release(&mut self, held: &[(String, String)]) -> Vec<Renewed> {
        self.renew(held, |job| {
            if let State::Leased { due, again, .. } = job.state {
                job.state = State::Due { at: again.map_or(due, |again| again.min(due)) };
            }
        })
    }

    /// All tokens are looked at before the first lease changes.
    fn renew(&mut self, held: &[(String, String)], change: impl Fn(&mut Job)) -> Vec<Renewed> {
        let ours: Vec<bool> = held.iter().map(|(id, token)| self.holds(id, token)).collect();
        for ((id, _), _) in held.iter().zip(&ours).filter(|(_, ours)| **ours) {
            change(self.jobs.get_mut(id).unwrap());
        }
        ours.into_iter().map(|ours| if ours { Renewed::Yes } else { Renewed::Lost }).collect()
    }

    pub(super) fn cancel(&mut self, id: &str) -> Cancelled {
        match self.jobs.get(id).map(|job| &job.state) {
            None => Cancelled::Absent,
            Some(State::Leased { .. }) => Cancelled::Running,
            Some(State::Dead { .. }) => Cancelled::Dead,
            Some(State::Due { .. }) => {
                self.jobs.remove(id);
                Cancelled::Removed
            }
        }
    }

    pub(super) fn reschedule(&mut self, id: &str, delay: u64) -> Rescheduled {
        match self.jobs.get_mut(id).map(|job| &mut job.state) {
            None => Rescheduled::Absent,
            Some(State::Leased { .. }) => Rescheduled::Running,
            Some(State::Dead { .. }) => Rescheduled::Dead,
            Some(State::Due { at }) => {
                *at = self.now + delay;
                Rescheduled::Moved
            }
        }
    }

    pub(super) fn requeue(&mut self, ids: &[String], delay: u64) -> Vec<Requeued> {
        let at = self.now + delay;
        let requeue = |id: &String| match self.jobs.get_mut(id) {
            Some(job @ Job { state: State::Dead { .. }, .. }) => {
                (job.state, job.failed, job.lost) = (State::Due { at }, 0, 0);
                Requeued::Requeued
            }
            _ => Requeued::NotDead,
        };
        ids.iter().map(requeue).collect()
    }

    pub(super) fn discard(&mut self, ids: &[String]) -> Vec<Discarded> {
        let discard = |id: &String| match self.jobs.get(id) {
            Some(Job { state: State::Dead { .. }, .. }) => {
                self.jobs.remove(id);
                Discarded::Discarded
            }
            _ => Discarded::NotDead,
        };
        ids.iter().map(discard).collect()
    }

    /// Ids of a queue's dead jobs that died at least `age` ago, the longest dead first.
    pub(super) fn dead(&self, queue: &str, age: u64) -> Vec<String> {
        let dead = |(id, job): (&String, &Job)| match job.state {
            State::Dead { at, .. } if job.queue == queue && at + age <= self.now => Some((at, id.clone())),
            _ => None,
        };
        let mut dead: Vec<_> = self.jobs.iter().filter_map(dead).collect();
        dead.sort();
        dead.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn discard_older(&mut self, queue: &str, age: u64, limit: usize) -> usize {
        let old: Vec<String> = self.dead(queue, age).into_iter().take(limit).collect();
        self.discard(&old).len()
    }

    pub(super) fn pause(&mut self, queue: &'static str) -> bool {
        self.paused.insert(queue)
    }

    pub(super) fn resume(&mut self, queue: &'static str) -> bool {
        self.paused.remove(queue)
    }

    pub(super) fn flush(&mut self) {
        *self = Self { now: self.now, ..Self::default() };
    }

    /// What Redis should hold.
    pub(super) fn image(&self) -> Image {
        let mut image = Image::new();
        let mut put = |key: String, member: &str, value: String| {
            image.entry(format!("{{dq:0}}:{key}")).or_default().insert(member.to_owned(), value);
        };
        for (id, job) in &self.jobs {
            let alive = !matches!(job.state, State::Dead { .. });
            match &job.state {
                State::Due { at } => put(format!("due:{}", job.queue), id, at.to_string()),
                State::Leased { until, token, due, again } => {
                    put(format!("leased:{}", job.queue), id, until.to_string());
                    let again = again.map_or("-".to_owned(), |again| again.to_string());
                    put("leases".to_owned(), id, format!("{token} {due} {again}"));
                }
                State::Dead { at, record } => {
                    put(format!("dead:{}", job.queue), id, at.to_string());
                    put("dead".to_owned(), id, record.clone());
                }
            }
            if let Some(envelope) = job.envelope.as_ref().filter(|_| alive) {
                put("jobs".to_owned(), id, envelope.clone());
            }
            if alive && (job.failed, job.lost) != (0, 0) {
                put("tries".to_owned(), id, format!("{} {}", job.failed, job.lost));
            }
        }
        for queue in &self.paused {
            put("paused".to_owned(), queue, String::new());
        }
        for (queue, (boot, until)) in &self.quiesce {
            put("quiesce".to_owned(), queue, format!("{boot} {until}"));
        }
        image
    }
}

impl Job {
    fn bury(&mut self, now: u64, error: &str, due: u64) {
        let Self { queue, failed, lost, .. } = self;
        let envelope = self.envelope.as_deref().unwrap_or("null");
        let record = format!(
            r#"{{"queue":"{queue}","error":"{error}","failed":{failed},"lost":{lost},"due_ms":{due},"died_ms":{now},"payload":{envelope}}}"#
        );
        self.state = State::Dead { at: now, record };
    }
}
