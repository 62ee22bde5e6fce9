//! `--scenario alerts`: how long each job id alert takes to fire after its cause, at real speed.
//!
//! The partner never calls back, half of its job ids are slow, and three orders in ten never get one. A Prometheus with the
//! shipped rules watches. The run ends when each alert has fired, or after its length; orders that are open then stay open.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    load,
    options::{ALERTS_LENGTH, OrdersOptions},
    stage::Stage,
};
use crate::{
    bench::{
        machine::{MachineInfo, SoftwareVersions},
        prometheus::SeenByPrometheus,
        tables::{add_table_row, counts_table, table_with_header},
    },
    testbed::{figures, print, signals::wait_for_interrupt},
};
use dispatch::audit;
use foundation::db::Pool;

/// How often the run looks whether another alert fires. Prometheus looks as often.
const LOOK: Duration = Duration::from_secs(5);

/// One of the alerts that the design of the job id retrieval names.
struct WatchedAlert {
    name: &'static str,
    cause: &'static str,
    time: fn(&Causes) -> Option<DateTime<Utc>>,
}

const WATCHED: [WatchedAlert; 5] = [
    WatchedAlert {
        name: "CallbackRateLow",
        cause: "the first job id that came without a callback",
        time: |causes| causes.without_callback,
    },
    WatchedAlert {
        name: "JobIDRetrievalSlowResponse",
        cause: "the first job id that took more than 10 minutes",
        time: |causes| causes.slow,
    },
    WatchedAlert {
        name: "ManualRefundRequired",
        cause: "the first paid order that ended without a job id",
        time: |causes| causes.first_refund,
    },
    WatchedAlert {
        name: "HighCancellationRate",
        cause: "the eleventh paid order that ended without a job id",
        time: |causes| causes.eleventh_refund,
    },
    WatchedAlert {
        name: "JobIDRetrievalHighFailureRate",
        cause: "the first order that ended without a job id",
        time: |causes| causes.failed,
    },
];

/// When each cause came about, on Postgres' clock.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
struct Causes {
    started: Option<DateTime<Utc>>,
    without_callback: Option<DateTime<Utc>>,
    slow: Option<DateTime<Utc>>,
    failed: Option<DateTime<Utc>>,
    first_refund: Option<DateTime<Utc>>,
    eleventh_refund: Option<DateTime<Utc>>,
}

impl Causes {
    async fn read_causes(db: &Pool) -> Result<Self, sqlx::Error> {
        sqlx::query_as(
            "-- causes of job id alerts
             WITH refunds AS (SELECT at FROM order_events WHERE reason = 'COMPENSATED_AFTER_PAYMENT' ORDER BY at LIMIT 11)
             SELECT (SELECT min(created_at) FROM orders) AS started,
                    (SELECT min(at) FROM order_events WHERE reason = 'JOB_ID_VIA_PROACTIVE') AS without_callback,
                    (SELECT min(e.at) FROM order_events e JOIN bookings b USING (order_id, attempt_no)
                     WHERE e.reason IN ('JOB_ID_VIA_CALLBACK', 'JOB_ID_VIA_PROACTIVE')
                       AND e.at - b.booked_at > interval '10 minutes') AS slow,
                    (SELECT min(e.at) FROM order_events e
                     WHERE e.reason IN ('LIFETIME_TIMEOUT', 'BOOKING_NOT_FOUND')
                       AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = e.order_id AND b.job_id IS NOT NULL)
                    ) AS failed,
                    (SELECT min(at) FROM refunds) AS first_refund,
                    (SELECT at FROM refunds ORDER BY at OFFSET 10) AS eleventh_refund",
        )
        .fetch_one(db)
        .await
    }
}

/// What became of one alert; seconds since the first order.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct AlertTimes {
    alert: &'static str,
    cause: &'static str,
    cause_s: Option<f64>,
    fired_s: Option<f64>,
    /// From the cause to the alert.
    delay_s: Option<f64>,
}

impl WatchedAlert {
    fn times(&self, causes: &Causes, fired: &BTreeMap<String, DateTime<Utc>>) -> AlertTimes {
        let since = |from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>| {
            #[expect(clippy::cast_precision_loss, reason = "seconds of one run")]
            from.zip(to).map(|(from, to)| (to - from).num_milliseconds() as f64 / 1000.0)
        };
        let (caused_at, fired_at) = ((self.time)(causes), fired.get(self.name).copied());
        AlertTimes {
            alert: self.name,
            cause: self.cause,
            cause_s: since(causes.started, caused_at),
            fired_s: since(causes.started, fired_at),
            delay_s: since(caused_at, fired_at),
        }
    }
}

#[derive(Debug)]
struct AlertsReport {
    machine: MachineInfo,
    versions: SoftwareVersions,
    wall_seconds: f64,
    created: u64,
    times: Vec<AlertTimes>,
    outcomes: BTreeMap<String, u64>,
    prometheus: SeenByPrometheus,
    violations: Vec<String>,
}

