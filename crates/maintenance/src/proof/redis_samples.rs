//! Samples of Redis: each slice checks some timers, dead jobs and waiting sets, and the slots.
//!
//! Between a commit and the end of its job, a timer may be missing. A timer is therefore a suspect first, and a
//! violation if it is missing again later. While Redis has no epoch, or was restarted, a rebuild restores the timers,
//! and there is nothing to compare. A failed sample is repeated by the next slice. It stops neither the other samples nor
//! the fold.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use redis::cmd;
use serde::{Deserialize, Serialize};

use crate::{
    audit::{InvariantViolation, slots, timers, waiting_sets},
    capability::Maintenance,
    recovery::pages::{RepairScope, TimerCursor, TimerPage, TimerPages},
};
use foundation::{core::Core, error::ServiceError};
use queue::{
    NewJob,
    store::{JobState, RepairVerdict},
};

/// Invariants of this file.
pub(super) const NAMES: [&str; 4] = [timers::MISSING, timers::NO_REASON, waiting_sets::NAME, slots::NAME];
/// Rows whose timers one slice compares.
const ROWS: u64 = 2000;
/// Time after which a suspect that is missing again is a violation. The job of a worker that died after its commit runs
/// again sooner, and a rebuild or a repeated command is sooner, too. Only a process that dies between its commit and the
/// enqueue, while no job runs, leaves a timer missing for longer.
const CONFIRMED_AFTER: TimeDelta = TimeDelta::seconds(15);
/// Maximum number of suspects that are stored.
const MOST_SUSPECTS: usize = 200;
/// Delay of a timer behind its row that is no violation. The clocks, the enqueue and backoffs delay it less.
const LATE: Duration = Duration::from_secs(60);
/// Dead jobs of one slice.
const DEAD_JOBS: usize = 500;
/// Members of waiting sets of one slice; at least one set is compared.
const MEMBERS: u64 = 5000;

/// Position of the samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplePlace {
    timers: TimerCursor,
    timers_begun_at: Option<DateTime<Utc>>,
    suspects: BTreeMap<String, Suspect>,
    /// Index of the queue, and number of its dead jobs that were read.
    dead_jobs: (usize, usize),
    dead_begun_at: Option<DateTime<Utc>>,
    /// Last compared set.
    waiting_set: String,
    waiting_begun_at: Option<DateTime<Utc>>,
}

/// A timer that was missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Suspect {
    since: DateTime<Utc>,
    seen_at: DateTime<Utc>,
}

/// Result of the samples of a slice.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    pub violations: Vec<InvariantViolation>,
    /// Invariants whose round has ended, with its start. Open violations that the round did not find are gone.
    pub ended: Vec<(&'static str, DateTime<Utc>)>,
}

