//! What came of it, for people or as one JSON object.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use crate::bench::{
    chaos::claims::RequestTally,
    machine::{MachineInfo, SoftwareVersions},
    tables::{add_table_row, counts_table, table_with_header},
};

#[derive(Debug, Serialize)]
pub(super) struct UpgradeReport {
    pub(super) old: PathBuf,
    /// Orders created per second, at most.
    pub(super) rate: u32,
    pub(super) seconds: u32,
    pub(super) phases: Vec<PhaseReport>,
    pub(super) orders: u64,
    pub(super) outcomes: BTreeMap<String, u64>,
    pub(super) requests: BTreeMap<&'static str, RequestTally>,
    /// Messages delivered, by kind.
    pub(super) messages: BTreeMap<String, i64>,
    pub(super) repairs: i64,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) violations: Vec<String>,
    /// Logs of the processes, where they were kept because something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
pub(super) struct PhaseReport {
    pub(super) name: &'static str,
    /// How long it lasted.
    pub(super) seconds: f64,
    /// Orders that producers were told of.
    pub(super) orders: usize,
    /// Lateness of the jobs of all workers; `None`: no worker said.
    pub(super) p99_ms: Option<f64>,
}

impl UpgradeReport {
    /// Tables for people.
    pub(super) fn to_text(&self) -> String {
        let mut table = table_with_header(&["phase", "seconds", "orders", "lateness p99"]);
        for PhaseReport { name, seconds, orders, p99_ms } in &self.phases {
            let p99 = p99_ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
            add_table_row(&mut table, &[name, &format!("{seconds:.1}"), &orders.to_string(), &p99]);
        }
        let parts = [
            format!(
                "{} orders at {} per second, from {} to this version, back, and again\n{}\n{}",
                self.orders,
                self.rate,
                self.old.display(),
                self.machine.to_text(),
                self.versions.to_text(),
            ),
            table.to_string(),
            counts_table("outcome", "orders", &self.outcomes),
            counts_table("messages delivered", "", &self.messages),
            self.verdict_text(),
        ];
        parts.join("\n")
    }

    fn verdict_text(&self) -> String {
        if self.violations.is_empty() {
            return "At rest; what clients were told is in the tables, and the history is clean.".to_owned();
        }
        let mut lines = vec![format!("{} violations:", self.violations.len())];
        lines.extend(self.violations.iter().map(|violation| format!("  {violation}")));
        lines.extend(self.logs.as_ref().map(|dir| format!("logs of the processes: {}", dir.display())));
        lines.join("\n")
    }
}
