//! What the product is to reach, also beside row locks in the same run. Pure.

use serde_json::{Value, json};

use super::race::RaceTally;
use crate::bench::spread::{SamplePercentiles, round_to_digits, us_to_ms};

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

/// The goals of the gate: a winner about as quick as with row locks, losers much quicker, one UPDATE an order.
pub(super) fn compare_with_row_locks(own: &RaceTally, row_locks: &RaceTally) -> Vec<Goal> {
    let percentiles = |samples: &[i64]| SamplePercentiles::from_samples(samples.to_vec());
    let ratio = |own: i64, other: i64| round_to_digits(own as f64 / (other as f64).max(1.0), 2);
    let (winner, beside) = (percentiles(&own.winners_us), percentiles(&row_locks.winners_us));
    let (loser, lost_beside) = (percentiles(&own.losers_us), percentiles(&row_locks.losers_us));
    let refusal = us_to_ms(percentiles(&own.refusals_us).p50);
    let goal = |name, value, bound, is_strict| Goal { name, value, bound, is_strict };
    vec![
        goal("sql_updates_per_order", own.updates_per_order(), 1.05, false),
        goal("winner_p50_by_row_locks", ratio(winner.p50, beside.p50), 1.1, false),
        goal("winner_p99_by_row_locks", ratio(winner.p99, beside.p99), 1.2, false),
        goal("loser_p99_by_row_locks", ratio(loser.p99, lost_beside.p99), 0.5, true),
        goal("loser_head_to_answer_p50_ms", refusal, 1.0, true),
    ]
}
