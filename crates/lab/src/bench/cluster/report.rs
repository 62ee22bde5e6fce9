//! What came of it, for people or as one JSON object.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use super::{
    lateness::LatenessTotal,
    stage::{REDIS, WORKERS},
    steps::StepOutcome,
};
use crate::{
    bench::{
        chaos::claims::RequestTally,
        machine::{MachineInfo, SoftwareVersions},
        processor::ProcessorUse,
        tables::{add_table_row, counts_table, table_with_header},
    },
    testbed::figures::JobLateness,
};

#[derive(Debug, Serialize)]
pub(super) struct ClusterReport {
    /// The most there were.
    pub(super) shards: u16,
    /// Jobs performed for each second of processor time of workers and of all nodes of Redis.
    pub(super) process_per_cpu_s: Option<f64>,
    pub(super) lateness_ms: JobLateness,
    pub(super) failovers: u32,
    pub(super) migrated_slots: u32,
    pub(super) lost: usize,
    pub(super) doubled: usize,
    pub(super) early: usize,
    pub(super) violations: Vec<String>,
    /// Reported and never judged.
    pub(super) goals: ClusterGoals,
    /// Orders created per second, at most.
    pub(super) rate: u32,
    pub(super) seconds: u32,
    pub(super) speed: f64,
    pub(super) phases: Vec<ClusterPhaseReport>,
    /// Phases that were left out, for this binary has no command `shards`.
    pub(super) left_out: Vec<&'static str>,
    pub(super) orders: u64,
    pub(super) outcomes: BTreeMap<String, u64>,
    pub(super) requests: BTreeMap<&'static str, RequestTally>,
    /// Answers 5xx but 503, which a fault may excuse.
    pub(super) failures: BTreeMap<String, u64>,
    pub(super) repairs: i64,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    /// Logs of the processes, where they were kept because something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<PathBuf>,
}

/// What the design asks of speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ClusterGoals {
    /// Lateness p99 of the other shards while a master stood still, beside that of as many shards at rest: 2 at most. `None`: no master
    /// stood still.
    pub(super) unreachable_p99_times: Option<f64>,
}

