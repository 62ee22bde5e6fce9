//! Settings of the partner. They can be changed on the command line, in this process, or at run time.

use std::time::Duration;

use clap::{Args, FromArgMatches};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::values::{DurationSpread, EventRate, OutageWindow, merge_fields, parse_duration};

/// Effect of an outage on callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum OutageKind {
    /// Connections are refused, and open ones closed.
    Refused,
    /// Every request is answered 503.
    Unavailable,
}

/// Settings of the partner. Durations are in simulated time, which the speed divides, unless their description says
/// otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, deny_unknown_fields)]
pub struct PartnerKnobs {
    /// Time from booking to job id; mixtures are possible: "50% 1s-2s, 50% 10m-15m"
    #[arg(long, value_name = "SPREAD", default_value = "500ms-2s", help_heading = "Bookings")]
    pub job_id_delay: DurationSpread,
    /// Share of bookings that get a job id
    #[arg(long, value_name = "P", default_value = "1", help_heading = "Bookings")]
    pub job_id_rate: EventRate,
    /// Share of bookings with a job id that find a driver
    #[arg(long, value_name = "P", default_value = "0.9", help_heading = "Bookings")]
    pub driver_rate: EventRate,
    /// Time from job id to driver
    #[arg(long, value_name = "SPREAD", default_value = "5s-60s", help_heading = "Bookings")]
    pub driver_delay: DurationSpread,
    /// Time from job id to the end of a search without a driver
    #[arg(long, value_name = "SPREAD", default_value = "60s-180s", help_heading = "Bookings")]
    pub no_driver_delay: DurationSpread,
    /// Share of drivers who cancel before the pickup
    #[arg(long, value_name = "P", default_value = "0.03", help_heading = "Bookings")]
    pub driver_cancel_rate: EventRate,
    /// Time from driver to pickup
    #[arg(long, value_name = "SPREAD", default_value = "1m-6m", help_heading = "Bookings")]
    pub pickup_delay: DurationSpread,
    /// Time from pickup to completion
    #[arg(long, value_name = "SPREAD", default_value = "5m-20m", help_heading = "Bookings")]
    pub trip_duration: DurationSpread,

    /// URL for callbacks; without it no callbacks are sent
    #[arg(long, value_name = "URL", value_parser = http_url, help_heading = "Callbacks")]
    pub callback_url: Option<String>,
    /// Share of job-id callbacks that are sent
    #[arg(long, value_name = "P", default_value = "0.95", help_heading = "Callbacks")]
    pub job_id_callback_rate: EventRate,
    /// Share of other callbacks that are sent
    #[arg(long, value_name = "P", default_value = "0.95", help_heading = "Callbacks")]
    pub callback_rate: EventRate,
    /// Time from an event to its callback
    #[arg(long, value_name = "SPREAD", default_value = "95% 200ms-1s, 5% 1s-3s", help_heading = "Callbacks")]
    pub callback_delay: DurationSpread,
    /// Share of callbacks that are sent again with the same event id after delivery
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub doubled_callback_rate: EventRate,
    /// Share of callbacks preceded by a forged one: same event id, other job id, bad signature
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub bad_signature_rate: EventRate,
    /// Share of callbacks preceded by one about an unknown booking
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub unknown_booking_rate: EventRate,
    /// Share of job-id callbacks followed by one with the job id of another booking
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub foreign_job_id_rate: EventRate,

    /// Time from request to answer, in real time
    #[arg(long, value_name = "SPREAD", default_value = "0s", help_heading = "Requests")]
    pub latency: DurationSpread,
    /// Share of requests answered 500 without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Requests")]
    pub error_500_rate: EventRate,
    /// Share of requests answered 503 without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Requests")]
    pub error_503_rate: EventRate,
    /// Share of requests that hang and are then cut off without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Requests")]
    pub hang_rate: EventRate,
    /// Time that hanging requests hang, in real time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration, help_heading = "Requests")]
    #[serde(with = "humantime_serde")]
    pub hang_duration: Duration,
    /// Share of requests whose connection is reset without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Requests")]
    pub reset_rate: EventRate,
    /// Share of bookings and cancels that take effect but get no answer
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Requests")]
    pub lost_answer_rate: EventRate,
    /// Limit of requests per second of real time; above it the answer is 429 [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Requests")]
    pub rate_limit: Option<f64>,
    /// Number of requests that may arrive at once within the limit [default: the limit of one second]
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Requests")]
    pub rate_burst: Option<f64>,
    /// Value of Retry-After in a 429
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, help_heading = "Requests")]
    #[serde(with = "humantime_serde")]
    pub retry_after: Duration,
    /// Outage, as start and length: 60s+10m; repeatable
    #[arg(long = "outage", value_name = "WINDOW", help_heading = "Requests")]
    pub outages: Vec<OutageWindow>,
    /// Effect of an outage
    #[arg(long, value_name = "KIND", default_value = "refused", help_heading = "Requests")]
    pub outage_kind: OutageKind,
    /// Period in which every key is refused with 401: 60s+10m; repeatable
    #[arg(long = "auth-failure", value_name = "WINDOW", help_heading = "Requests")]
    pub auth_failures: Vec<OutageWindow>,

    /// Whether an outage is in progress, which lasts until this is set to false.
    #[arg(skip)]
    pub down: bool,
    /// Whether every key is refused, until this is set to false.
    #[arg(skip)]
    pub reject_keys: bool,
}

