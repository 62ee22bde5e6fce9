//! Settings of the provider. They can be changed on the command line, in this process, or at run time.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use clap::{Args, FromArgMatches};
use partner_sim::values::{DurationSpread, EventRate, merge_fields, parse_duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Shares of failures by reason: "account_locked=0.05,limit_reached=0.01".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FailureMix(BTreeMap<String, EventRate>);

impl FailureMix {
    pub(super) fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(reason, rate)| (reason.as_str(), f64::from(*rate)))
    }
}

impl FromStr for FailureMix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (reason, rate) = part.split_once('=').ok_or("expected reason=rate, such as account_locked=0.05")?;
            let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            if !(1..=64).contains(&reason.len()) || !reason.bytes().all(is_word) {
                return Err(format!(
                    "'{reason}' is not a valid reason: expected 1 to 64 lowercase letters, digits or '_'"
                ));
            }
            mix.insert(reason.to_owned(), rate.parse()?);
        }
        Ok(Self(mix))
    }
}

impl fmt::Display for FailureMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (reason, rate)) in self.0.iter().enumerate() {
            write!(f, "{}{reason}={}", if n > 0 { "," } else { "" }, f64::from(*rate))?;
        }
        Ok(())
    }
}

impl TryFrom<String> for FailureMix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<FailureMix> for String {
    fn from(mix: FailureMix) -> Self {
        mix.to_string()
    }
}

/// Settings of the provider. Each share applies to the starts or calls in its description; the rest succeeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderKnobs {
    /// Limit of open calls in total; the judge counts excess calls but does not refuse them
    #[arg(long, value_name = "N", default_value_t = 50, help_heading = "Limits for callers")]
    pub max_open: u64,
    /// Limit of open calls at one server
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Limits for callers")]
    pub max_open_per_server: u64,

    /// Share of starts that are PROCESSING at first
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Transactions")]
    pub processing_rate: EventRate,
    /// Time from the start to SUKSES
    #[arg(long, value_name = "SPREAD", default_value = "500ms-2s", help_heading = "Transactions")]
    pub processing_duration: DurationSpread,
    /// Share of starts that require an OTP
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Transactions")]
    pub otp_rate: EventRate,
    /// Correct OTP
    #[arg(long, value_name = "DIGITS", default_value = "123456", help_heading = "Transactions")]
    pub otp_code: String,
    /// Time that a transaction waits for its OTP; then it is GAGAL, otp_expired
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration, help_heading = "Transactions")]
    #[serde(with = "humantime_serde")]
    pub otp_lifetime: Duration,
    /// Shares of starts that are GAGAL, by reason: account_locked=0.05,limit_reached=0.01
    #[arg(long, value_name = "MIX", default_value = "", help_heading = "Transactions")]
    pub failures: FailureMix,
    /// Number of transactions that an account can pay at first [default: unlimited]
    #[arg(long, value_name = "N", help_heading = "Transactions")]
    pub balance: Option<u64>,

    /// Time from call to answer
    #[arg(long, value_name = "SPREAD", default_value = "50ms", help_heading = "Calls")]
    pub latency: DurationSpread,
    /// Share of calls answered 429 without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Calls")]
    pub error_429_rate: EventRate,
    /// Value of Retry-After in a 429, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, help_heading = "Calls")]
    #[serde(with = "humantime_serde")]
    pub retry_after: Duration,
    /// Share of calls answered 500 without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Calls")]
    pub error_500_rate: EventRate,
    /// Share of calls that hang until Call-Until and are then cut off without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Calls")]
    pub hang_rate: EventRate,
    /// Share of calls that take effect and are then cut off
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Calls")]
    pub lost_answer_rate: EventRate,
    /// Share of calls that take effect and are answered with invalid JSON
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Calls")]
    pub non_json_rate: EventRate,
    /// Share of calls that take effect and are answered with a megabyte
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Calls")]
    pub oversized_rate: EventRate,
    /// Share of calls that take effect and are answered with an unknown status
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Calls")]
    pub unknown_status_rate: EventRate,

    /// Whether every call is answered 503 until this is false again.
    #[arg(skip)]
    pub down: bool,
    /// Whether every key is refused with 401 until this is false again.
    #[arg(skip)]
    pub reject_keys: bool,
}

impl Default for ProviderKnobs {
    /// Returns the defaults of the command line, so that they are defined only once.
    fn default() -> Self {
        let matches = Self::augment_args(clap::Command::new("knobs")).get_matches_from(["knobs"]);
        Self::from_arg_matches(&matches).expect("every knob has a default that parses; a test checks this")
    }
}

impl ProviderKnobs {
    /// Returns these knobs with some values changed.
    pub(super) fn merge_changes(&self, changes: Map<String, Value>) -> Result<Self, String> {
        let knobs = merge_fields(self, changes)?;
        knobs.check_values()?;
        Ok(knobs)
    }

    /// Checks the knobs that depend on each other, and the bounds that their types do not have.
    pub(super) fn check_values(&self) -> Result<(), String> {
        let fates: f64 = f64::from(self.processing_rate)
            + f64::from(self.otp_rate)
            + self.failures.shares().map(|(_, share)| share).sum::<f64>();
        let faults: f64 = self.fault_rates().map(f64::from).into_iter().sum();
        for (what, total) in [("processing, otp and failures", fates), ("the faults of calls", faults)] {
            if total > 1.0 + 1e-9 {
                return Err(format!("the rates of {what} are {total} together; they must not exceed 1"));
            }
        }
        if self.max_open == 0 || self.max_open_per_server == 0 {
            return Err("max_open and max_open_per_server must be above 0".to_owned());
        }
        if self.otp_code.is_empty() {
            return Err("otp_code must not be empty".to_owned());
        }
        Ok(())
    }

    pub(super) fn fault_rates(&self) -> [EventRate; 7] {
        [
            self.error_429_rate,
            self.error_500_rate,
            self.hang_rate,
            self.lost_answer_rate,
            self.non_json_rate,
            self.oversized_rate,
            self.unknown_status_rate,
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merge(changes: Value) -> Result<ProviderKnobs, String> {
        let Value::Object(changes) = changes else { panic!("{changes}") };
        ProviderKnobs::default().merge_changes(changes)
    }

    #[test]
    fn default_knobs_are_valid_and_survive_json() {
        assert_eq!(ProviderKnobs::default().check_values(), Ok(()));
        assert_eq!(merge(json!({})).unwrap(), ProviderKnobs::default());
        let mix: FailureMix = "limit_reached=0.01, account_locked=0.05".parse().unwrap();
        assert_eq!(mix.to_string(), "account_locked=0.05,limit_reached=0.01");
    }

    #[test]
    fn invalid_values_are_refused() {
        for bad in [
            json!({ "latncy": "3s" }),
            json!({ "otp_rate": 2 }),
            json!({ "otp_rate": 0.6, "failures": "x=0.6" }),
            json!({ "hang_rate": 0.6, "error_500_rate": 0.6 }),
            json!({ "failures": "Bad Word=0.1" }),
            json!({ "failures": "x" }),
            json!({ "max_open": 0 }),
            json!({ "max_open_per_server": 0 }),
            json!({ "otp_code": "" }),
        ] {
            assert!(merge(bad.clone()).is_err(), "{bad}");
        }
    }
}
