//! What can be set about the provider, from the command line, in this process, or while it runs.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use clap::{Args, FromArgMatches};
use partner_sim::values::{DurationSpread, EventRate, merge_fields, parse_duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Shares of failures by their reason: "account_locked=0.05,limit_reached=0.01".
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
                return Err(format!("'{reason}' is no reason: expected 1 to 64 small letters, digits or '_'"));
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

/// Shares are of the starts or calls they speak of; what is left over succeeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderKnobs {
    /// Calls that callers may have open in all; more are counted, not refused
    #[arg(long, value_name = "N", default_value_t = 50, help_heading = "What callers are told")]
    pub max_open: u64,
    /// Calls that callers may have open at one server
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "What callers are told")]
    pub max_open_per_server: u64,

    /// Part of the starts that are PROCESSING at first
    #[arg(long, value_name = "P", default_value = "0", help_heading = "What happens to a transaction")]
    pub processing_rate: EventRate,
    /// From the start to SUKSES
    #[arg(long, value_name = "SPREAD", default_value = "500ms-2s", help_heading = "What happens to a transaction")]
    pub processing_duration: DurationSpread,
    /// Part of the starts that want an OTP
    #[arg(long, value_name = "P", default_value = "0", help_heading = "What happens to a transaction")]
    pub otp_rate: EventRate,
    /// The OTP that is right
    #[arg(long, value_name = "DIGITS", default_value = "123456", help_heading = "What happens to a transaction")]
    pub otp_code: String,
    /// How long an OTP is waited for; then the transaction is GAGAL, otp_expired
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration, help_heading = "What happens to a transaction")]
    #[serde(with = "humantime_serde")]
    pub otp_lifetime: Duration,
    /// Parts of the starts that are GAGAL, by reason: account_locked=0.05,limit_reached=0.01
    #[arg(long, value_name = "MIX", default_value = "", help_heading = "What happens to a transaction")]
    pub failures: FailureMix,
    /// Transactions an account can pay at first [default: any number]
    #[arg(long, value_name = "N", help_heading = "What happens to a transaction")]
    pub balance: Option<u64>,

    /// From call to answer
    #[arg(long, value_name = "SPREAD", default_value = "50ms", help_heading = "How calls fare")]
    pub latency: DurationSpread,
    /// Part of the calls answered 429, without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How calls fare")]
    pub error_429_rate: EventRate,
    /// What Retry-After says in a 429, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, help_heading = "How calls fare")]
    #[serde(with = "humantime_serde")]
    pub retry_after: Duration,
    /// Part of the calls answered 500, without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How calls fare")]
    pub error_500_rate: EventRate,
    /// Part of the calls that hang until Call-Until and are then cut, without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How calls fare")]
    pub hang_rate: EventRate,
    /// Part of the calls that are done, then cut
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How calls fare")]
    pub lost_answer_rate: EventRate,
    /// Part of the calls that are done and answered with no JSON
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How calls fare")]
    pub non_json_rate: EventRate,
    /// Part of the calls that are done and answered with a megabyte
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How calls fare")]
    pub oversized_rate: EventRate,
    /// Part of the calls that are done and answered with a status the contract does not know
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How calls fare")]
    pub unknown_status_rate: EventRate,

    /// Every call is answered 503 until this is false again.
    #[arg(skip)]
    pub down: bool,
    /// Every key is refused with 401 until this is false again.
    #[arg(skip)]
    pub reject_keys: bool,
}

impl Default for ProviderKnobs {
    /// As on an empty command line, so that defaults stand in one place.
    fn default() -> Self {
        let matches = Self::augment_args(clap::Command::new("knobs")).get_matches_from(["knobs"]);
        Self::from_arg_matches(&matches).expect("every knob has a default that parses; a test holds this")
    }
}

impl ProviderKnobs {
    /// These knobs with some of them changed.
    pub(super) fn merge_changes(&self, changes: Map<String, Value>) -> Result<Self, String> {
        let knobs = merge_fields(self, changes)?;
        knobs.check_values()?;
        Ok(knobs)
    }

    /// What no single value can say.
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
    fn the_defaults_pass_their_own_check_and_survive_json() {
        assert_eq!(ProviderKnobs::default().check_values(), Ok(()));
        assert_eq!(merge(json!({})).unwrap(), ProviderKnobs::default());
        let mix: FailureMix = "limit_reached=0.01, account_locked=0.05".parse().unwrap();
        assert_eq!(mix.to_string(), "account_locked=0.05,limit_reached=0.01");
    }

    #[test]
    fn nonsense_is_refused() {
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
