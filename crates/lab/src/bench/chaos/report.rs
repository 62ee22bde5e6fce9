//! What came of it, for people or as one JSON object.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use super::{claims::RequestTally, recovery::FaultRecovery};
use crate::{
    bench::{
        machine::{MachineInfo, SoftwareVersions},
        tables::{add_table_row, counts_table, table_with_header},
    },
    testbed::figures::JobLateness,
};

#[derive(Debug, Serialize)]
pub(super) struct ChaosReport {
    pub(super) seed: u64,
    pub(super) minutes: f64,
    /// Orders created per second, at most.
    pub(super) rate: u32,
    /// Of whom each waits for an answer before its next order; `None`: as many as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) producers: Option<u32>,
    pub(super) speed: f64,
    /// Processes shared sessions of Postgres.
    pub(super) pooler: bool,
    pub(super) serves: usize,
    pub(super) workers: usize,
    /// From the first order to rest.
    pub(super) wall_seconds: f64,
    pub(super) orders: u64,
    pub(super) requests: BTreeMap<&'static str, RequestTally>,
    pub(super) refusals: BTreeMap<String, u64>,
    pub(super) hangups: BTreeMap<&'static str, u64>,
    pub(super) faults: BTreeMap<String, FaultSummary>,
    /// Processes killed.
    pub(super) kills: u64,
    /// Processes that could not start during a fault, and were started again.
    pub(super) false_starts: u64,
    pub(super) outcomes: BTreeMap<String, u64>,
    pub(super) held: u64,
    pub(super) bookings: BTreeMap<String, u64>,
    /// Messages delivered, by kind.
    pub(super) messages: BTreeMap<String, i64>,
    /// Of all jobs since Redis was last flushed.
    pub(super) lateness_ms: JobLateness,
    pub(super) repairs: i64,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) violations: Vec<String>,
    /// Logs of the processes, where they were kept because something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<PathBuf>,
}

/// How often a fault was made, and the worst recovery of all times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FaultSummary {
    pub(super) count: u32,
    #[serde(flatten)]
    pub(super) recovery: FaultRecovery,
}

impl FaultSummary {
    pub(super) fn from_recovery(recovery: FaultRecovery) -> Self {
        Self { count: 1, recovery }
    }

    pub(super) fn add_recovery(&mut self, recovery: FaultRecovery) {
        self.count += 1;
        self.recovery = std::mem::take(&mut self.recovery).merge_worst(recovery);
    }
}

impl ChaosReport {
    /// No violation.
    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Tables for people.
    pub(super) fn to_text(&self) -> String {
        let parts = [
            format!(
                "{} orders at {} per second for {} min, seed {}, speed {}, {} serve and {} work: {:.0} s to rest\n{}\n{}",
                self.orders,
                self.rate,
                self.minutes,
                self.seed,
                self.speed,
                self.serves,
                self.workers,
                self.wall_seconds,
                self.machine.to_text(),
                self.versions.to_text(),
            ),
            self.fault_table(),
            self.request_table(),
            counts_table("outcome", "orders", &self.outcomes),
            counts_table("messages delivered", "", &self.messages),
            self.verdict_text(),
        ];
        parts.join("\n")
    }

    fn fault_table(&self) -> String {
        let mut table = table_with_header(&[
            "fault",
            "times",
            "lateness p99 < 100 ms after",
            "timers back after",
            "p99 from 10 s on",
        ]);
        let figure = |figure: Option<f64>, unit: &str| figure.map_or("-".to_owned(), |f| format!("{f:.1} {unit}"));
        for (name, of) in &self.faults {
            let FaultRecovery { lateness_s, timers_s, worst_p99_ms, .. } = &of.recovery;
            let times = of.count.to_string();
            let figures = [figure(*lateness_s, "s"), figure(*timers_s, "s"), figure(*worst_p99_ms, "ms")];
            add_table_row(&mut table, &[name, &times, &figures[0], &figures[1], &figures[2]]);
        }
        table.to_string()
    }

    fn request_table(&self) -> String {
        let mut table = table_with_header(&["request", "done", "refused", "sent again", "unanswered", "hung up on"]);
        let empty = RequestTally::default();
        let names = self.requests.keys().chain(self.hangups.keys()).collect::<std::collections::BTreeSet<_>>();
        for name in names {
            let RequestTally { done, refused, retries, unanswered } = self.requests.get(name).unwrap_or(&empty);
            let hung_up = self.hangups.get(name).copied().unwrap_or_default();
            let numbers = [*done, *refused, *retries, *unanswered, hung_up].map(|number| number.to_string());
            let mut row = vec![*name];
            row.extend(numbers.iter().map(String::as_str));
            add_table_row(&mut table, &row);
        }
        table.to_string()
    }

    fn verdict_text(&self) -> String {
        if self.is_clean() {
            return "At rest; what clients were told is in the tables, and the history is clean.".to_owned();
        }
        let mut lines = vec![format!("{} violations:", self.violations.len())];
        lines.extend(self.violations.iter().map(|violation| format!("  {violation}")));
        lines.extend(self.logs.as_ref().map(|dir| format!("logs of the processes: {}", dir.display())));
        lines.join("\n")
    }
}
