//! What was seen, as a table for people and as JSON.

use serde_json::{Value, json};

use super::{
    advice::{Burst, Steady},
    creations::Creations,
    stage::{AREAS, THRESHOLD, WITH_BYPASS},
};
use crate::bench::{
    machine::{Machine, Versions},
    spread::{Percentiles, ms},
};

const GOAL_P99_MS: f64 = 5.0;
const GOAL_PER_S: f64 = 20_000.0;

#[derive(Debug)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) versions: Versions,
    pub(super) lookup_ns: Percentiles,
    pub(super) advice: Steady,
    pub(super) creations: Creations,
    pub(super) burst: Burst,
}

impl Report {
    /// Nothing was overshot, nothing left without an answer.
    pub(super) fn is_good(&self) -> bool {
        self.creations.overshoot() == 0
            && self.creations.failed == 0
            && self.burst.answered == self.burst.requests as usize
    }

    pub(super) fn text(&self) -> String {
        let Self { lookup_ns, advice, creations, burst, .. } = self;
        [
            format!("{}\n{}", self.machine.text(), self.versions.text()),
            format!("advice: {:.0}/s, p50 {} ms, p99 {} ms", advice.per_s, ms(advice.us.p50), ms(advice.us.p99)),
            format!("lookup among {AREAS} areas: p50 {} us, p99 {} us", us(lookup_ns.p50), us(lookup_ns.p99)),
            format!(
                "creations: {} tried, {} taken, {} failed, {}/s; most waiting {} of {THRESHOLD}, {} of {WITH_BYPASS} with \
                 bypass, overshoot {}",
                creations.tried,
                creations.taken,
                creations.failed,
                creations.per_s,
                creations.most_without_bypass,
                creations.most_with_bypass,
                creations.overshoot(),
            ),
            format!("burst: {} requests, {} answered, p99 {} ms", burst.requests, burst.answered, ms(burst.us.p99)),
        ]
        .join("\n")
    }

    pub(super) fn json(&self) -> Value {
        let Self { lookup_ns, advice, creations, burst, .. } = self;
        let (per_s, p99_ms, overshoot) = (advice.per_s.round(), ms(advice.us.p99), creations.overshoot());
        json!({
            "checks_per_s": per_s,
            "p50_ms": ms(advice.us.p50),
            "p99_ms": p99_ms,
            "overshoot": overshoot,
            "burst": {
                "requests": burst.requests,
                "answered": burst.answered,
                "p50_ms": ms(burst.us.p50),
                "p99_ms": ms(burst.us.p99),
                "max_ms": ms(burst.us.max),
            },
            "creations": {
                "tried": creations.tried,
                "taken": creations.taken,
                "refused": creations.refused,
                "failed": creations.failed,
                "per_s": creations.per_s,
                "most_waiting": { "without_bypass": creations.most_without_bypass, "with_bypass": creations.most_with_bypass },
            },
            "lookup_us": { "p50": us(lookup_ns.p50), "p99": us(lookup_ns.p99), "max": us(lookup_ns.max) },
            "goals": {
                "p99_ms": { "goal": format!("<= {GOAL_P99_MS}"), "met": p99_ms <= GOAL_P99_MS },
                "overshoot": { "goal": "0", "met": overshoot == 0 },
                "checks_per_s": { "goal": format!("about {GOAL_PER_S}"), "met": per_s >= GOAL_PER_S },
            },
            "machine": self.machine,
            "versions": self.versions,
        })
    }
}

/// Nanoseconds as microseconds with two digits.
fn us(ns: i64) -> f64 {
    (ns as f64 / 10.0).round() / 100.0
}
