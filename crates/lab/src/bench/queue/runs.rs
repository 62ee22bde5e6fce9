//! Records of all runs of a measured worker.

use std::{
    sync::atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::Rounds;
use crate::bench::{machine, spread::SamplePercentiles};

/// Returns microseconds since 1970, on the clock that the local Redis also reads.
pub(super) fn now_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}

/// Runs of timers 0..n. Many handlers write it concurrently, so all fields are atomic.
#[derive(Debug)]
pub(super) struct TimerRuns {
    times: Vec<AtomicU8>,
    lateness_us: Vec<AtomicI64>,
    /// Due time of the last timer.
    last_due_ms: AtomicI64,
    distinct: AtomicU32,
    complete: Notify,
}

/// Summary of the runs, which a measured worker prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObservedRuns {
    /// Timers that ran.
    pub(super) jobs: u32,
    /// Timers that did not run.
    pub(super) lost: u32,
    /// Timers that ran more than once.
    pub(super) doubled: u32,
    /// Timers that ran before they were due.
    pub(super) early: u32,
    /// Start of the handler minus the due time.
    pub(super) lateness_us: SamplePercentiles,
    /// Due time of the last timer.
    pub(super) last_due_ms: i64,
    /// Start time of the worker.
    pub(super) began_us: i64,
    /// CPU time of the worker process. `None` if the system does not report it.
    pub(super) cpu_ms: Option<u64>,
    /// Time at which the last result was written. `None` if some timers had not run by the end.
    pub(super) settled_us: Option<i64>,
}

impl ObservedRuns {
    /// Adds lost, doubled and early jobs.
    pub(super) fn push_faults(&self, rounds: &mut Rounds) {
        for (what, jobs) in [("lost", self.lost), ("doubled", self.doubled), ("early", self.early)] {
            rounds.push(what, f64::from(jobs));
        }
    }
}

impl TimerRuns {
    pub(super) fn new(jobs: u32) -> Self {
        Self {
            times: (0..jobs).map(|_| AtomicU8::new(0)).collect(),
            lateness_us: (0..jobs).map(|_| AtomicI64::new(0)).collect(),
            last_due_ms: AtomicI64::new(0),
            distinct: AtomicU32::new(0),
            complete: Notify::new(),
        }
    }

    /// Records the start of a run at `now_us`. A number out of range belongs to an unexpected timer and is not counted.
    /// It is still noticed, because then the expected timers never become complete.
    pub(super) fn record_run(&self, number: u32, due_ms: u64, now_us: i64) {
        let due_ms = due_ms.cast_signed();
        let Some(times) = self.times.get(number as usize) else { return };
        if times.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        self.lateness_us[number as usize].store(now_us - due_ms * 1000, Ordering::Relaxed);
        self.last_due_ms.fetch_max(due_ms, Ordering::Relaxed);
        if self.distinct.fetch_add(1, Ordering::AcqRel) as usize + 1 == self.times.len() {
            self.complete.notify_one();
        }
    }

    /// Waits until every timer has run at least once. Without timers it never returns.
    pub(super) async fn wait_until_complete(&self) {
        self.complete.notified().await;
    }

    pub(super) fn summarize_runs(&self, began_us: i64, settled_us: Option<i64>) -> ObservedRuns {
        let times = || self.times.iter().map(|times| times.load(Ordering::Acquire));
        let count = |what: fn(u8) -> bool| u32::try_from(times().filter(|n| what(*n)).count()).unwrap_or(u32::MAX);
        let ran = self.lateness_us.iter().zip(times()).filter(|(_, times)| *times > 0);
        let lateness_us: Vec<i64> = ran.map(|(lateness, _)| lateness.load(Ordering::Relaxed)).collect();
        let early = lateness_us.iter().filter(|lateness| **lateness < 0).count();
        ObservedRuns {
            jobs: count(|n| n > 0),
            lost: count(|n| n == 0),
            doubled: count(|n| n > 1),
            early: u32::try_from(early).unwrap_or(u32::MAX),
            lateness_us: SamplePercentiles::from_samples(lateness_us),
            last_due_ms: self.last_due_ms.load(Ordering::Relaxed),
            began_us,
            cpu_ms: machine::cpu_ms(),
            settled_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_early_runs_are_counted() {
        let runs = TimerRuns::new(4);
        runs.record_run(0, 1_000, 1_001_500);
        runs.record_run(1, 1_002, 1_001_999);
        runs.record_run(1, 1_002, 1_900_000);
        runs.record_run(2, 1_001, 1_004_000);
        runs.record_run(99, 1_001, 1_004_000);
        let observed = runs.summarize_runs(7, None);
        assert_eq!((observed.jobs, observed.lost, observed.doubled, observed.early), (3, 1, 1, 1));
        assert_eq!(observed.lateness_us, SamplePercentiles { p50: 1_500, p99: 3_000, max: 3_000 });
        assert_eq!(observed.last_due_ms, 1_002);
    }
}
