//! CPU time of the processes of a run between two times.

use std::{
    collections::BTreeMap,
    process,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    machine::{self, FamilyTimes, ProcessorTicks},
    spread::round_to_digits,
};

/// Pids of processes by their kind, such as `workers`.
pub(super) type PidsByKind = BTreeMap<&'static str, Vec<u32>>;

type TimesByKind = BTreeMap<&'static str, FamilyTimes>;

/// Kind of this process.
const OURS: &str = "bench";

/// CPU times at the start. If the system does not report them, everything is zero.
#[derive(Debug)]
pub(super) struct ProcessorWatch {
    began: Instant,
    machine: Option<ProcessorTicks>,
    before: TimesByKind,
    /// CPU times of processes that were killed since.
    killed: TimesByKind,
}

/// CPU time that the processes used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProcessorUse {
    pub(super) elapsed: Duration,
    /// CPU time by kind, in milliseconds.
    pub(super) by_kind: BTreeMap<&'static str, u64>,
    pub(super) busiest: Option<BusiestProcess>,
    /// Share of CPU time in which the processors were not idle.
    pub(super) machine_busy_share: Option<f64>,
}

/// The process that used most CPU time. A single-threaded process cannot use more than 1 processor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BusiestProcess {
    pub(super) kind: &'static str,
    pub(super) pid: u32,
    /// Average number of processors that it used.
    pub(super) processors: f64,
}

impl ProcessorUse {
    /// Returns the milliseconds of each kind per item, for `count` items.
    pub(super) fn ms_per(&self, count: u64) -> BTreeMap<&'static str, f64> {
        let each = |ms: &u64| round_to_digits(*ms as f64 / count.max(1) as f64, 3);
        self.by_kind.iter().map(|(kind, ms)| (*kind, each(ms))).collect()
    }

    pub(super) fn busy_share(&self) -> Option<f64> {
        self.machine_busy_share.map(|share| round_to_digits(share, 3))
    }
}

impl ProcessorWatch {
    pub(super) fn start(pids: &PidsByKind) -> Self {
        Self {
            began: Instant::now(),
            machine: ProcessorTicks::read_now(),
            before: read_times(pids),
            killed: TimesByKind::new(),
        }
    }

    /// Records the CPU time of a process that is about to be killed.
    pub(super) fn record_kill(&mut self, kind: &'static str, pid: u32) {
        if let Some(times) = machine::read_family_times(pid) {
            add_family(self.killed.entry(kind).or_default(), times);
        }
    }

    /// Returns the CPU time used since the start. `pids` are the current processes, because some may have been
    /// replaced.
    pub(super) fn finish(self, pids: &PidsByKind) -> ProcessorUse {
        let Self { began, machine, before, killed } = self;
        let elapsed = began.elapsed();
        let ticks = machine.zip(ProcessorTicks::read_now());
        let mut after = read_times(pids);
        for (kind, times) in killed {
            add_family(after.entry(kind).or_default(), times);
        }
        summarize_use(&before, &after, elapsed, ticks.and_then(|(before, now)| now.busy_share_since(before)))
    }
}

fn summarize_use(
    before: &TimesByKind,
    after: &TimesByKind,
    elapsed: Duration,
    machine_busy_share: Option<f64>,
) -> ProcessorUse {
    let mut by_kind = BTreeMap::new();
    let mut busiest: Option<(u64, &'static str, u32)> = None;
    let nothing = FamilyTimes::default();
    for (kind, times) in after {
        let earlier = before.get(kind).unwrap_or(&nothing);
        by_kind.insert(*kind, times.total_ms().saturating_sub(earlier.total_ms()));
        for (pid, ms) in &times.living {
            let used = ms.saturating_sub(earlier.living.get(pid).copied().unwrap_or_default());
            if busiest.is_none_or(|(most, _, _)| used > most) {
                busiest = Some((used, *kind, *pid));
            }
        }
    }
    let busiest = busiest.map(|(ms, kind, pid)| {
        let processors = ms as f64 / 1000.0 / elapsed.as_secs_f64().max(f64::EPSILON);
        BusiestProcess { kind, pid, processors: round_to_digits(processors, 3) }
    });
    ProcessorUse { elapsed, by_kind, busiest, machine_busy_share }
}

/// Reads the CPU times of this process, and of the others with their children.
fn read_times(pids: &PidsByKind) -> TimesByKind {
    let own =
        FamilyTimes { living: BTreeMap::from([(process::id(), machine::cpu_ms().unwrap_or_default())]), ended: 0 };
    let mut times = TimesByKind::from([(OURS, own)]);
    for (kind, pids) in pids {
        let of_kind = times.entry(*kind).or_default();
        for family in pids.iter().filter_map(|pid| machine::read_family_times(*pid)) {
            add_family(of_kind, family);
        }
    }
    times
}

fn add_family(sum: &mut FamilyTimes, family: FamilyTimes) {
    sum.living.extend(family.living);
    sum.ended += family.ended;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(living: &[(u32, u64)], ended: u64) -> FamilyTimes {
        FamilyTimes { living: living.iter().copied().collect(), ended }
    }

    #[test]
    fn processor_time_counts_killed_not_earlier_processes() {
        let before =
            TimesByKind::from([("redis", times(&[(7, 500)], 0)), ("workers", times(&[(1, 100), (2, 100)], 0))]);
        let mut after =
            TimesByKind::from([("redis", times(&[(7, 1400)], 0)), ("workers", times(&[(2, 300), (3, 50)], 0))]);
        add_family(after.get_mut("workers").unwrap(), times(&[(1, 140)], 0));
        let used = summarize_use(&before, &after, Duration::from_secs(1), Some(0.5));
        assert_eq!(used.by_kind, BTreeMap::from([("redis", 900), ("workers", 290)]));
        assert_eq!(used.busiest, Some(BusiestProcess { kind: "redis", pid: 7, processors: 0.9 }));
    }
}
