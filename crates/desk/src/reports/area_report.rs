//! Verdicts of admission requests by hour and area, and the verdicts that another threshold would have given.
//!
//! The report is complete: it has every hour and area of the requested period, without a limit.

use std::{cmp::Reverse, collections::BTreeMap};

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    admission::verdicts::{is_refused_at, waiting_level},
    ids::{AreaId, AreaKey, ServiceType},
};
use serde::Serialize;

use crate::capability::Desk;
use areas::tally::hour_of;
use foundation::db;

#[derive(Debug, Clone, Copy)]
pub struct ReportScope<'a> {
    /// `None`: all areas.
    pub area: Option<&'a AreaId>,
    /// Length in hours. The report starts at the beginning of the hour that is this far before its end.
    pub hours: u32,
    /// `None`: now.
    pub until: Option<DateTime<Utc>>,
    /// Threshold for the what-if figures.
    pub threshold: Option<i64>,
}

/// Load of areas and verdicts of their admission requests.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct AreaReport {
    /// Start of an hour.
    pub since: DateTime<Utc>,
    pub until: DateTime<Utc>,
    /// Threshold of `what_if`, rounded down to a stored level: from 50 on to a multiple of 5, from 500 on to a multiple
    /// of 50.
    #[schema(required)]
    pub threshold: Option<i64>,
    /// Figures by hour, area and service type, newest hour first.
    pub hours: Vec<AreaHour>,
    /// Figures of the whole period.
    pub areas: Vec<AreaHour>,
}

/// One area and service type in an hour, or in the whole period.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct AreaHour {
    /// Null: the whole period.
    #[schema(required)]
    pub hour: Option<DateTime<Utc>>,
    /// Empty: outside all areas.
    #[schema(value_type = String)]
    pub area_id: AreaId,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    pub most_waiting: i64,
    /// Mean of waiting orders divided by the threshold.
    pub mean_utilization: f64,
    /// Checks and creations that were refused, for any cause.
    pub rejected: i64,
    /// Requests that only shadow mode admitted.
    pub would_reject: i64,
    /// Requests that were admitted because of loyalty.
    pub bypassed: i64,
    /// All requests, by source, verdict and cause.
    pub requests: Vec<RequestCount>,
    /// Requests that the other threshold would have refused; null if the request names no threshold.
    #[schema(required)]
    pub what_if: Option<WhatIf>,
}

/// Number of requests with the same source, verdict and cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct RequestCount {
    /// check or create.
    pub source: String,
    /// TAKEN, BYPASSED, WOULD_REFUSE or REFUSED.
    pub verdict: String,
    /// threshold, disabled, forced, outside, unavailable; none for admitted requests.
    pub cause: String,
    pub requests: i64,
}

/// Requests that another threshold would have refused, based on the number of waiting orders at each request. Leaves
/// out requests that another cause decided or whose count is unknown. Ignores the cooldown, and ignores that fewer
/// orders would have waited later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct WhatIf {
    pub checks: i64,
    pub checks_refused: i64,
    pub creations: i64,
    pub creations_refused: i64,
}

#[derive(sqlx::FromRow)]
struct StoodRow {
    hour: DateTime<Utc>,
    area_id: AreaId,
    service_type: ServiceType,
    most_waiting: i64,
    utilization_sum: f64,
    snapshots: i64,
}

#[derive(sqlx::FromRow)]
struct CountRow {
    hour: DateTime<Utc>,
    area_id: AreaId,
    service_type: ServiceType,
    source: String,
    verdict: String,
    cause: String,
    requests: i64,
}

#[derive(sqlx::FromRow)]
struct LevelRow {
    hour: DateTime<Utc>,
    area_id: AreaId,
    service_type: ServiceType,
    source: String,
    loyalty: String,
    waiting: i64,
    requests: i64,
}

/// Figures of an area and service type in a period.
#[derive(Debug, Default)]
struct AreaFigures {
    most_waiting: i64,
    utilization_sum: f64,
    snapshots: i64,
    /// By source, verdict and cause.
    requests: BTreeMap<(String, String, String), i64>,
    what_if: WhatIf,
}

type FiguresByHour = BTreeMap<(Reverse<DateTime<Utc>>, AreaKey), AreaFigures>;

