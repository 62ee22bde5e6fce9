//! The jobs that this process leased ahead, the work that is open, and whose turn it is when work ends.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use job_contract::SlotGrant;
use metrics::counter;
use tokio::sync::Notify;

use super::ended_slots::{EndedSlots, JobAhead, SlotRelease};
use crate::job::JobId;

/// Most jobs ahead of a process at a time.
const MOST_AHEAD: usize = 16;
/// The share of its time that a job may lose by the slot that it is passed, as a divisor: one that would lose more waits for Redis' word.
const MOST_LOST: u32 = 8;
/// Jobs are leased ahead a few at a time, as this divisor of the works that are open: what is prepared together costs less.
const AT_A_TIME: usize = 4;
/// Weight of the newest of measured times.
const NEWEST: f64 = 0.1;

/// Whether the work of a job may start.
#[derive(Debug)]
pub(super) enum Turn {
    /// It has started, with this grant.
    Begun(SlotGrant),
    /// Another slot is needed first; the notification says when to ask again.
    Later(Arc<Notify>),
    /// The slots have ended: the work must not start.
    Over,
}

/// The turns of one process in one shard.
#[derive(Debug, Default)]
pub(super) struct SlotTurns {
    table: Mutex<TurnTable>,
}

#[derive(Debug, Default)]
struct TurnTable {
    /// In the order in which they were leased.
    ahead: Vec<AheadJob>,
    /// Work that has begun, with all its slots.
    open: HashMap<JobId, OpenWork>,
    /// How long it takes from the call that leases a job until the job is ready to begin its work.
    preparation: MeanTime,
    /// How long work goes on.
    work: MeanTime,
}

#[derive(Debug)]
struct AheadJob {
    job: JobId,
    grant: SlotGrant,
    /// Until when Redis counts the shard's slot for it, once it has it.
    has_until: Option<Instant>,
    /// It is ready to begin.
    is_ready: bool,
    turn: Arc<Notify>,
}

#[derive(Debug)]
struct OpenWork {
    grant: SlotGrant,
    begun: Instant,
    /// Until when Redis counts the shard's slot for it.
    has_until: Instant,
}

/// A mean that follows what is measured.
#[derive(Debug, Default)]
struct MeanTime(Option<f64>);

impl MeanTime {
    fn add(&mut self, time: Duration) {
        let secs = time.as_secs_f64();
        self.0 = Some(self.0.map_or(secs, |mean| mean + NEWEST * (secs - mean)));
    }
}

impl TurnTable {
    fn find_ahead(&self, job: &JobId, holder: &str) -> Option<usize> {
        self.ahead.iter().position(|ahead| ahead.job == *job && ahead.grant.holder() == holder)
    }

    fn find_open(&mut self, job: &JobId, grant: &SlotGrant) -> Option<&mut OpenWork> {
        self.open.get_mut(job).filter(|work| work.grant == *grant)
    }

    fn take_open(&mut self, job: &JobId, grant: &SlotGrant) -> Option<OpenWork> {
        self.find_open(job, grant)?;
        self.open.remove(job)
    }

    /// The work of this job begins, with the shard's slot until then. Returns the grant that it has.
    fn begin_work(&mut self, job: &JobId, grant: &SlotGrant, has_until: Instant, now: Instant) -> Option<SlotGrant> {
        let begun = self.find_open(job, grant).map(|work| work.has_until);
        let ends_by = begun.unwrap_or(has_until);
        if ends_by <= now {
            return None;
        }
        if begun.is_none() {
            self.open.insert(job.clone(), OpenWork { grant: grant.clone(), begun: now, has_until });
        }
        Some(grant.ending_by(ends_by))
    }

    /// As many jobs as works are likely to end while a job is prepared, but for those that wait already.
    fn count_wanted(&mut self, now: Instant) -> usize {
        // Work that was aborted keeps its slots, and passes nothing on.
        self.open.retain(|_, work| now < work.grant.ends_by());
        self.ahead.retain(|ahead| now < ahead.grant.ends_by());
        let (Some(preparation), Some(work)) = (self.preparation.0, self.work.0) else { return 0 };
        // Where works take longer than they did, those that go on say so first.
        let ages: f64 = self.open.values().map(|work| (now - work.begun).as_secs_f64()).sum();
        let work = work.max(ages / self.open.len().max(1) as f64).max(f64::EPSILON);
        let most = self.open.len().min(MOST_AHEAD);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few jobs")]
        let needed = ((self.open.len() as f64 * preparation / work).round() as usize).min(most);
        let waiting = self.ahead.iter().filter(|ahead| ahead.has_until.is_none()).count();
        if waiting >= needed {
            return 0;
        }
        needed.max(waiting + self.open.len() / AT_A_TIME).min(most) - waiting
    }