impl Default for PartnerKnobs {
    /// Returns the defaults of the command line, so that they are defined only once.
    fn default() -> Self {
        let matches = Self::augment_args(clap::Command::new("knobs")).get_matches_from(["knobs"]);
        Self::from_arg_matches(&matches).expect("every knob has a default that parses; a test checks this")
    }
}

impl PartnerKnobs {
    /// Returns these knobs with some values changed.
    pub(super) fn merge_changes(&self, changes: Map<String, Value>) -> Result<Self, String> {
        let knobs = merge_fields(self, changes)?;
        knobs.check_values()?;
        Ok(knobs)
    }

    /// Checks the knobs that depend on each other, and the bounds that their types do not have.
    pub(super) fn check_values(&self) -> Result<(), String> {
        let faults = [self.error_500_rate, self.error_503_rate, self.hang_rate, self.reset_rate, self.lost_answer_rate];
        let total: f64 = faults.into_iter().map(f64::from).sum();
        if total > 1.0 + 1e-9 {
            return Err(format!(
                "the rates of 500, 503, hanging, reset and lost answers are {total} together; they must not exceed 1"
            ));
        }
        if ![self.rate_limit, self.rate_burst].into_iter().flatten().all(|n| n > 0.0 && n.is_finite()) {
            return Err("rate_limit and rate_burst must be above 0; null means no limit".to_owned());
        }
        if let Some(url) = &self.callback_url {
            http_url(url)?;
        }
        if self.hang_duration > Duration::from_secs(3600) {
            return Err("hang_duration must not exceed an hour".to_owned());
        }
        Ok(())
    }

    /// Returns the outage at this simulated time.
    pub(super) fn outage_at(&self, at: Duration) -> Option<OutageKind> {
        (self.down || self.outages.iter().any(|window| window.contains(at))).then_some(self.outage_kind)
    }

    /// Returns the start or end of the next planned outage.
    pub(super) fn next_outage_edge(&self, at: Duration) -> Option<Duration> {
        self.outages.iter().flat_map(OutageWindow::outage_edges).filter(|edge| *edge > at).min()
    }

    pub(super) fn keys_fail(&self, at: Duration) -> bool {
        self.reject_keys || self.auth_failures.iter().any(|window| window.contains(at))
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0).ok_or_else(|| "expected a number above 0".to_owned())
}

fn http_url(text: &str) -> Result<String, String> {
    match reqwest::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(text.to_owned()),
        _ => Err(format!("'{text}' is not an http:// or https:// address")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merge(changes: Value) -> Result<PartnerKnobs, String> {
        let Value::Object(changes) = changes else { panic!("{changes}") };
        PartnerKnobs::default().merge_changes(changes)
    }

    #[test]
    fn default_knobs_are_valid_and_survive_json() {
        assert_eq!(PartnerKnobs::default().check_values(), Ok(()));
        assert_eq!(merge(json!({})).unwrap(), PartnerKnobs::default());
    }

    #[test]
    fn merge_changes_only_named_knobs() {
        let knobs = merge(json!({ "down": true, "job_id_delay": "3s", "outages": ["60s+10m"] })).unwrap();
        let wanted = PartnerKnobs {
            down: true,
            job_id_delay: "3s".parse().unwrap(),
            outages: vec!["60s+10m".parse().unwrap()],
            ..PartnerKnobs::default()
        };
        assert_eq!(knobs, wanted);
    }

    #[test]
    fn invalid_values_are_refused() {
        for bad in [
            json!({ "jobid_delay": "3s" }),
            json!({ "driver_rate": 2 }),
            json!({ "hang_rate": 0.6, "reset_rate": 0.6 }),
            json!({ "rate_limit": 0 }),
            json!({ "callback_url": "ftp://x" }),
            json!({ "hang_duration": "2h" }),
            json!({ "outages": ["now"] }),
        ] {
            assert!(merge(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn outages_start_and_end_as_planned() {
        let knobs = merge(json!({ "outages": ["60s+10s", "100s+10s"], "outage_kind": "unavailable" })).unwrap();
        let secs = Duration::from_secs;
        assert_eq!(knobs.outage_at(secs(59)), None);
        assert_eq!(knobs.outage_at(secs(65)), Some(OutageKind::Unavailable));
        let edges = [0, 60, 70, 100, 110].map(|at| knobs.next_outage_edge(secs(at)).map(|edge| edge.as_secs()));
        assert_eq!(edges, [Some(60), Some(70), Some(100), Some(110), None]);
        assert!(PartnerKnobs { down: true, ..knobs }.outage_at(secs(0)).is_some());
    }
}
