//! `dispatchq area advise`: proposes thresholds by time of day from the area's history, and tests them on later hours.
//! It changes nothing; a person sets the thresholds.

#[cfg(feature = "lab")]
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use chrono::NaiveDateTime;
use humantime::format_duration;
#[cfg(feature = "lab")]
use model::area::geofence::Geofence;
use model::{
    bounds::{DAY, SECOND},
    duration::parse_within,
};
use serde::Deserialize;
#[cfg(feature = "lab")]
use serde_json::Value;
use serde_json::json;

use super::area_path;
#[cfg(feature = "lab")]
use super::dispatcher_path;
#[cfg(feature = "lab")]
use crate::cli::remote::fields::list_items;
use crate::cli::{output, remote::ApiClient};
#[cfg(feature = "lab")]
use areas::import;
#[cfg(feature = "lab")]
use lab::replay::hours::{self as history, RideHistory, RideZones};
use model::{
    admission::{
        advise::{BackTest, ObservedHour, RefusalTest, judge_thresholds, propose_thresholds, try_on_requests},
        schedule::ThresholdSchedule,
    },
    ids::{AreaId, ServiceType},
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct AreaAdviseArgs {
    area: AreaId,
    #[arg(long)]
    service_type: ServiceType,
    /// Maximum time that the last order of a full area may wait for a driver
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_within(SECOND..=DAY * 7))]
    wait: Duration,
    /// Number of days from which the proposal is computed; they precede the days of --judge-days
    #[arg(long, default_value_t = 28, value_parser = clap::value_parser!(u16).range(1..=366))]
    days: u16,
    /// Number of days on which the proposal is tested, up to now
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=366))]
    judge_days: u16,
    /// Compute the proposal from a month of TLC trip records instead; without --zones all rides count as one area
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE", requires = "judge_rides")]
    rides: Option<PathBuf>,
    /// Month of TLC trip records on which the proposal is tested; also counts the rides that would have been refused
    #[cfg(feature = "lab")]
    #[arg(long, visible_alias = "back-test", value_name = "FILE", requires = "rides")]
    judge_rides: Option<PathBuf>,
    /// GeoJSON polygons with a LocationID; only rides from zones in the area are used
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE", requires = "rides")]
    zones: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

/// History of an area.
struct AreaPast {
    /// Hours that the proposal is made from.
    seen: Vec<ObservedHour>,
    /// Hours that the proposal is tested on.
    later: Vec<ObservedHour>,
    /// Times of all requests in the later hours. `None` if they are not known.
    requests: Option<Vec<NaiveDateTime>>,
    /// Threshold for times without a schedule.
    usual: i64,
}

/// Answer of the API about the hours of an area.
#[derive(Debug, Deserialize)]
struct HoursSeen {
    usual_threshold: i64,
    seen: Vec<ObservedHour>,
    later: Vec<ObservedHour>,
}

