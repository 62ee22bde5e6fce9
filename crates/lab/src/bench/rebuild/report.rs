//! What was seen, for people or as one JSON object.

use serde_json::{Value, json};

use super::{at_rest::FiguresAtRest, watch::RebuildFigures};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::round_to_digits,
};

/// The goal is for 250,000 orders.
const GOAL_S: f64 = 10.0;

fn mib(bytes: u64) -> f64 {
    round_to_digits(bytes as f64 / f64::from(1 << 20), 1)
}

#[derive(Debug)]
pub(super) struct RebuildReport {
    pub(super) orders: u32,
    pub(super) seen: RebuildFigures,
    pub(super) at_rest: FiguresAtRest,
    pub(super) violations: Vec<String>,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
}

impl RebuildReport {
    fn rebuild_s(&self) -> f64 {
        round_to_digits(self.seen.whole.as_secs_f64(), 2)
    }

    fn first_taken_s(&self) -> f64 {
        round_to_digits(self.seen.first_taken.as_secs_f64(), 2)
    }

    fn timers_per_s(&self) -> f64 {
        (self.seen.timers as f64 / self.seen.whole.as_secs_f64().max(f64::EPSILON)).round()
    }

    fn reconciler_mib(&self) -> Option<f64> {
        self.seen.grown_bytes.map(mib)
    }

    fn look_s(&self) -> f64 {
        round_to_digits(self.at_rest.look.as_secs_f64(), 2)
    }

    fn scrape_ms(&self) -> f64 {
        round_to_digits(self.at_rest.scrape.as_secs_f64() * 1000.0, 1)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "orders": self.orders,
            "timers": self.seen.timers,
            "rebuild_s": self.rebuild_s(),
            "first_horizon_s": round_to_digits(self.seen.horizon.as_secs_f64(), 2),
            "first_taken_s": self.first_taken_s(),
            "timers_per_s": self.timers_per_s(),
            "reconciler_mib": self.reconciler_mib(),
            "look_s": self.look_s(),
            "scrape_ms": self.scrape_ms(),
            "serve_mib": self.at_rest.serve_bytes.map(mib),
            "worker_mib": self.at_rest.worker_bytes.map(mib),
            "violations": self.violations,
            "goals": {
                "rebuild_s": { "goal": format!("<= {GOAL_S} of 250,000 orders"), "met": self.rebuild_s() <= GOAL_S },
                "first_taken_s": { "goal": "before all timers are back", "met": self.seen.first_taken < self.seen.whole },
            },
            "machine": self.machine,
            "versions": self.versions,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let shown = |mib: Option<f64>| mib.map_or_else(|| "?".to_owned(), |mib| mib.to_string());
        let grown = shown(self.reconciler_mib());
        let (serve, worker) = (shown(self.at_rest.serve_bytes.map(mib)), shown(self.at_rest.worker_bytes.map(mib)));
        let mut lines = vec![
            self.machine.to_text(),
            self.versions.to_text(),
            format!("{:>10}  open orders", self.orders),
            format!("{:>10}  timers put back", self.seen.timers),
            format!("{:>10}  s until the first job was taken", self.first_taken_s()),
            format!("{:>10}  s until all timers were back", self.rebuild_s()),
            format!("{:>10}  timers a second", self.timers_per_s()),
            format!("{grown:>10}  MiB that the worker grew by"),
            format!("{:>10}  s for a look at all timers after that", self.look_s()),
            format!("{:>10}  ms for the longest answer to a scrape", self.scrape_ms()),
            format!("{serve:>10}  MiB of serve"),
            format!("{worker:>10}  MiB of the worker"),
        ];
        lines.extend(self.violations.iter().map(|violation| format!("VIOLATION {violation}")));
        if self.violations.is_empty() {
            lines.push("No timer was lost, early or run twice.".to_owned());
        }
        lines.join("\n")
    }
}