impl SamplePlace {
    /// Checks the next samples.
    pub(super) async fn check_next(&mut self, maintenance: &Maintenance, now: DateTime<Utc>) -> Sampled {
        let (core, mut sampled) = (&maintenance.core, Sampled::default());
        if has_all_jobs(core).await {
            let timers = self.check_timers(core, now, &mut sampled).await;
            if timers.is_err() {
                // The timers that earlier pages missed may exist when the check is repeated, so the round starts again.
                (self.timers, self.timers_begun_at) = (TimerCursor::default(), None);
                self.suspects.clear();
            }
            let dead_jobs = self.check_dead_jobs(core, now, &mut sampled).await;
            let waiting_sets = self.check_waiting_sets(maintenance, now, &mut sampled).await;
            let slots = check_slots(core, now, &mut sampled).await;
            for error in [timers, dead_jobs, waiting_sets, slots].into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "Redis could not be compared with Postgres; the next slice tries again.");
            }
        }
        // If Redis was flushed during the checks, all entries looked missing.
        if !has_all_jobs(core).await {
            (*self, sampled) = (Self::default(), Sampled::default());
        }
        sampled
    }

    async fn check_timers(
        &mut self,
        core: &Core,
        now: DateTime<Utc>,
        sampled: &mut Sampled,
    ) -> Result<(), ServiceError> {
        let begun_at = *self.timers_begun_at.get_or_insert(now);
        let mut pages = TimerPages::from_cursor(RepairScope::Sample, self.timers.clone());
        let mut rows = 0;
        while rows < ROWS {
            let Some(page) = pages.next_page(core).await? else {
                sampled.ended.push((timers::MISSING, begun_at));
                self.suspects.retain(|_, suspect| suspect.seen_at >= begun_at);
                (self.timers, self.timers_begun_at) = (TimerCursor::default(), None);
                return Ok(());
            };
            rows += page.rows;
            self.check_page(core, page, &pages, now, sampled).await?;
        }
        self.timers = pages.into_cursor();
        Ok(())
    }

    /// Compares the timers of one page. A timer counts as missing only if its row still needs it after the query.
    async fn check_page(
        &mut self,
        core: &Core,
        page: TimerPage,
        pages: &TimerPages,
        now: DateTime<Utc>,
        sampled: &mut Sampled,
    ) -> Result<(), ServiceError> {
        let jobs: Vec<NewJob> =
            page.into_jobs().into_iter().map(|job| NewJob { delay: job.delay + LATE, ..job }).collect();
        let answers = core.queue().preview_repair(&jobs).await?;
        let mut missing = BTreeMap::new();
        for (job, answer) in jobs.into_iter().zip(answers) {
            match answer {
                RepairVerdict::Inserted => missing.insert(job.id.to_string(), format!("is not in {}", job.queue)),
                RepairVerdict::Moved => missing
                    .insert(job.id.to_string(), format!("is due more than {LATE:?} after the time that its row needs")),
                RepairVerdict::Fine | RepairVerdict::Dead => {
                    self.suspects.remove(job.id.as_str());
                    None
                }
            };
        }
        if missing.is_empty() {
            return Ok(());
        }
        let again = pages.read_again(core).await?.map(TimerPage::into_jobs).unwrap_or_default();
        for job in again {
            if let Some(detail) = missing.remove(job.id.as_str()) {
                self.suspect(job.id.to_string(), detail, now, sampled);
            }
        }
        Ok(())
    }

    fn suspect(&mut self, job: String, detail: String, now: DateTime<Utc>, sampled: &mut Sampled) {
        if let Some(suspect) = self.suspects.get_mut(&job) {
            suspect.seen_at = now;
            if now - suspect.since >= CONFIRMED_AFTER {
                sampled.violations.push(InvariantViolation { invariant: timers::MISSING, subject: job, detail });
            }
        } else if self.suspects.len() < MOST_SUSPECTS {
            self.suspects.insert(job, Suspect { since: now, seen_at: now });
        }
    }

    async fn check_dead_jobs(
        &mut self,
        core: &Core,
        now: DateTime<Utc>,
        sampled: &mut Sampled,
    ) -> Result<(), ServiceError> {
        let begun_at = *self.dead_begun_at.get_or_insert(now);
        let mut left = DEAD_JOBS;
        while left > 0 {
            let (queue, offset) = self.dead_jobs;
            let Some(name) = jobs::queues::ALL.get(queue) else {
                sampled.ended.push((timers::NO_REASON, begun_at));
                (self.dead_jobs, self.dead_begun_at) = ((0, 0), None);
                return Ok(());
            };
            let page = core.queue().list_jobs(name, JobState::Dead, offset, left).await?;
            self.dead_jobs = if page.len() < left { (queue + 1, 0) } else { (queue, offset + page.len()) };
            left -= page.len();
            sampled.violations.extend(page.into_iter().filter_map(|job| timers::name_silent(name, job)));
        }
        Ok(())
    }

    async fn check_waiting_sets(
        &mut self,
        maintenance: &Maintenance,
        now: DateTime<Utc>,
        sampled: &mut Sampled,
    ) -> Result<(), ServiceError> {
        let begun_at = *self.waiting_begun_at.get_or_insert(now);
        let keys = waiting_sets::list_keys(&maintenance.core).await?;
        let after = self.waiting_set.clone();
        let mut later = keys.into_iter().filter(|key| *key > after).peekable();
        let (mut chosen, mut members) = (Vec::new(), 0);
        while members < MEMBERS
            && let Some(key) = later.next()
        {
            members += count_members(&maintenance.core, &key).await?;
            chosen.push(key);
        }
        let is_last = later.peek().is_none();
        self.waiting_set = chosen.last().cloned().filter(|_| !is_last).unwrap_or_default();
        sampled.violations.extend(waiting_sets::check_sets(maintenance, &chosen).await?);
        if is_last {
            sampled.ended.push((waiting_sets::NAME, begun_at));
            self.waiting_begun_at = None;
        }
        Ok(())
    }
}

async fn check_slots(core: &Core, now: DateTime<Utc>, sampled: &mut Sampled) -> Result<(), ServiceError> {
    sampled.violations.extend(slots::check_slots(core).await?);
    sampled.ended.push((slots::NAME, now));
    Ok(())
}

async fn count_members(core: &Core, key: &str) -> Result<u64, ServiceError> {
    let mut count = cmd("ZCARD");
    count.arg(key);
    Ok(core.store.run_command("count members", &count).await?)
}

/// Returns whether each shard has all of its jobs: it answers, has its epoch, and was not restarted since.
async fn has_all_jobs(core: &Core) -> bool {
    for store in core.queue().homes() {
        match (store.epoch().await, store.run_id().await) {
            (Ok(Some(epoch)), Ok(run_id)) if epoch.run_id == run_id => {}
            _ => return false,
        }
    }
    true
}
