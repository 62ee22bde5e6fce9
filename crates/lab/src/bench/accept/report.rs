//! What was seen, for people or as one JSON object.

use std::{collections::BTreeSet, iter};

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::{Map, Value, json};

use super::{
    goals::{self, Goal},
    options::AcceptOptions,
    race::RaceTally,
};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::{SamplePercentiles, round_to_digits},
};

#[derive(Debug)]
pub(super) struct FaultTally {
    pub(super) name: &'static str,
    pub(super) told: RaceTally,
}

#[derive(Debug)]
pub(super) struct AcceptReport {
    pub(super) options: AcceptOptions,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) told: RaceTally,
    pub(super) faults: Vec<FaultTally>,
    /// By the database: orders that two drivers accepted.
    pub(super) given_twice: i64,
    pub(super) violations: Vec<String>,
}

impl RaceTally {
    fn is_good(&self) -> bool {
        self.doubled == 0 && self.winners_us.len() == self.orders as usize && self.others.is_empty()
    }

    pub(super) fn updates_per_order(&self) -> f64 {
        round_to_digits(self.updates as f64 / f64::from(self.orders.max(1)), 3)
    }

    fn to_json(&self) -> Value {
        let mut json = json!({
            "orders": self.orders,
            "wins": self.winners_us.len(),
            "double": self.doubled,
            "winner_ms": SamplePercentiles::from_samples(self.winners_us.clone()).to_json_ms(),
            "loser_ms": SamplePercentiles::from_samples(self.losers_us.clone()).to_json_ms(),
            "loser_head_to_answer_ms": SamplePercentiles::from_samples(self.refusals_us.clone()).to_json_ms(),
        });
        // Not counted while Redis has its troubles: other things are written meanwhile.
        if self.updates > 0 {
            json["sql_updates_per_order"] = json!(self.updates_per_order());
        }
        if !self.others.is_empty() {
            json["other_answers"] = json!(self.others.len());
            json["other_answers_heard"] = json!(self.others.iter().collect::<BTreeSet<_>>());
        }
        json
    }
}

impl AcceptReport {
    /// Every order went to exactly one driver, and everybody else heard so.
    pub(super) fn is_good(&self) -> bool {
        let all = self.named_tallies().map(|(_, told)| told);
        self.given_twice == 0 && self.violations.is_empty() && all.into_iter().all(RaceTally::is_good)
    }

    /// The races with a healthy Redis, then those of each fault.
    fn named_tallies(&self) -> impl Iterator<Item = (&str, &RaceTally)> {
        iter::once(("healthy", &self.told)).chain(self.faults.iter().map(|fault| (fault.name, &fault.told)))
    }

    pub(super) fn to_json(&self) -> Value {
        let faults: Map<String, Value> =
            self.faults.iter().map(|fault| (fault.name.to_owned(), fault.told.to_json())).collect();
        let mut json = self.told.to_json();
        json["drivers"] = json!(self.options.drivers);
        json["double"] = json!(i64::from(self.told.doubled) + self.given_twice);
        let goals: Map<String, Value> = goals::goals_of(&self.told).iter().map(Goal::to_json_entry).collect();
        json["goals"] = json!(goals);
        json["faults"] = json!(faults);
        json["violations"] = json!(self.violations);
        json["machine"] = json!(self.machine);
        json["versions"] = json!(self.versions);
        json
    }

    pub(super) fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        table.set_header([
            "",
            "orders",
            "wins",
            "double",
            "UPDATEs / order",
            "winner p50 / p99, ms",
            "loser p50 / p99, ms",
            "of it the server, ms",
        ]);
        for (name, told) in self.named_tallies() {
            let pair = |samples: &[i64]| {
                let p = SamplePercentiles::from_samples(samples.to_vec());
                format!("{:.1} / {:.1}", p.p50 as f64 / 1000.0, p.p99 as f64 / 1000.0)
            };
            let updates = if told.updates == 0 { "-".to_owned() } else { format!("{:.2}", told.updates_per_order()) };
            let row = [
                name.to_owned(),
                told.orders.to_string(),
                told.winners_us.len().to_string(),
                told.doubled.to_string(),
                updates,
                pair(&told.winners_us),
                pair(&told.losers_us),
                pair(&told.refusals_us),
            ];
            let cells = row.into_iter().enumerate().map(|(n, text)| {
                Cell::new(text).set_alignment(if n == 0 { CellAlignment::Left } else { CellAlignment::Right })
            });
            table.add_row(cells);
        }
        let mut lines = vec![self.machine.to_text(), self.versions.to_text(), table.to_string()];
        lines.extend(goals::goals_of(&self.told).iter().map(Goal::to_text));
        lines.extend(self.violations.iter().map(|v| format!("VIOLATION {v}")));
        for (name, told) in self.named_tallies() {
            if let Some(first) = told.others.first() {
                lines.push(format!("{name}: {} drivers heard something else, such as: {first}", told.others.len()));
            }
        }
        lines.push(if self.is_good() {
            format!("Each of the orders went to exactly one of {} drivers.", self.options.drivers)
        } else {
            "NOT every order went to exactly one driver.".to_owned()
        });
        lines.join("\n")
    }
}
