//! What can be set about the partner, from the command line, in this process, or while it runs.

use std::time::Duration;

use clap::{Args, FromArgMatches};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::values::{DurationSpread, EventRate, OutageWindow, merge_fields, parse_duration};

/// How an outage looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum OutageKind {
    /// Connections are refused, and running ones cut.
    Refused,
    /// Every request is answered 503.
    Unavailable,
}

/// Durations are in the order's time, which the speed divides, unless they say that they are not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, deny_unknown_fields)]
pub struct PartnerKnobs {
    /// From booking to job id; mixtures work: "50% 1s-2s, 50% 10m-15m"
    #[arg(long, value_name = "SPREAD", default_value = "500ms-2s", help_heading = "What happens to a booking")]
    pub job_id_delay: DurationSpread,
    /// Part of the bookings that ever get a job id
    #[arg(long, value_name = "P", default_value = "1", help_heading = "What happens to a booking")]
    pub job_id_rate: EventRate,
    /// Part of the bookings with a job id that find a driver
    #[arg(long, value_name = "P", default_value = "0.9", help_heading = "What happens to a booking")]
    pub driver_rate: EventRate,
    /// From job id to driver
    #[arg(long, value_name = "SPREAD", default_value = "5s-60s", help_heading = "What happens to a booking")]
    pub driver_delay: DurationSpread,
    /// From job id to the end of a search that finds no driver
    #[arg(long, value_name = "SPREAD", default_value = "60s-180s", help_heading = "What happens to a booking")]
    pub no_driver_delay: DurationSpread,
    /// Part of the drivers who give the ride back before the pickup
    #[arg(long, value_name = "P", default_value = "0.03", help_heading = "What happens to a booking")]
    pub driver_cancel_rate: EventRate,
    /// From driver to pickup
    #[arg(long, value_name = "SPREAD", default_value = "1m-6m", help_heading = "What happens to a booking")]
    pub pickup_delay: DurationSpread,
    /// From pickup to completion
    #[arg(long, value_name = "SPREAD", default_value = "5m-20m", help_heading = "What happens to a booking")]
    pub trip_duration: DurationSpread,

    /// Where callbacks go; without it there are none
    #[arg(long, value_name = "URL", value_parser = http_url, help_heading = "Callbacks")]
    pub callback_url: Option<String>,
    /// Part of the callbacks with a job id that are sent at all
    #[arg(long, value_name = "P", default_value = "0.95", help_heading = "Callbacks")]
    pub job_id_callback_rate: EventRate,
    /// Part of the other callbacks that are sent at all
    #[arg(long, value_name = "P", default_value = "0.95", help_heading = "Callbacks")]
    pub callback_rate: EventRate,
    /// From an event to its callback
    #[arg(long, value_name = "SPREAD", default_value = "95% 200ms-1s, 5% 1s-3s", help_heading = "Callbacks")]
    pub callback_delay: DurationSpread,
    /// Part of the callbacks that are sent again, with the same event id, after they arrived
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub doubled_callback_rate: EventRate,
    /// Part of the callbacks before which a forged one comes: same event id, other job id, bad signature
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub bad_signature_rate: EventRate,
    /// Part of the callbacks before which one about an unknown booking comes
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub unknown_booking_rate: EventRate,
    /// Part of the callbacks with a job id after which one with the job id of another booking comes
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Callbacks")]
    pub foreign_job_id_rate: EventRate,

    /// From request to answer; not divided by the speed
    #[arg(long, value_name = "SPREAD", default_value = "0s", help_heading = "How requests fare")]
    pub latency: DurationSpread,
    /// Part of the requests answered 500, without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How requests fare")]
    pub error_500_rate: EventRate,
    /// Part of the requests answered 503, without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How requests fare")]
    pub error_503_rate: EventRate,
    /// Part of the requests that hang, then are cut, without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How requests fare")]
    pub hang_rate: EventRate,
    /// How long they hang; not divided by the speed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration, help_heading = "How requests fare")]
    #[serde(with = "humantime_serde")]
    pub hang_duration: Duration,
    /// Part of the requests whose connection is reset, without effect
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How requests fare")]
    pub reset_rate: EventRate,
    /// Part of the bookings and cancels that are made but never answered
    #[arg(long, value_name = "P", default_value = "0", help_heading = "How requests fare")]
    pub lost_answer_rate: EventRate,
    /// Requests per second of real time, above which the answer is 429 [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "How requests fare")]
    pub rate_limit: Option<f64>,
    /// Requests that may come at once within the limit [default: one second's]
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "How requests fare")]
    pub rate_burst: Option<f64>,
    /// What Retry-After says in a 429
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, help_heading = "How requests fare")]
    #[serde(with = "humantime_serde")]
    pub retry_after: Duration,
    /// An outage, by begin and length: 60s+10m; repeatable
    #[arg(long = "outage", value_name = "WINDOW", help_heading = "How requests fare")]
    pub outages: Vec<OutageWindow>,
    /// What outages look like
    #[arg(long, value_name = "KIND", default_value = "refused", help_heading = "How requests fare")]
    pub outage_kind: OutageKind,
    /// A time in which every key is refused with 401: 60s+10m; repeatable
    #[arg(long = "auth-failure", value_name = "WINDOW", help_heading = "How requests fare")]
    pub auth_failures: Vec<OutageWindow>,

    /// An outage until this is false again.
    #[arg(skip)]
    pub down: bool,
    /// Every key is refused until this is false again.
    #[arg(skip)]
    pub reject_keys: bool,
}

impl Default for PartnerKnobs {
    /// As on an empty command line, so that defaults stand in one place.
    fn default() -> Self {
        let matches = Self::augment_args(clap::Command::new("knobs")).get_matches_from(["knobs"]);
        Self::from_arg_matches(&matches).expect("every knob has a default that parses; a test holds this")
    }
}

impl PartnerKnobs {
    /// These knobs with some of them changed.
    pub(super) fn merge_changes(&self, changes: Map<String, Value>) -> Result<Self, String> {
        let knobs = merge_fields(self, changes)?;
        knobs.check_values()?;
        Ok(knobs)
    }

    /// What no single value can say.
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

    /// The outage at this time of the simulation, if there is one.
    pub(super) fn outage_at(&self, at: Duration) -> Option<OutageKind> {
        (self.down || self.outages.iter().any(|window| window.contains(at))).then_some(self.outage_kind)
    }

    /// When the next outage begins or ends by itself.
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
        _ => Err(format!("'{text}' is no http:// or https:// address")),
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
    fn the_defaults_pass_their_own_check_and_survive_json() {
        assert_eq!(PartnerKnobs::default().check_values(), Ok(()));
        assert_eq!(merge(json!({})).unwrap(), PartnerKnobs::default());
    }

    #[test]
    fn a_merge_changes_what_it_names_and_nothing_else() {
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
    fn nonsense_is_refused() {
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
    fn outages_come_and_go() {
        let knobs = merge(json!({ "outages": ["60s+10s", "100s+10s"], "outage_kind": "unavailable" })).unwrap();
        let secs = Duration::from_secs;
        assert_eq!(knobs.outage_at(secs(59)), None);
        assert_eq!(knobs.outage_at(secs(65)), Some(OutageKind::Unavailable));
        let edges = [0, 60, 70, 100, 110].map(|at| knobs.next_outage_edge(secs(at)).map(|edge| edge.as_secs()));
        assert_eq!(edges, [Some(60), Some(70), Some(100), Some(110), None]);
        assert!(PartnerKnobs { down: true, ..knobs }.outage_at(secs(0)).is_some());
    }
}
