//! `--scenario alerts`: measures the time from the cause of each job id alert until it fires, at real speed.
//!
//! The partner never calls back, half of its job ids are slow, and three orders in ten never get one. A Prometheus
//! evaluates the shipped rules. The run ends when each alert has fired, or after its maximum length; open orders then
//! stay open.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use anyhow::Context;
use chrono::{DateTime, Utc};
use foundation::db::Pool;
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    ALERTS_LENGTH, OrdersOptions,
    partner::{OrdersStage, order_creations},
};
use crate::{
    bench::frame::Figures,
    testbed::{figures, print},
};

/// Interval between checks for firing alerts. Prometheus evaluates the rules as often.
const LOOK: Duration = Duration::from_secs(5);

/// An alert from the design of the job id retrieval.
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

/// Times of the causes, on Postgres' clock.
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
        sqlx::query_as(include_str!("causes.sql")).fetch_one(db).await
    }
}

/// Times of one alert, in seconds since the first order.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct AlertTimes {
    alert: &'static str,
    cause: &'static str,
    cause_s: Option<f64>,
    fired_s: Option<f64>,
    /// Time from the cause to the alert.
    delay_s: Option<f64>,
}

impl WatchedAlert {
    fn times(&self, causes: &Causes, fired: &BTreeMap<String, DateTime<Utc>>) -> AlertTimes {
        let since = |from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>| {
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

pub(super) async fn measure_alerts(options: &OrdersOptions) -> anyhow::Result<Figures> {
    let mut stage = OrdersStage::start(options).await?;
    let start = Instant::now();
    let watched = watch_until_all_fired(options, &mut stage).await;
    let (fired, violations) = stage.testbed.dir.keep_if_failed(watched)?;
    let wall = start.elapsed();
    let prometheus = stage.prometheus.take().context("the run has no Prometheus")?;
    let seen = prometheus.read_seen().await?;
    drop(prometheus);
    let mut ended = stage.testbed.end_processes(violations).await;
    let causes = Causes::read_causes(&ended.app.core.db).await?;
    let times: Vec<_> = WATCHED.iter().map(|alert| alert.times(&causes, &fired)).collect();
    let silent = times.iter().filter(|times| times.fired_s.is_none());
    ended.violations.extend(silent.map(|times| format!("{} did not fire within {ALERTS_LENGTH:?}", times.alert)));
    let outcomes = figures::count_outcomes(&ended.app.core.db).await?.by_status;
    ended.check_history().await?;
    let mut figures = Figures::new(json!({
        "scenario": options.scenario,
        "orders": stage.producer.created_count(),
        "wall_seconds": wall.as_secs(),
        "alerts": times,
        "outcomes": outcomes,
        "prometheus": seen,
    }));
    figures.violations = ended.violations;
    figures.keep_logs(&mut ended.dir);
    Ok(figures)
}

/// Creates the orders and records when each alert first fires. Returns a line for each process that ended unexpectedly.
async fn watch_until_all_fired(
    options: &OrdersOptions,
    stage: &mut OrdersStage,
) -> anyhow::Result<(BTreeMap<String, DateTime<Utc>>, Vec<String>)> {
    let prometheus = stage.prometheus.as_ref().context("the run has no Prometheus")?;
    let deadline = Instant::now() + ALERTS_LENGTH;
    let (mut fired, mut violations) = (BTreeMap::new(), Vec::new());
    let creating = stage.producer.run(order_creations(options));
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
