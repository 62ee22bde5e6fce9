//! Bounds of the figures. Pure.

use serde_json::{Value, json};

use super::race::RaceTally;
use crate::bench::spread::{SamplePercentiles, us_to_ms};

/// A figure and its bound.
#[derive(Debug)]
pub(super) struct Goal {
    name: &'static str,
    value: f64,
    bound: f64,
    /// The bound itself is too much.
    is_strict: bool,
}

impl Goal {
    fn is_met(&self) -> bool {
        if self.is_strict { self.value < self.bound } else { self.value <= self.bound }
    }

    fn bound_text(&self) -> String {
        format!("{} {}", if self.is_strict { "<" } else { "<=" }, self.bound)
    }

    /// A member of an object of goals.
    pub(super) fn to_json_entry(&self) -> (String, Value) {
        (self.name.to_owned(), json!({ "goal": self.bound_text(), "value": self.value, "met": self.is_met() }))
    }

    pub(super) fn to_text(&self) -> String {
        let met = if self.is_met() { "met" } else { "NOT met" };
        format!("{}: {} (goal {}, {met})", self.name, self.value, self.bound_text())
    }
}

/// Goals of the gate: one UPDATE an order, and refusals within a millisecond.
pub(super) fn goals_of(told: &RaceTally) -> [Goal; 2] {
    let refusal = us_to_ms(SamplePercentiles::from_samples(told.refusals_us.clone()).p50);
    let goal = |name, value, bound, is_strict| Goal { name, value, bound, is_strict };
    [
        goal("sql_updates_per_order", told.updates_per_order(), 1.05, false),
        goal("loser_head_to_answer_p50_ms", refusal, 1.0, true),
    ]
}