    /// The next to begin with a slot of the shard that lasts until then: of those that are ready the first, else the first.
    fn next_in_turn(&mut self, until: Instant) -> Option<&mut AheadJob> {
        let loses_little =
            |grant: &SlotGrant| grant.ends_by().saturating_duration_since(until) <= grant.hold() / MOST_LOST;
        let waits = |ahead: &AheadJob| ahead.has_until.is_none() && loses_little(&ahead.grant);
        let ready = self.ahead.iter().position(|ahead| waits(ahead) && ahead.is_ready);
        let next = ready.or_else(|| self.ahead.iter().position(waits))?;
        self.ahead.get_mut(next)
    }
}

impl SlotTurns {
    fn lock(&self) -> MutexGuard<'_, TurnTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A take has leased this job ahead.
    pub(super) fn add_ahead(&self, job: &str, grant: &SlotGrant) {
        let Ok(job) = JobId::parse(job) else { return };
        let ahead = AheadJob { job, grant: grant.clone(), has_until: None, is_ready: false, turn: Arc::default() };
        self.lock().ahead.push(ahead);
    }

    /// Redis has given these jobs the shard's slot.
    pub(super) fn promote<'a>(&self, promoted: impl Iterator<Item = &'a JobAhead>) {
        let mut table = self.lock();
        for JobAhead { job, grant } in promoted {
            if let Some(at) = table.find_ahead(job, grant.holder()) {
                let ahead = &mut table.ahead[at];
                ahead.has_until = Some(ahead.grant.ends_by());
                ahead.turn.notify_one();
            }
        }
    }

    /// The job does not use these slots, or has lost them: nothing is passed on to it, nor by it.
    pub(super) fn withdraw(&self, job: &JobId, grant: &SlotGrant) {
        let mut table = self.lock();
        table.take_open(job, grant);
        if let Some(at) = table.find_ahead(job, grant.holder()) {
            table.ahead.remove(at);
        }
    }

    /// These slots are given back. Returns the job ahead that goes on with that of the shard.
    pub(super) fn pass_on(&self, ended: &EndedSlots, now: Instant) -> Option<JobAhead> {
        let mut table = self.lock();
        let has_until = if let Some(at) = table.find_ahead(&ended.job, ended.grant.holder()) {
            table.ahead.remove(at).has_until?
        } else {
            let work = table.take_open(&ended.job, &ended.grant)?;
            table.work.add(now - work.begun);
            work.has_until
        };
        if has_until <= now {
            return None;
        }
        let next = table.next_in_turn(has_until)?;
        next.has_until = Some(next.grant.ends_by().min(has_until));
        next.turn.notify_one();
        counter!("dispatchq_slots_passed_on_total").increment(1);
        Some(JobAhead { job: next.job.clone(), grant: next.grant.clone() })
    }

    /// Redis has heard of these by now, and counts the slots that were passed on for those who have them: unless it had ended them before.
    pub(super) fn confirm(&self, written: &[SlotRelease], now: Instant) {
        let mut table = self.lock();
        for JobAhead { job, grant } in written.iter().filter_map(|release| release.passed_to.as_ref()) {
            let has_until = if let Some(at) = table.find_ahead(job, grant.holder()) {
                table.ahead[at].has_until.as_mut()
            } else {
                table.find_open(job, grant).map(|work| &mut work.has_until)
            };
            if let Some(has_until) = has_until.filter(|has_until| now < **has_until) {
                *has_until = grant.ends_by();
            }
        }
    }

    /// Returns how many jobs the next take leases ahead.
    pub(super) fn count_wanted(&self, now: Instant) -> usize {
        self.lock().count_wanted(now)
    }

    /// Returns the jobs that wait for the shard's slot, in the order in which they were leased.
    pub(super) fn list_waiting(&self) -> Vec<JobAhead> {
        let table = self.lock();
        let waiting = table.ahead.iter().filter(|ahead| ahead.has_until.is_none());
        waiting.map(|ahead| JobAhead { job: ahead.job.clone(), grant: ahead.grant.clone() }).collect()
    }

    /// Returns whether the job was leased ahead and its work has not begun.
    pub(super) fn is_ahead(&self, job: &JobId, grant: &SlotGrant) -> bool {
        self.lock().find_ahead(job, grant.holder()).is_some()
    }

    /// Records how long a job took from the call that leased it until it was ready to begin its work.
    pub(super) fn record_preparation(&self, time: Duration) {
        self.lock().preparation.add(time);
    }

    /// Starts the work of a job that is ready, if it has all its slots.
    pub(super) fn try_begin(&self, job: &JobId, grant: &SlotGrant) -> Turn {
        let (mut table, now) = (self.lock(), Instant::now());
        if !grant.is_held(now) {
            return Turn::Over;
        }
        let has_until = match table.find_ahead(job, grant.holder()) {
            None => grant.ends_by(),
            Some(at) => {
                let Some(has_until) = table.ahead[at].has_until else {
                    let ahead = &mut table.ahead[at];
                    ahead.is_ready = true;
                    return Turn::Later(ahead.turn.clone());
                };
                table.ahead.remove(at);
                has_until
            }
        };
        table.begin_work(job, grant, has_until, now).map_or(Turn::Over, Turn::Begun)
    }
}
