//! What was seen, for people or as one JSON object.

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::{Value, json};

use super::{
    clients::{PhaseAnswers, RATE},
    flood::{FloodTally, KEYS_PER_S, SOCKETS},
};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::us_to_ms,
};

/// Beside a flood the 99th percentile may be so many times that without one.
const MOST_TIMES: f64 = 2.0;
const MOST_MS: f64 = 50.0;

#[derive(Debug)]
pub(super) struct FloodPhase {
    pub(super) name: &'static str,
    pub(super) told: PhaseAnswers,
    pub(super) met: FloodTally,
}

#[derive(Debug)]
pub(super) struct FloodReport {
    /// The first is without a flood.
    pub(super) phases: Vec<FloodPhase>,
    /// Of `serve` and `work`, at their end.
    pub(super) complaints: Vec<String>,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
}

impl FloodReport {
    /// The 99th percentile of a phase by that of the first.
    fn p99_ratio(&self, phase: &FloodPhase) -> f64 {
        let first = self.phases.first().map_or(1, |first| first.told.times.p99.max(1));
        (phase.told.times.p99 as f64 / first as f64 * 100.0).round() / 100.0
    }

    pub(super) fn find_violations(&self) -> Vec<String> {
        let mut violations = self.complaints.clone();
        for (n, phase) in self.phases.iter().enumerate() {
            if let Some(first) = &phase.told.first_refusal {
                violations.push(format!("{}: {} good requests were refused: {first}", phase.name, phase.told.refused));
            }
            let (p99, ratio) = (us_to_ms(phase.told.times.p99), self.p99_ratio(phase));
            if n > 0 && ratio > MOST_TIMES {
                violations.push(format!("{}: p99 is {ratio} times that without a flood", phase.name));
            }
            if n > 0 && p99 >= MOST_MS {
                violations.push(format!("{}: p99 is {p99} ms", phase.name));
            }
        }
        violations
    }

    pub(super) fn to_json(&self) -> Value {
        let phases: Vec<Value> = (self.phases.iter())
            .map(|phase| {
                json!({
                    "name": phase.name,
                    "good": phase.told.good,
                    "refused": phase.told.refused,
                    "p50_ms": us_to_ms(phase.told.times.p50),
                    "p99_ms": us_to_ms(phase.told.times.p99),
                    "max_ms": us_to_ms(phase.told.times.max),
                    "p99_ratio": self.p99_ratio(phase),
                    "flood": phase.met,
                })
            })
            .collect();
        json!({
            "phases": phases,
            "p99_ratio": self.phases.iter().map(|phase| self.p99_ratio(phase)).fold(0.0, f64::max),
            "good_per_s": RATE,
            "wrong_keys_per_s": KEYS_PER_S,
            "silent_sockets": SOCKETS,
            "violations": self.find_violations(),
            "machine": self.machine,
            "versions": self.versions,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        table.set_header([
            "",
            "good",
            "refused",
            "p50, ms",
            "p99, ms",
            "times",
            "wrong keys: 401 / 429",
            "sockets closed",
        ]);
        for phase in &self.phases {
            let (told, met) = (&phase.told, &phase.met);
            let row = [
                phase.name.replace('_', " "),
                told.good.to_string(),
                told.refused.to_string(),
                format!("{:.1}", us_to_ms(told.times.p50)),
                format!("{:.1}", us_to_ms(told.times.p99)),
                format!("{:.2}", self.p99_ratio(phase)),
                format!("{} / {}", met.answered_401, met.answered_429),
                met.sockets_closed.to_string(),
            ];
            table.add_row(row.into_iter().enumerate().map(|(n, text)| {
                Cell::new(text).set_alignment(if n == 0 { CellAlignment::Left } else { CellAlignment::Right })
            }));
        }
        let mut lines = vec![self.machine.to_text(), self.versions.to_text(), table.to_string()];
        let violations = self.find_violations();
        lines.extend(violations.iter().map(|violation| format!("VIOLATION {violation}")));
        if violations.is_empty() {
            lines.push("Good requests went on beside every flood.".to_owned());
        }
        lines.join("\n")
    }
}
