//! `dispatchq area advise`: thresholds by time of day, from what the area has done, and how they would have done later. A person
//! sets them.

#[cfg(feature = "lab")]
use std::path::PathBuf;

use anyhow::ensure;
use chrono::TimeDelta;
use serde_json::json;

use super::super::output;
use dispatch::{
    admission::{
        advise::{BackTest, ObservedHour, judge_thresholds, propose_thresholds},
        schedule::ThresholdSchedule,
    },
    app::App,
    db,
    ids::{AreaId, ServiceType},
    reports::area_hours,
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct AreaAdviseArgs {
    area: AreaId,
    #[arg(long)]
    service_type: ServiceType,
    /// Longest wait for a driver that the last of a full line may have
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    wait: humantime::Duration,
    /// Days to propose from, before those it is judged on
    #[arg(long, default_value_t = 28, value_parser = clap::value_parser!(u16).range(1..=366))]
    days: u16,
    /// Days it is judged on: the last ones
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=366))]
    judge_days: u16,
    /// Propose from a month of TLC trip records instead; all its zones are one place
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE", requires = "judge_rides")]
    rides: Option<PathBuf>,
    /// And judge on another month
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE", requires = "rides")]
    judge_rides: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

impl AreaAdviseArgs {
    pub(super) async fn run(self, app: &App) -> anyhow::Result<()> {
        let rules = app.rules.get();
        ensure!(rules.geofence.get(&self.area).is_some(), "no area {}; see: dispatchq area list", self.area);
        ensure!(app.config.knows_service_type(&self.service_type), "unknown service type {}", self.service_type);
        let (seen, later) = self.read_hours(app).await?;
        let spans = propose_thresholds(&seen, *self.wait);
        ensure!(
            !spans.is_empty(),
            "too little is known of {} for an advice: no hour of the week was seen three times",
            self.area
        );
        let schedule = ThresholdSchedule::new(spans.iter().map(|span| span.entry.clone()).collect())?;
        let usual = rules.limits_for(&self.area, &self.service_type).max_waiting;
        let advised =
            judge_thresholds(&later, *self.wait, |day, minute| schedule.threshold_on(day, minute).unwrap_or(usual));
        let constant = judge_thresholds(&later, *self.wait, |_, _| usual);
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
                "back_test": { "advised": advised, "usual": constant, "usual_threshold": usual },
            }));
        }
        let rows =
            spans.iter().map(|span| [span.entry.to_string(), span.hours_seen.to_string(), span.reason.to_string()]);
        output::print_rows(&["THRESHOLD", "HOURS SEEN", "BECAUSE"], rows, "");
        println!("\nJudged on {} later hours with orders, for a wait of {}:", advised.hours, self.wait);
        print_test("the advice", &advised);
        print_test(&format!("{usual} at all times"), &constant);
        println!("\nNothing was changed. To take the advice:");
        let command = format!(
            "  dispatchq area set {} --service-type {} --schedule {} --reason \"area advise\"",
            self.area,
            self.service_type,
            output::quote_word(&schedule.to_string())
        );
        output::print_escaped(&command);
        Ok(())
    }

    /// The hours to propose from, and those to judge on.
    async fn read_hours(&self, app: &App) -> anyhow::Result<(Vec<ObservedHour>, Vec<ObservedHour>)> {
        #[cfg(feature = "lab")]
        {
            if let (Some(rides), Some(judge_rides)) = (&self.rides, &self.judge_rides) {
                return Ok((
                    lab::replay::hours::observe_rides(rides)?,
                    lab::replay::hours::observe_rides(judge_rides)?,
                ));
            }
        }
        let now = db::database_now(&app.db).await?;
        let between = now - TimeDelta::days(i64::from(self.judge_days));
        let since = between - TimeDelta::days(i64::from(self.days));
        let seen = area_hours::observe_hours(app, &self.area, &self.service_type, (since, between)).await?;
        let later = area_hours::observe_hours(app, &self.area, &self.service_type, (between, now)).await?;
        Ok((seen, later))
    }
}

fn print_test(what: &str, test: &BackTest) {
    #[expect(clippy::cast_precision_loss, reason = "counts of hours")]
    let share = |hours: u64| 100.0 * hours as f64 / test.hours.max(1) as f64;
    println!(
        "  {what}: in time {:.0} %, too long {:.0} %, not put to the test {:.0} %; too strict {:.0} %, would have refused \
         in {:.0} %",
        share(test.in_time),
        share(test.too_long),
        share(test.untested),
        share(test.too_strict),
        share(test.refusing)
    );
}