/// Runs the scenario, prints its report, and returns whether each alert fired and no invariant was violated.
pub(super) async fn run(options: OrdersOptions) -> anyhow::Result<bool> {
    let options = OrdersOptions { speed: 1.0, prometheus: true, ..options };
    let report = tokio::select! {
        report = measure_alerts(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.violations.is_empty())
}

async fn measure_alerts(options: &OrdersOptions) -> anyhow::Result<AlertsReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let mut stage = Stage::start(options).await?;
    let start = Instant::now();
    let watched = watch_until_all_fired(options, &mut stage).await;
    if watched.is_err() {
        stage.testbed.dir.keep_files();
    }
    let (fired, mut violations) = watched?;
    let wall_seconds = start.elapsed().as_secs_f64();
    let prometheus = stage.prometheus.take().context("the run has no Prometheus")?;
    let seen = prometheus.read_seen().await?;
    drop(prometheus);
    let created = stage.producer.created_count();
    let (processes, app, redis, postgres, mut dir) = stage.testbed.into_parts();
    violations.extend(processes.stop().await);
    let causes = Causes::read_causes(&app.db).await?;
    let times: Vec<_> = WATCHED.iter().map(|alert| alert.times(&causes, &fired)).collect();
    let silent = times.iter().filter(|times| times.fired_s.is_none());
    violations.extend(silent.map(|times| format!("{} did not fire within {ALERTS_LENGTH:?}", times.alert)));
    let outcomes = figures::count_outcomes(&app.db).await?.by_status;
    violations.extend(audit::check_history(&app).await?.iter().map(ToString::to_string));
    app.close().await;
    drop((redis, postgres));
    if !violations.is_empty() {
        dir.keep_files();
        violations.push(format!("logs of the processes: {}", dir.path().display()));
    }
    Ok(AlertsReport { machine, versions, wall_seconds, created, times, outcomes, prometheus: seen, violations })
}

/// Creates the orders and records when each alert first fires. Returns with the processes that ended by themselves.
async fn watch_until_all_fired(
    options: &OrdersOptions,
    stage: &mut Stage,
) -> anyhow::Result<(BTreeMap<String, DateTime<Utc>>, Vec<String>)> {
    let prometheus = stage.prometheus.as_ref().context("the run has no Prometheus")?;
    let deadline = Instant::now() + ALERTS_LENGTH;
    let (mut fired, mut violations) = (BTreeMap::new(), Vec::new());
    let creating = stage.producer.run(load::order_creations(options));
    tokio::pin!(creating);
    let mut all_created = false;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            problems = &mut creating, if !all_created => {
                violations.extend(problems);
                all_created = true;
            }
            _ = looks.tick() => {
                violations.extend(stage.testbed.processes.replace_ended()?);
                for alert in prometheus.firing_alerts().await? {
                    if let Entry::Vacant(first) = fired.entry(alert) {
                        let now = Utc::now();
                        print::print_line(&format!("{} {} fires", now.format("%H:%M:%S"), first.key()), true)?;
                        first.insert(now);
                    }
                }
                let is_done = WATCHED.iter().all(|alert| fired.contains_key(alert.name));
                if is_done || Instant::now() >= deadline {
                    return Ok((fired, violations));
                }
            }
        }
    }
}

impl AlertsReport {
    fn to_json(&self) -> Value {
        json!({
            "scenario": "alerts",
            "orders": self.created,
            "wall_seconds": self.wall_seconds.round(),
            "alerts": self.times,
            "outcomes": self.outcomes,
            "prometheus": self.prometheus,
            "machine": self.machine,
            "versions": self.versions,
            "violations": self.violations,
        })
    }

    fn to_text(&self) -> String {
        let mut table = table_with_header(&["alert", "cause at", "fired at", "delay", "cause"]);
        let minutes = |seconds: Option<f64>| {
            seconds.map_or("-".to_owned(), |s| format!("{:.0}:{:02.0}", (s / 60.0).floor(), (s % 60.0).floor()))
        };
        for AlertTimes { alert, cause, cause_s, fired_s, delay_s } in &self.times {
            add_table_row(&mut table, &[alert, &minutes(*cause_s), &minutes(*fired_s), &minutes(*delay_s), cause]);
        }
        let heading = format!(
            "alerts: {} orders, speed 1: {:.0} s\n{}\n{}",
            self.created,
            self.wall_seconds,
            self.machine.to_text(),
            self.versions.to_text()
        );
        let verdict = if self.violations.is_empty() {
            "Each alert fired; the history is clean: no invariant was violated.".to_owned()
        } else {
            self.violations.join("\n")
        };
        [
            heading,
            table.to_string(),
            counts_table("status", "orders", &self.outcomes),
            self.prometheus.to_text(),
            verdict,
        ]
        .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule L8: The report states how long each job id alert took after its cause, and which did not fire.
    #[test]
    fn alert_times_count_from_the_cause() {
        let at = |s: i64| DateTime::from_timestamp(1_800_000_000 + s, 0);
        let causes = Causes {
            started: at(0),
            without_callback: at(7),
            slow: at(700),
            failed: at(1800),
            first_refund: at(1801),
            eleventh_refund: None,
        };
        let fired = BTreeMap::from([("ManualRefundRequired".to_owned(), at(1881).unwrap())]);
        let times: Vec<_> = WATCHED.iter().map(|alert| alert.times(&causes, &fired)).collect();
        let refund = times.iter().find(|times| times.alert == "ManualRefundRequired").unwrap();
        assert_eq!((refund.cause_s, refund.fired_s, refund.delay_s), (Some(1801.0), Some(1881.0), Some(80.0)));
        let rate = times.iter().find(|times| times.alert == "HighCancellationRate").unwrap();
        assert_eq!((rate.cause_s, rate.fired_s, rate.delay_s), (None, None, None));
    }
}
