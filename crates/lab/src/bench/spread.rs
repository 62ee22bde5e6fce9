//! Minimum, median and maximum of rounds; percentiles of samples. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One figure over several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RoundSpread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl RoundSpread {
    /// Returns the spread of the rounds. All zero if there was no round.
    pub(crate) fn over_rounds(rounds: impl IntoIterator<Item = f64>) -> Self {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        rounds.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (rounds.first(), rounds.last()) else {
            return Self { min: 0.0, median: 0.0, max: 0.0 };
        };
        let middle = rounds.len() / 2;
        let median = if rounds.len().is_multiple_of(2) {
            f64::midpoint(rounds[middle - 1], rounds[middle])
        } else {
            rounds[middle]
        };
        Self { min: *min, median, max: *max }
    }
}

/// Percentiles of durations in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SamplePercentiles {
    pub(crate) p50: i64,
    pub(crate) p99: i64,
    pub(crate) max: i64,
}

impl SamplePercentiles {
    /// Computes percentiles by nearest rank, so each is a sample. All zero without samples.
    pub(crate) fn from_samples(mut samples: Vec<i64>) -> Self {
        samples.sort_unstable();
        let at = |percent: usize| {
            let rank = (samples.len() * percent).div_ceil(100);
            samples.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

impl SamplePercentiles {
    /// Returns `{"p50", "p99", "max"}` in milliseconds.
    pub(crate) fn to_json_ms(self) -> Value {
        json!({ "p50": us_to_ms(self.p50), "p99": us_to_ms(self.p99), "max": us_to_ms(self.max) })
    }
}

/// Converts microseconds to milliseconds with two decimals.
pub(crate) fn us_to_ms(us: i64) -> f64 {
    (us as f64 / 10.0).round() / 100.0
}

pub(crate) fn round_to_digits(number: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (number * scale).round() / scale
}

/// Converts a duration to microseconds.
pub(crate) fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_sampled_values() {
        assert_eq!(
            SamplePercentiles::from_samples((1..=200).rev().collect()),
            SamplePercentiles { p50: 100, p99: 198, max: 200 }
        );
        assert_eq!(SamplePercentiles::from_samples(vec![7]), SamplePercentiles { p50: 7, p99: 7, max: 7 });
        assert_eq!(SamplePercentiles::from_samples(vec![-3, 5, 1]), SamplePercentiles { p50: 1, p99: 5, max: 5 });
        assert_eq!(SamplePercentiles::from_samples(Vec::new()), SamplePercentiles::default());
    }
}
