//! Settings of a binding, with bounds and defaults. The defaults come from the requirement document.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

/// First pause before the provider is asked again.
const FIRST_ASK_MS: u32 = 200;
const LONGEST_ASK_MS: u32 = 10_000;
const DAY_MS: u32 = 24 * 3600 * 1000;

/// Action when a wait times out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutPolicy {
    Continue,
    Stop,
}

/// Start of the interval to the next cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalFrom {
    /// The end of a cycle: the binding pauses for an interval between two cycles.
    End,
    /// The due time of a cycle: one cycle is due per interval. A cycle that takes longer is followed by the next one
    /// immediately, and missed cycles are not repeated.
    Begin,
}

/// Range of milliseconds from `least` to `most`, drawn uniformly. Written `[300, 800]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct MillisRange {
    pub least: u32,
    pub most: u32,
}

impl From<(u32, u32)> for MillisRange {
    fn from((least, most): (u32, u32)) -> Self {
        Self { least, most }
    }
}

impl From<MillisRange> for (u32, u32) {
    fn from(range: MillisRange) -> Self {
        (range.least, range.most)
    }
}

impl MillisRange {
    pub fn least_delta(self) -> TimeDelta {
        TimeDelta::milliseconds(i64::from(self.least))
    }

    /// Returns a duration of the range; `luck` is in 0..1.
    pub fn draw_delta(self, luck: f64) -> TimeDelta {
        let span = f64::from(self.most.saturating_sub(self.least));
        // At most the span, which fits into a u32.
        TimeDelta::milliseconds(i64::from(self.least) + (span * luck.clamp(0.0, 1.0)) as i64)
    }
}

/// Settings of one binding. Absent fields take their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BindingConfig {
    /// Time between a transaction and the start of the next one.
    pub interval_ms: MillisRange,
    /// Start of `interval_ms`.
    pub interval_from: IntervalFrom,
    /// Number of quick status requests about a PROCESSING transaction, before the pauses grow.
    pub max_retry_status: u32,
    /// Time between a failed transaction and the start of the next one.
    pub cooldown_on_error_ms: MillisRange,
    pub call_timeout_ms: u32,
    /// Maximum time that a transaction stays open, without waits for OTPs.
    pub processing_timeout_ms: u32,
    pub on_processing_timeout: TimeoutPolicy,
    pub otp_timeout_ms: u32,
    pub on_otp_timeout: TimeoutPolicy,
    /// Maximum number of OTPs per transaction.
    pub otp_attempts: u32,
    /// Number of consecutive failed transactions after which the binding stops.
    pub max_failures: u32,
}

