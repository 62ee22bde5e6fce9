//! Jobs that were leased ahead: they have the slots of their group and their own name, and wait for that of the shard.
//!
//! Where all slots of the shard are taken, each stands idle from the end of one job's work until the next has been leased and prepared. So a
//! process leases a few jobs ahead and prepares them while work of its own goes on. Work that ends passes its slot on to one of them here, with no
//! wait for Redis, which hears of it with the next take. Until then Redis counts the slot for the work that ended: the work that follows must have
//! ended by then, too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use job_contract::SlotGrant;
use metrics::counter;
use tokio::sync::Notify;

use super::{EndedSlots, SlotRelease, Store};
use crate::job::JobId;

/// Most jobs ahead of a process at a time.
const MOST_AHEAD: usize = 16;
/// Share of its time that a job may lose to the slot that it is passed: one that would lose more waits for Redis' word.
const MOST_LOST: u32 = 8;
/// Weight of the newest of measured times.
const NEWEST: f64 = 0.1;

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
    fn find_ahead(&mut self, job: &JobId, grant: &SlotGrant) -> Option<usize> {
        self.ahead.iter().position(|ahead| ahead.job == *job && ahead.grant == *grant)
    }

    fn begin_work(&mut self, job: &JobId, grant: &SlotGrant, has_until: Instant) {
        let work = OpenWork { grant: grant.clone(), begun: Instant::now(), has_until };
        self.open.insert(job.clone(), work);
    }

    /// As many jobs as calls are likely to end while a job is prepared, but for those that wait already.
    fn count_wanted(&mut self, now: Instant) -> usize {
        // Work that was aborted keeps its slots, and passes nothing on.
        self.open.retain(|_, work| now < work.grant.ends_by());
        self.ahead.retain(|ahead| now < ahead.grant.ends_by());
        let (Some(preparation), Some(work)) = (self.preparation.0, self.work.0) else { return 0 };
        let ends_meanwhile = self.open.len() as f64 * preparation / work.max(f64::EPSILON);
        let most = self.open.len().min(MOST_AHEAD);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few jobs")]
        let wanted = (ends_meanwhile.round() as usize).min(most);
        wanted.saturating_sub(self.ahead.iter().filter(|ahead| ahead.has_until.is_none()).count())
    }

    /// The next to begin: of those that are ready the first, else the first.
    fn next_in_turn(&mut self) -> Option<&mut AheadJob> {
        let waits = |ahead: &AheadJob| ahead.has_until.is_none();
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

    /// Redis has given this job the shard's slot.
    pub(super) fn promote(&self, job: &str) {
        let mut table = self.lock();
        if let Some(ahead) = table.ahead.iter_mut().find(|ahead| ahead.job.as_str() == job) {
            ahead.has_until = Some(ahead.grant.ends_by());
            ahead.turn.notify_one();
        }
    }

    /// These slots are given back. Returns the job ahead that goes on with that of the shard.
    pub(super) fn pass_on(&self, ended: &EndedSlots, now: Instant) -> Option<JobId> {
        let mut table = self.lock();
        let has_until = if let Some(at) = table.find_ahead(&ended.job, &ended.grant) {
            table.ahead.remove(at).has_until?
        } else {
            let is_its = table.open.get(&ended.job).is_some_and(|work| work.grant == ended.grant);
            let work = is_its.then(|| table.open.remove(&ended.job)).flatten()?;
            table.work.add(now - work.begun);
            work.has_until
        };
        let next = table.next_in_turn()?;
        let its_end = next.grant.ends_by();
        if has_until <= now || its_end.saturating_duration_since(has_until) > next.grant.hold() / MOST_LOST {
            return None;
        }
        next.has_until = Some(its_end.min(has_until));
        next.turn.notify_one();
        counter!("dispatchq_slots_passed_on_total").increment(1);
        Some(next.job.clone())
    }

    /// Redis counts the slots that were passed on for those who have them.
    pub(super) fn confirm(&self, written: &[SlotRelease]) {
        let mut table = self.lock();
        for job in written.iter().filter_map(|release| release.passed_to.as_ref()) {
            if let Some(work) = table.open.get_mut(job) {
                work.has_until = work.grant.ends_by();
            } else if let Some(ahead) = table.ahead.iter_mut().find(|ahead| ahead.job == *job) {
                ahead.has_until = Some(ahead.grant.ends_by());
            }
        }
    }
}

impl Store {
    /// Returns how many jobs the next take is to lease ahead.
    pub(crate) fn count_wanted_ahead(&self, now: Instant) -> usize {
        self.turns.lock().count_wanted(now)
    }

    /// Waits until the job has all its slots, which is at once unless it was leased ahead. Answers until when its work may go on; `None`:
    /// none of this process' work has ended within `patience`, and the work must not begin.
    ///
    /// Call it when the work is to begin and nothing is left to prepare: at once before what the slots are for.
    pub async fn wait_for_turn(&self, job: &JobId, grant: &SlotGrant, patience: Duration) -> Option<Instant> {
        let turns = &self.turns;
        turns.lock().preparation.add(grant.asked_at().elapsed());
        let give_up = tokio::time::Instant::now() + patience;
        loop {
            let turn = {
                let mut table = turns.lock();
                let Some(at) = table.find_ahead(job, grant) else {
                    table.begin_work(job, grant, grant.ends_by());
                    return Some(grant.ends_by());
                };
                if let Some(has_until) = table.ahead[at].has_until {
                    table.ahead.remove(at);
                    table.begin_work(job, grant, has_until);
                    return Some(has_until);
                }
                let ahead = &mut table.ahead[at];
                ahead.is_ready = true;
                ahead.turn.clone()
            };
            tokio::time::timeout_at(give_up, turn.notified()).await.ok()?;
        }
    }
}