/// Returns a report. Requests of the last second may be missing.
pub async fn load_area_report(desk: &Desk, scope: ReportScope<'_>) -> Result<AreaReport, sqlx::Error> {
    let until = match scope.until {
        Some(until) => until,
        None => db::database_now(&desk.core.db).await?,
    };
    let since = hour_of(until - TimeDelta::hours(i64::from(scope.hours)));
    let threshold = scope.threshold.map(waiting_level);
    let mut figures = FiguresByHour::new();
    // The times are bound as parameters, so that the planner knows how small the range is.
    let stood: Vec<StoodRow> = sqlx::query_as(
        "-- report of how areas stood
         SELECT date_trunc('hour', at, 'UTC') AS hour, area_id, service_type, max(waiting)::bigint AS most_waiting,
                sum(waiting::float8 / greatest(threshold, 1))::float8 AS utilization_sum, count(*) AS snapshots
         FROM waiting_snapshots
         WHERE at >= $2 AND at < $3 AND ($1::text IS NULL OR area_id = $1)
         GROUP BY 1, 2, 3",
    )
    .bind(scope.area)
    .bind(since)
    .bind(until)
    .fetch_all(&desk.core.db)
    .await?;
    for row in stood {
        let of = figures.entry((Reverse(row.hour), AreaKey::new(&row.area_id, &row.service_type))).or_default();
        of.most_waiting = of.most_waiting.max(row.most_waiting);
        of.utilization_sum += row.utilization_sum;
        of.snapshots += row.snapshots;
    }
    let counts: Vec<CountRow> = sqlx::query_as(
        "-- report of requests for places
         SELECT hour, area_id, service_type, source, verdict, cause, sum(requests)::bigint AS requests
         FROM admission_counts
         WHERE hour >= $2 AND hour < $3 AND ($1::text IS NULL OR area_id = $1)
         GROUP BY 1, 2, 3, 4, 5, 6",
    )
    .bind(scope.area)
    .bind(since)
    .bind(until)
    .fetch_all(&desk.core.db)
    .await?;
    for row in counts {
        let of = figures.entry((Reverse(row.hour), AreaKey::new(&row.area_id, &row.service_type))).or_default();
        *of.requests.entry((row.source, row.verdict, row.cause)).or_default() += row.requests;
    }
    if let Some(threshold) = threshold {
        try_threshold(desk, scope.area, (since, until), threshold, &mut figures).await?;
    }
    let is_tried = threshold.is_some();
    let mut areas: BTreeMap<AreaKey, AreaFigures> = BTreeMap::new();
    for ((_, key), of) in &figures {
        areas.entry(key.clone()).or_default().add_figures(of);
    }
    let hours = figures.into_iter().map(|((Reverse(hour), key), of)| of.into_hour(Some(hour), key, is_tried));
    Ok(AreaReport {
        since,
        until,
        threshold,
        hours: hours.collect(),
        areas: areas.into_iter().map(|(key, of)| of.into_hour(None, key, is_tried)).collect(),
    })
}

/// Counts the requests that `threshold` would have refused, with the present bypass settings of each area.
async fn try_threshold(
    desk: &Desk,
    area: Option<&AreaId>,
    (since, until): (DateTime<Utc>, DateTime<Utc>),
    threshold: i64,
    figures: &mut FiguresByHour,
) -> Result<(), sqlx::Error> {
    let levels: Vec<LevelRow> = sqlx::query_as(
        "-- report of how many waited
         SELECT hour, area_id, service_type, source, loyalty, waiting, sum(requests)::bigint AS requests
         FROM admission_counts
         WHERE hour >= $2 AND hour < $3 AND ($1::text IS NULL OR area_id = $1)
           AND waiting >= 0 AND cause IN ('none', 'threshold')
         GROUP BY 1, 2, 3, 4, 5, 6",
    )
    .bind(area)
    .bind(since)
    .bind(until)
    .fetch_all(&desk.core.db)
    .await?;
    let rules = desk.areas.rules.get();
    for row in levels {
        let limits = rules.limits_for(&row.area_id, &row.service_type);
        let refused = is_refused_at(threshold, limits, row.loyalty.parse().ok(), row.waiting);
        let refused = if refused { row.requests } else { 0 };
        let key = AreaKey { area: row.area_id, service_type: row.service_type };
        let tried = &mut figures.entry((Reverse(row.hour), key)).or_default().what_if;
        if row.source == "check" {
            tried.checks += row.requests;
            tried.checks_refused += refused;
        } else {
            tried.creations += row.requests;
            tried.creations_refused += refused;
        }
    }
    Ok(())
}

impl AreaFigures {
    fn add_figures(&mut self, more: &Self) {
        self.most_waiting = self.most_waiting.max(more.most_waiting);
        self.utilization_sum += more.utilization_sum;
        self.snapshots += more.snapshots;
        for (end, requests) in &more.requests {
            *self.requests.entry(end.clone()).or_default() += requests;
        }
        self.what_if.checks += more.what_if.checks;
        self.what_if.checks_refused += more.what_if.checks_refused;
        self.what_if.creations += more.what_if.creations;
        self.what_if.creations_refused += more.what_if.creations_refused;
    }

    fn into_hour(self, hour: Option<DateTime<Utc>>, key: AreaKey, is_tried: bool) -> AreaHour {
        let ended = |wanted: &str| -> i64 {
            self.requests.iter().filter(|((_, verdict, _), _)| verdict == wanted).map(|(_, requests)| requests).sum()
        };
        AreaHour {
            hour,
            area_id: key.area,
            service_type: key.service_type,
            most_waiting: self.most_waiting,
            mean_utilization: mean_ratio(self.utilization_sum, self.snapshots),
            rejected: ended("REFUSED"),
            would_reject: ended("WOULD_REFUSE"),
            bypassed: ended("BYPASSED"),
            what_if: is_tried.then_some(self.what_if),
            requests: self
                .requests
                .into_iter()
                .map(|((source, verdict, cause), requests)| RequestCount { source, verdict, cause, requests })
                .collect(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "minutes of a report")]
fn mean_ratio(sum: f64, snapshots: i64) -> f64 {
    (sum / snapshots.max(1) as f64 * 1000.0).round() / 1000.0
}