impl Default for BindingConfig {
    fn default() -> Self {
        Self {
            interval_ms: MillisRange { least: 300, most: 800 },
            interval_from: IntervalFrom::End,
            max_retry_status: 3,
            cooldown_on_error_ms: MillisRange { least: 1_000, most: 3_000 },
            call_timeout_ms: 5_000,
            processing_timeout_ms: 120_000,
            on_processing_timeout: TimeoutPolicy::Continue,
            otp_timeout_ms: 120_000,
            on_otp_timeout: TimeoutPolicy::Continue,
            otp_attempts: 3,
            max_failures: 10,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBindingConfig {
    #[error("{field} is {value}: expected {least} to {most}")]
    OutOfBounds { field: &'static str, value: u32, least: u32, most: u32 },
    #[error("{field} goes from {least} to {most}: write the smaller number first")]
    Reversed { field: &'static str, least: u32, most: u32 },
}

impl BindingConfig {
    /// Checks every bound. The error names the first invalid field.
    pub fn check_bounds(&self) -> Result<(), InvalidBindingConfig> {
        let numbers = [
            ("interval_ms", self.interval_ms.least, 0, DAY_MS),
            ("interval_ms", self.interval_ms.most, 1, DAY_MS),
            ("max_retry_status", self.max_retry_status, 1, 100),
            ("cooldown_on_error_ms", self.cooldown_on_error_ms.least, 0, DAY_MS),
            ("cooldown_on_error_ms", self.cooldown_on_error_ms.most, 1, DAY_MS),
            ("call_timeout_ms", self.call_timeout_ms, 100, 60_000),
            ("processing_timeout_ms", self.processing_timeout_ms, 1_000, DAY_MS),
            ("otp_timeout_ms", self.otp_timeout_ms, 1_000, DAY_MS),
            ("otp_attempts", self.otp_attempts, 1, 10),
            ("max_failures", self.max_failures, 1, 10_000),
        ];
        for (field, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                return Err(InvalidBindingConfig::OutOfBounds { field, value, least, most });
            }
        }
        for (field, range) in [("interval_ms", self.interval_ms), ("cooldown_on_error_ms", self.cooldown_on_error_ms)] {
            if range.least > range.most {
                return Err(InvalidBindingConfig::Reversed { field, least: range.least, most: range.most });
            }
        }
        Ok(())
    }

    /// Returns the pause before status request number `ask` (from 1). The first pauses are short, then they double.
    pub fn ask_pause(&self, ask: i32) -> TimeDelta {
        let slow = ask.unsigned_abs().saturating_sub(self.max_retry_status).min(16);
        TimeDelta::milliseconds(i64::from((FIRST_ASK_MS << slow).min(LONGEST_ASK_MS)))
    }

    pub(super) fn call_timeout(&self) -> TimeDelta {
        TimeDelta::milliseconds(i64::from(self.call_timeout_ms))
    }

    pub(super) fn processing_timeout(&self) -> TimeDelta {
        TimeDelta::milliseconds(i64::from(self.processing_timeout_ms))
    }

    pub(super) fn otp_timeout(&self) -> TimeDelta {
        TimeDelta::milliseconds(i64::from(self.otp_timeout_ms))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_match_the_requirement_and_bounds() {
        let config: BindingConfig = serde_json::from_value(json!({})).unwrap();
        assert_eq!(config, BindingConfig::default());
        assert_eq!(config.check_bounds(), Ok(()));
        let json = serde_json::to_value(&config).unwrap();
        assert_eq!((&json["interval_ms"], &json["cooldown_on_error_ms"]), (&json!([300, 800]), &json!([1000, 3000])));
    }

    #[test]
    fn settings_out_of_bounds_are_named() {
        let said = |value: serde_json::Value| {
            let config: BindingConfig = serde_json::from_value(value).unwrap();
            config.check_bounds().unwrap_err().to_string()
        };
        assert_eq!(said(json!({ "max_failures": 0 })), "max_failures is 0: expected 1 to 10000");
        assert_eq!(said(json!({ "interval_ms": [0, 0] })), "interval_ms is 0: expected 1 to 86400000");
        assert_eq!(
            said(json!({ "interval_ms": [800, 300] })),
            "interval_ms goes from 800 to 300: write the smaller number first"
        );
        for bad in [json!({ "otp_attempts": 0 }), json!({ "call_timeout_ms": 99 }), json!({ "max_retry_status": 101 })]
        {
            assert!(serde_json::from_value::<BindingConfig>(bad.clone()).unwrap().check_bounds().is_err(), "{bad}");
        }
        for bad in [
            json!({ "intervalms": 1 }),
            json!({ "otp_attempts": -1 }),
            json!({ "on_otp_timeout": "wait" }),
            json!({ "interval_from": "start" }),
        ] {
            assert!(serde_json::from_value::<BindingConfig>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn status_requests_start_fast_then_slow() {
        let config = BindingConfig::default();
        let pauses: Vec<_> = (1..=10).map(|ask| config.ask_pause(ask).num_milliseconds()).collect();
        assert_eq!(pauses, [200, 200, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(config.ask_pause(i32::MAX).num_milliseconds(), 10_000);
    }

    #[test]
    fn range_is_drawn_uniformly() {
        let range = MillisRange { least: 300, most: 800 };
        assert_eq!([0.0, 0.5, 0.999_999].map(|luck| range.draw_delta(luck).num_milliseconds()), [300, 550, 799]);
    }
}