impl AreaAdviseArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let AreaPast { seen, later, requests, usual } = self.read_past(api).await?;
        let spans = propose_thresholds(&seen, self.wait);
        ensure!(
            !spans.is_empty(),
            "not enough history of {} for a proposal: no hour of the week occurs three times",
            self.area
        );
        let schedule = ThresholdSchedule::new(spans.iter().map(|span| span.entry.clone()).collect())?;
        let by_schedule = |day, minute| schedule.threshold_on(day, minute).unwrap_or(usual);
        let advised = judge_thresholds(&later, self.wait, by_schedule);
        let constant = judge_thresholds(&later, self.wait, |_, _| usual);
        let refused = requests.map(|requests| {
            let advised = try_on_requests(&requests, self.wait, by_schedule);
            (advised, try_on_requests(&requests, self.wait, |_, _| usual))
        });
        if self.json {
            let spans: Vec<_> = spans
                .iter()
                .map(|span| {
                    json!({ "entry": span.entry, "hours_seen": span.hours_seen, "reason": span.reason.to_string() })
                })
                .collect();
            return output::print_json(&json!({
                "area_id": self.area, "service_type": self.service_type, "wait_sec": self.wait.as_secs(), "spans": spans,
                "schedule": schedule.to_string(),
                "back_test": {
                    "advised": advised, "usual": constant, "usual_threshold": usual,
                    "refused": refused.map(|(advised, usual)| json!({ "advised": advised, "usual": usual })),
                },
            }));
        }
        let rows =
            spans.iter().map(|span| [span.entry.to_string(), span.hours_seen.to_string(), span.reason.to_string()]);
        output::print_rows(&["THRESHOLD", "HOURS SEEN", "BECAUSE"], rows, "");
        println!(
            "\nJudged on {} later hours with orders, for a wait of {}:",
            advised.hours,
            format_duration(self.wait)
        );
        print_test("the advice", &advised);
        print_test(&format!("{usual} at all times"), &constant);
        if let Some((by_advice, by_usual)) = refused {
            println!("\nOf the later requests, if each order had waited {}:", format_duration(self.wait));
            print_refused("the advice", by_advice);
            print_refused(&format!("{usual} at all times"), by_usual);
        }
        println!("\nNothing was changed. To apply the proposal:");
        let command = format!(
            "  dispatchq area set {} --service-type {} --schedule {} --reason \"area advise\"",
            self.area,
            self.service_type,
            output::quote_word(&schedule.to_string())
        );
        output::print_escaped(&command);
        Ok(())
    }

    /// Reads the hours to propose from and the hours to test on.
    async fn read_past(&self, api: &ApiClient) -> anyhow::Result<AreaPast> {
        #[cfg(feature = "lab")]
        {
            if let (Some(rides), Some(judge_rides)) = (&self.rides, &self.judge_rides) {
                let HoursSeen { usual_threshold: usual, .. } = self.read_hours(api, 0, 0).await?;
                let zones = self.zones_of_area(api).await?;
                let seen = history::read_history(rides, zones.as_ref())?.hours;
                let RideHistory { hours, requests } = history::read_history(judge_rides, zones.as_ref())?;
                return Ok(AreaPast { seen, later: hours, requests: Some(requests), usual });
            }
        }
        let HoursSeen { usual_threshold: usual, seen, later } =
            self.read_hours(api, self.days, self.judge_days).await?;
        Ok(AreaPast { seen, later, requests: None, usual })
    }

    async fn read_hours(&self, api: &ApiClient, days: u16, judge_days: u16) -> anyhow::Result<HoursSeen> {
        let query = [
            ("service_type", self.service_type.to_string()),
            ("days", days.to_string()),
            ("judge_days", judge_days.to_string()),
        ];
        Ok(serde_json::from_value(api.get(&area_path(&self.area, &["hours"]), &query).await?)?)
    }

    /// Returns the zones that lie in the area. `None` without `--zones`: all rides count as one place.
    #[cfg(feature = "lab")]
    async fn zones_of_area(&self, api: &ApiClient) -> anyhow::Result<Option<RideZones>> {
        let Some(path) = &self.zones else { return Ok(None) };
        let areas = import::parse(&api.get(&dispatcher_path(&["areas.geojson"]), &[]).await?.to_string())?;
        let geofence = Geofence::new(areas.into_iter().map(|imported| imported.area).collect());
        let listed = api.get(&dispatcher_path(&["areas"]), &[]).await?;
        let priority_of = |area: &AreaId| {
            let is_own = |row: &&Value| row["area_id"] == **area && row["service_type"] == *self.service_type;
            let own = list_items(&listed, "limits").iter().find(is_own);
            own.and_then(|own| i32::try_from(own["priority"].as_i64()?).ok()).unwrap_or_default()
        };
        let lies_within = |place| {
            geofence.find_area(place, &self.service_type, priority_of).is_some_and(|found| found.id == self.area)
        };
        RideZones::read_file(path, lies_within).map(Some)
    }
}

fn print_test(what: &str, test: &BackTest) {
    #[expect(clippy::cast_precision_loss, reason = "counts of hours")]
    let share = |hours: u64| 100.0 * hours as f64 / test.hours.max(1) as f64;
    println!(
        "  {what}: in time {:.0} %, too long {:.0} %, untested {:.0} %; too strict {:.0} %, would have refused \
         in {:.0} %",
        share(test.in_time),
        share(test.too_long),
        share(test.untested),
        share(test.too_strict),
        share(test.refusing)
    );
}

fn print_refused(what: &str, test: RefusalTest) {
    #[expect(clippy::cast_precision_loss, reason = "counts of requests")]
    let share = 100.0 * test.refused as f64 / test.requests.max(1) as f64;
    println!("  {what} would have refused {} of {} ({share:.1} %)", test.refused, test.requests);
}
