//! Lateness of jobs, as workers report it to Redis every two seconds. This module sums up the growth of the counts,
//! because a flush removes them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{MissedTickBehavior, interval};

use crate::testbed::figures::JobLateness;
use queue::{Store, StoreError};

const EVERY: Duration = Duration::from_millis(500);
const HOUR_MS: u64 = 3_600_000;
/// Time after which workers have reported the jobs that they started.
pub(super) const TOLD_WITHIN: Duration = Duration::from_millis(2_500);
/// Hash field next to the counts.
const MAX: &str = "max";

/// Jobs by lateness in milliseconds, rounded down to two digits.
type JobsByLateness = BTreeMap<u64, u64>;

/// Counts of all jobs so far. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct LatenessBook(Arc<Mutex<BookEntries>>);

#[derive(Debug, Default)]
struct BookEntries {
    /// Counts in Redis at the last read, by hour.
    seen: BTreeMap<u64, JobsByLateness>,
    total: LatenessTotal,
}

/// Counts of jobs up to some time, or between two times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LatenessTotal {
    jobs: JobsByLateness,
    max_ms: u64,
}

impl LatenessBook {
    /// Reads the counts twice a second and never returns. The control shard has the counts of all shards.
    pub(super) async fn keep_looking(self, control: Store) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Redis may be down during a step.
            if let Err(error) = self.look(&control).await {
                tracing::debug!(%error, "The lateness of jobs could not be read.");
            }
        }
    }

    async fn look(&self, control: &Store) -> Result<(), StoreError> {
        let hour = control.now_ms().await? / HOUR_MS;
        for hour in [hour.saturating_sub(1), hour] {
            let mut read = redis::cmd("HGETALL");
            read.arg(control.keys().lateness_counts(hour));
            let fields: HashMap<String, u64> = control.run_command("lateness", &read).await?;
            self.lock_entries().add_hour(hour, fields);
        }
        Ok(())
    }

    /// Returns the counts of all jobs so far.
    pub(super) fn total(&self) -> LatenessTotal {
        self.lock_entries().total.clone()
    }

    fn lock_entries(&self) -> MutexGuard<'_, BookEntries> {
        self.0.lock()
    }
}

impl BookEntries {
    fn add_hour(&mut self, hour: u64, mut fields: HashMap<String, u64>) {
        let max_ms = fields.remove(MAX).unwrap_or_default();
        let now: JobsByLateness = fields.into_iter().filter_map(|(field, n)| Some((field.parse().ok()?, n))).collect();
        let before = self.seen.insert(hour, now.clone()).unwrap_or_default();
        self.total.max_ms = self.total.max_ms.max(max_ms);
        let count = |jobs: &JobsByLateness| jobs.values().sum::<u64>();
        // A replica that took over may lack the last counts. After a flush there are only few.
        let is_new = count(&now) < count(&before) / 2;
        for (lateness, jobs) in now {
            let known = if is_new { 0 } else { before.get(&lateness).copied().unwrap_or_default() };
            *self.total.jobs.entry(lateness).or_default() += jobs.saturating_sub(known);
        }
    }
}

impl LatenessTotal {
    pub(super) fn job_count(&self) -> u64 {
        self.jobs.values().sum()
    }

    /// Returns the jobs since an earlier time. Their maximum lateness is rounded down, unless it is the maximum of all
    /// jobs.
    pub(super) fn since(&self, before: &Self) -> Self {
        let grown = self.jobs.iter().map(|(lateness, jobs)| {
            let known = before.jobs.get(lateness).copied().unwrap_or_default();
            (*lateness, jobs.saturating_sub(known))
        });
        let jobs: JobsByLateness = grown.filter(|(_, jobs)| *jobs > 0).collect();
        let latest = jobs.keys().next_back().copied().unwrap_or_default();
        Self { jobs, max_ms: if self.max_ms > before.max_ms { self.max_ms } else { latest } }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (lateness, jobs) in &other.jobs {
            *self.jobs.entry(*lateness).or_default() += jobs;
        }
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    pub(super) fn summarize(&self) -> JobLateness {
        JobLateness { p50: self.percentile(50), p99: self.percentile(99), max: self.max_ms, jobs: self.job_count() }
    }

    /// Returns the smallest lateness that at least `percent` % of the jobs do not exceed.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.job_count() * percent).div_ceil(100);
        let mut seen = 0;
        let reached = self.jobs.iter().find(|(_, jobs)| {
            seen += **jobs;
            seen >= wanted
        });
        reached.map_or(0, |(lateness, _)| *lateness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(jobs: &[(u64, u64)], max_ms: u64) -> HashMap<String, u64> {
        let counts = jobs.iter().map(|(lateness, jobs)| (lateness.to_string(), *jobs));
        counts.chain([(MAX.to_owned(), max_ms)]).collect()
    }

    #[test]
    fn lateness_counts_survive_flush_and_failover() {
        let book = LatenessBook::default();
        let add = |hour, jobs: &[(u64, u64)], max_ms| book.lock_entries().add_hour(hour, fields(jobs, max_ms));
        add(7, &[(1, 90), (30, 10)], 37);
        let before = book.total();
        // In order: counts after a failover, more counts, counts after a flush, counts of the next hour.
        add(7, &[(1, 88), (30, 10)], 37);
        add(7, &[(1, 90), (30, 12)], 37);
        add(7, &[(2, 5)], 2);
        add(8, &[(2, 5)], 2);
        let all = book.total();
        assert_eq!((before.job_count(), all.job_count()), (100, 114));
        let later = all.since(&before);
        assert_eq!(later.summarize(), JobLateness { p50: 2, p99: 30, max: 30, jobs: 14 });
        assert_eq!(all.summarize().max, 37);
    }
}
