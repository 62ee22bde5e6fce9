//! What was seen, as a table for people and as JSON.

use serde_json::{Value, json};

use super::{
    advice::{BurstAdvice, SteadyAdvice},
    creations::CreationTally,
    stage::{AREAS, THRESHOLD, WITH_BYPASS},
};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::{SamplePercentiles, us_to_ms},
};

const GOAL_P99_MS: f64 = 5.0;
const GOAL_PER_S: f64 = 20_000.0;

#[derive(Debug)]
pub(super) struct AdmissionReport {
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) lookup_ns: SamplePercentiles,
    /// Advice about areas in which no order waits.
    pub(super) with_room: SteadyAdvice,
    /// Advice about full areas; each answer names areas nearby.
    pub(super) full: SteadyAdvice,
    pub(super) creations: CreationTally,
    pub(super) burst: BurstAdvice,
}

impl AdmissionReport {
    /// Returns whether nothing was overshot, and each request was answered as its area stands.
    pub(super) fn is_good(&self) -> bool {
        self.full.unexpected == 0
            && self.with_room.unexpected == 0
            && self.creations.threshold_overshoot() == 0
            && self.creations.failed == 0
            && self.burst.answered == self.burst.requests as usize
    }

    pub(super) fn to_text(&self) -> String {
        let Self { lookup_ns, with_room, full, creations, burst, .. } = self;
        [
            format!("{}\n{}", self.machine.to_text(), self.versions.to_text()),
            format!("advice, areas with room: {}", describe_advice(with_room)),
            format!("advice, areas full, with areas nearby: {}", describe_advice(full)),
            format!("lookup among {AREAS} areas: p50 {} us, p99 {} us", ns_to_us(lookup_ns.p50), ns_to_us(lookup_ns.p99)),
            format!(
                "creations: {} tried, {} taken, {} failed, {}/s; most waiting {} of {THRESHOLD}, {} of {WITH_BYPASS} with \
                 bypass, overshoot {}",
                creations.tried,
                creations.taken,
                creations.failed,
                creations.per_s,
                creations.most_without_bypass,
                creations.most_with_bypass,
                creations.threshold_overshoot(),
            ),
            format!("burst: {} requests, {} answered as full, p99 {} ms", burst.requests, burst.answered, us_to_ms(burst.us.p99)),
        ]
        .join("\n")
    }

    pub(super) fn to_json(&self) -> Value {
        let Self { lookup_ns, with_room, full, creations, burst, .. } = self;
        let (per_s, p99_ms, overshoot) = (full.per_s.round(), us_to_ms(full.us.p99), creations.threshold_overshoot());
        json!({
            "checks_per_s": per_s,
            "p50_ms": us_to_ms(full.us.p50),
            "p99_ms": p99_ms,
            "unexpected": full.unexpected,
            "with_room": {
                "checks_per_s": with_room.per_s.round(),
                "p50_ms": us_to_ms(with_room.us.p50),
                "p99_ms": us_to_ms(with_room.us.p99),
                "unexpected": with_room.unexpected,
            },
            "overshoot": overshoot,
            "burst": {
                "requests": burst.requests,
                "answered": burst.answered,
                "p50_ms": us_to_ms(burst.us.p50),
                "p99_ms": us_to_ms(burst.us.p99),
                "max_ms": us_to_ms(burst.us.max),
            },
            "creations": {
                "tried": creations.tried,
                "taken": creations.taken,
                "refused": creations.refused,
                "failed": creations.failed,
                "per_s": creations.per_s,
                "most_waiting": { "without_bypass": creations.most_without_bypass, "with_bypass": creations.most_with_bypass },
            },
            "lookup_us": { "p50": ns_to_us(lookup_ns.p50), "p99": ns_to_us(lookup_ns.p99), "max": ns_to_us(lookup_ns.max) },
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

fn describe_advice(advice: &SteadyAdvice) -> String {
    let SteadyAdvice { per_s, unexpected, us } = advice;
    format!("{per_s:.0}/s, p50 {} ms, p99 {} ms, {unexpected} unexpected", us_to_ms(us.p50), us_to_ms(us.p99))
}

/// Nanoseconds as microseconds with two digits.
fn ns_to_us(ns: i64) -> f64 {
    (ns as f64 / 10.0).round() / 100.0
}
