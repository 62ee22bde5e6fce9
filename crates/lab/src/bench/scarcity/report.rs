//! What was seen, for people or as one JSON object.

use serde_json::{Value, json};

use super::counts::WorkCounts;
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::{SamplePercentiles, round_to_digits, us_to_ms},
};

/// A driver who is free while orders wait has the next offer within this time, 99 of 100 times.
const MOST_WAIT_P99_MS: f64 = 1_000.0;

#[derive(Debug)]
pub(super) struct ScarcityReport {
    pub(super) orders: u32,
    pub(super) drivers: u32,
    pub(super) seconds: u32,
    /// Of the time measured; `waiting`: orders that waited on average.
    pub(super) work: WorkCounts,
    /// Trips that ended meanwhile.
    pub(super) trips: usize,
    /// From the end of a trip to the driver's next offer.
    pub(super) offer_waits: SamplePercentiles,
    /// Broken invariants, and processes that would not end.
    pub(super) problems: Vec<String>,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
}

impl ScarcityReport {
    /// For each order that waited and each minute.
    fn per_order_min(&self, count: i64) -> f64 {
        let order_minutes = self.work.waiting.max(1) as f64 * f64::from(self.seconds) / 60.0;
        round_to_digits(count as f64 / order_minutes, 4)
    }

    pub(super) fn find_violations(&self) -> Vec<String> {
        let mut violations = self.problems.clone();
        if self.work.waiting == 0 {
            violations.push("no order was left waiting: ask for more orders".to_owned());
        }
        if self.trips == 0 {
            violations.push("no trip ended: ask for a longer measurement".to_owned());
        }
        let p99_ms = us_to_ms(self.offer_waits.p99);
        if p99_ms >= MOST_WAIT_P99_MS {
            violations.push(format!("the next offer came after {p99_ms} ms (p99)"));
        }
        violations
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "orders": self.orders,
            "drivers": self.drivers,
            "seconds": self.seconds,
            "waiting": self.work.waiting,
            "trips": self.trips,
            "searches_per_order_min": self.per_order_min(self.work.searches),
            "statements_per_order_min": self.per_order_min(self.work.statements),
            "rows_per_order_min": self.per_order_min(self.work.rows),
            "offer_wait_ms": self.offer_waits.to_json_ms(),
            "violations": self.find_violations(),
            "machine": self.machine,
            "versions": self.versions,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let waits = self.offer_waits;
        let mut lines = vec![
            self.machine.to_text(),
            self.versions.to_text(),
            format!(
                "{} orders, {} drivers, {} s: {} orders waited, {} trips ended",
                self.orders, self.drivers, self.seconds, self.work.waiting, self.trips
            ),
            format!(
                "for each order and minute: {} searches, {} statements, {} rows",
                self.per_order_min(self.work.searches),
                self.per_order_min(self.work.statements),
                self.per_order_min(self.work.rows)
            ),
            format!(
                "from the end of a trip to the next offer: p50 {} ms, p99 {} ms, max {} ms",
                us_to_ms(waits.p50),
                us_to_ms(waits.p99),
                us_to_ms(waits.max)
            ),
        ];
        let violations = self.find_violations();
        lines.extend(violations.iter().map(|violation| format!("VIOLATION {violation}")));
        if violations.is_empty() {
            lines.push("Each driver had the next order in time.".to_owned());
        }
        lines.join("\n")
    }
}