impl ClusterGoals {
    pub(super) fn from_phases(phases: &[ClusterPhaseReport]) -> Self {
        let times = || {
            let (shards, meanwhile) = phases.iter().find_map(|phase| Some((phase.shards, phase.meanwhile_ms?)))?;
            let rest = phases.iter().find(|phase| phase.at_rest && phase.shards == shards)?.lateness_ms;
            // Whole milliseconds: none is less than one.
            Some((meanwhile.p99.max(1) as f64 / rest.p99.max(1) as f64 * 10.0).round() / 10.0)
        };
        Self { unreachable_p99_times: times() }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ClusterPhaseReport {
    pub(super) name: &'static str,
    /// At its end.
    pub(super) shards: u16,
    /// Nothing was done: what to compare other numbers of shards by.
    pub(super) at_rest: bool,
    /// How long it lasted.
    pub(super) seconds: f64,
    /// Orders that producers were told of.
    pub(super) orders: usize,
    pub(super) process_per_cpu_s: Option<f64>,
    /// Of the jobs that began in it.
    pub(super) lateness_ms: JobLateness,
    /// How long it took until the slot was served again, or all shards were settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step_s: Option<f64>,
    /// From then on, until no timer was missing that a row asks for; and why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timers_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) without_timers: Option<String>,
    /// Of the jobs that began while a master stood still: those of the other shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meanwhile_ms: Option<JobLateness>,
}

/// What all phases saw.
#[derive(Debug, Default)]
pub(super) struct RunTotals {
    pub(super) lateness: LatenessTotal,
    pub(super) failovers: u32,
    pub(super) migrated_slots: u32,
    processor_ms: u64,
}

impl RunTotals {
    /// Returns the jobs of this phase for each second of processor time.
    pub(super) fn add_phase(&mut self, jobs: &LatenessTotal, used: &ProcessorUse, step: &StepOutcome) -> Option<f64> {
        let of = |kind: &str| used.by_kind.get(kind).copied().unwrap_or_default();
        let processor_ms = of(WORKERS) + of(REDIS);
        self.lateness.add(jobs);
        self.failovers += step.failovers;
        self.migrated_slots += step.migrated_slots;
        self.processor_ms += processor_ms;
        per_cpu_s(jobs.job_count(), processor_ms)
    }

    pub(super) fn jobs_per_cpu_s(&self) -> Option<f64> {
        per_cpu_s(self.lateness.job_count(), self.processor_ms)
    }
}

/// `None` where the system does not tell.
fn per_cpu_s(jobs: u64, processor_ms: u64) -> Option<f64> {
    (processor_ms > 0).then(|| (jobs as f64 * 1e4 / processor_ms as f64).round() / 10.0)
}

impl ClusterReport {
    /// Tables for people.
    pub(super) fn to_text(&self) -> String {
        let parts = [
            format!(
                "{} orders at {} per second, speed {}, on three masters and three replicas; {} failovers, {} slots moved\n{}\n{}",
                self.orders,
                self.rate,
                self.speed,
                self.failovers,
                self.migrated_slots,
                self.machine.to_text(),
                self.versions.to_text(),
            ),
            self.phase_table(),
            counts_table("outcome", "orders", &self.outcomes),
            self.verdict_text(),
        ];
        parts.join("\n")
    }

    fn phase_table(&self) -> String {
        let header = [
            "phase",
            "shards",
            "seconds",
            "orders",
            "jobs",
            "jobs per CPU second",
            "lateness p50 / p99 / max, ms",
            "step took",
            "timers back after",
        ];
        let mut table = table_with_header(&header);
        let figure = |figure: Option<f64>, unit: &str| figure.map_or("-".to_owned(), |f| format!("{f}{unit}"));
        for phase in &self.phases {
            let figures = [
                phase.shards.to_string(),
                format!("{:.1}", phase.seconds),
                phase.orders.to_string(),
                phase.lateness_ms.jobs.to_string(),
                figure(phase.process_per_cpu_s, ""),
                lateness_text(phase.lateness_ms),
                figure(phase.step_s, " s"),
                figure(phase.timers_s, " s"),
            ];
            let mut row = vec![phase.name];
            row.extend(figures.iter().map(String::as_str));
            add_table_row(&mut table, &row);
        }
        table.to_string()
    }

    fn verdict_text(&self) -> String {
        let mut lines = Vec::new();
        for phase in &self.phases {
            if let Some(meanwhile) = phase.meanwhile_ms {
                let lateness = lateness_text(meanwhile);
                lines.push(format!("While a master stood still, jobs of the others were late by {lateness} ms."));
            }
        }
        if let Some(times) = self.goals.unreachable_p99_times {
            lines.push(format!("That is {times} times the p99 of as many shards at rest; the goal is 2 at most."));
        }
        if !self.left_out.is_empty() {
            lines.push(format!("Left out, for this binary has no command shards: {}", self.left_out.join(", ")));
        }
        if self.violations.is_empty() {
            lines.push("At rest; what clients were told is in the tables, and the history is clean.".to_owned());
            return lines.join("\n");
        }
        lines.push(format!(
            "{} violations; lost {}, done twice {}, early {}:",
            self.violations.len(),
            self.lost,
            self.doubled,
            self.early
        ));
        lines.extend(self.violations.iter().map(|violation| format!("  {violation}")));
        lines.extend(self.logs.as_ref().map(|dir| format!("logs of the processes: {}", dir.display())));
        lines.join("\n")
    }
}

fn lateness_text(lateness: JobLateness) -> String {
    format!("{} / {} / {}", lateness.p50, lateness.p99, lateness.max)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn processor_time_is_that_of_workers_and_redis() {
        let by_kind = BTreeMap::from([("api", 5_000), (WORKERS, 300), (REDIS, 700), ("postgres", 9_000)]);
        let used = ProcessorUse { elapsed: Duration::from_secs(1), by_kind, busiest: None, machine_busy_share: None };
        let mut totals = RunTotals::default();
        let step = StepOutcome { failovers: 1, ..StepOutcome::default() };
        assert_eq!(totals.add_phase(&LatenessTotal::of_jobs(500), &used, &step), Some(500.0));
        assert_eq!(totals.add_phase(&LatenessTotal::of_jobs(1_500), &used, &step), Some(1_500.0));
        assert_eq!((totals.jobs_per_cpu_s(), totals.failovers), (Some(1_000.0), 2));
        assert_eq!(RunTotals::default().jobs_per_cpu_s(), None);
    }

    fn phase(shards: u16, p99: u64, meanwhile_p99: Option<u64>) -> ClusterPhaseReport {
        let late = |p99| JobLateness { p50: 1, p99, max: p99, jobs: 10 };
        ClusterPhaseReport {
            name: "phase",
            shards,
            at_rest: meanwhile_p99.is_none(),
            seconds: 20.0,
            orders: 1,
            process_per_cpu_s: None,
            lateness_ms: late(p99),
            step_s: None,
            timers_s: None,
            without_timers: None,
            meanwhile_ms: meanwhile_p99.map(late),
        }
    }

    #[test]
    fn a_master_that_stands_still_is_compared_with_as_many_shards_at_rest() {
        let goals = |phases: &[ClusterPhaseReport]| ClusterGoals::from_phases(phases).unreachable_p99_times;
        assert_eq!(goals(&[phase(1, 2, None), phase(4, 8, None), phase(4, 900, Some(12))]), Some(1.5));
        assert_eq!(goals(&[phase(4, 0, None), phase(4, 0, Some(0))]), Some(1.0));
        assert_eq!(goals(&[phase(1, 2, None), phase(4, 900, Some(12))]), None);
        assert_eq!(goals(&[phase(1, 2, None)]), None);
    }
}
