//! What the hours of an area were like: orders that found a driver, and the most that waited at once.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    admission::{advise::ObservedHour, schedule::AreaTimeZone},
    ids::{AreaId, ServiceType},
};

use crate::app::App;

/// Days of one statement.
const DAYS_AT_ONCE: i64 = 1;

#[derive(Debug, Clone, Copy, Default)]
struct HourCounts {
    created: i64,
    found_driver: i64,
    peak_waiting: Option<i64>,
}

/// Reads the hours from `since` to `until` of which something is kept, in the area's time zone.
pub async fn observe_hours(
    app: &App,
    area: &AreaId,
    service_type: &ServiceType,
    (since, until): (DateTime<Utc>, DateTime<Utc>),
) -> Result<Vec<ObservedHour>, sqlx::Error> {
    let mut hours: BTreeMap<DateTime<Utc>, HourCounts> = BTreeMap::new();
    let mut from = since;
    while from < until {
        let to = (from + TimeDelta::days(DAYS_AT_ONCE)).min(until);
        let orders: Vec<(DateTime<Utc>, i64, i64)> = sqlx::query_as(
            "-- orders of an area by hour
             SELECT date_trunc('hour', created_at), count(*),
                    count(*) FILTER (WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP', 'COMPLETED'))
             FROM orders WHERE created_at >= $3 AND created_at < $4 AND area_id = $1 AND service_type = $2 GROUP BY 1",
        )
        .bind(area)
        .bind(service_type)
        .bind(from)
        .bind(to)
        .fetch_all(&app.db)
        .await?;
        for (hour, created, found_driver) in orders {
            let counts = hours.entry(hour).or_default();
            (counts.created, counts.found_driver) = (created, found_driver);
        }
        let peaks: Vec<(DateTime<Utc>, i64)> = sqlx::query_as(
            "-- peaks of an area by hour
             SELECT date_trunc('hour', at), max(waiting)
             FROM waiting_snapshots WHERE at >= $3 AND at < $4 AND area_id = $1 AND service_type = $2 GROUP BY 1",
        )
        .bind(area)
        .bind(service_type)
        .bind(from)
        .bind(to)
        .fetch_all(&app.db)
        .await?;
        for (hour, peak) in peaks {
            hours.entry(hour).or_default().peak_waiting = Some(peak);
        }
        from = to;
    }
    let zone = area_zone(app, area);
    Ok(hours.into_iter().map(|(hour, counts)| observed(hour, counts, zone)).collect())
}

fn area_zone(app: &App, area: &AreaId) -> AreaTimeZone {
    let rules = app.rules.get();
    rules.geofence.get(area).and_then(|area| area.time_zone).unwrap_or(app.config.admission.time_zone)
}

fn observed(at: DateTime<Utc>, counts: HourCounts, zone: AreaTimeZone) -> ObservedHour {
    let (day, minute) = zone.wall_clock(at);
    ObservedHour {
        day,
        hour: minute / 60,
        created: counts.created.unsigned_abs(),
        found_driver: counts.found_driver.unsigned_abs(),
        peak_waiting: counts.peak_waiting.map(i64::unsigned_abs),
    }
}
