//! Hourly figures of an area: orders that found a driver, and the maximum number of waiting orders.

use std::collections::BTreeMap;

use crate::capability::Desk;
use chrono::{DateTime, TimeDelta, Timelike, Utc};
use model::{
    admission::{advise::ObservedHour, schedule::AreaTimeZone},
    ids::{AreaId, ServiceType},
};

/// Days of one statement.
const DAYS_AT_ONCE: i64 = 1;

#[derive(Debug, Clone, Copy, Default)]
struct HourCounts {
    created: i64,
    found_driver: i64,
    peak_waiting: Option<i64>,
}

/// Returns the hours of the area's time zone that have data. The range starts with the hour that contains `since` and
/// ends before the hour that contains `until`, which is not over. Consecutive ranges therefore share no hour, and no
/// hour is counted in part.
///
/// Scheduled orders are left out, because they do not wait in the hour of their creation.
///
/// Postgres counts by quarter hours, because the hours of every time zone consist of whole quarter hours.
pub async fn observe_hours(
    desk: &Desk,
    area: &AreaId,
    service_type: &ServiceType,
    (since, until): (DateTime<Utc>, DateTime<Utc>),
) -> Result<Vec<ObservedHour>, sqlx::Error> {
    let zone = area_zone(desk, area);
    let (mut from, until) = (begin_of_hour(since, zone), begin_of_hour(until, zone));
    let mut hours: BTreeMap<DateTime<Utc>, HourCounts> = BTreeMap::new();
    while from < until {
        let to = (from + TimeDelta::days(DAYS_AT_ONCE)).min(until);
        let orders: Vec<(DateTime<Utc>, i64, i64)> = sqlx::query_as(
            "-- orders of an area by quarter hour
             SELECT date_bin('15 minutes', created_at, to_timestamp(0)), count(*),
                    count(*) FILTER (WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP', 'COMPLETED'))
             FROM orders
             WHERE created_at >= $3 AND created_at < $4 AND area_id = $1 AND service_type = $2 AND starts_at IS NULL
             GROUP BY 1",
        )
        .bind(area)
        .bind(service_type)
        .bind(from)
        .bind(to)
        .fetch_all(&desk.core.db)
        .await?;
        for (quarter, created, found_driver) in orders {
            let counts = hours.entry(begin_of_hour(quarter, zone)).or_default();
            counts.created += created;
            counts.found_driver += found_driver;
        }
        let peaks: Vec<(DateTime<Utc>, i64)> = sqlx::query_as(
            "-- peaks of an area by quarter hour
             SELECT date_bin('15 minutes', at, to_timestamp(0)), max(waiting)
             FROM waiting_snapshots WHERE at >= $3 AND at < $4 AND area_id = $1 AND service_type = $2 GROUP BY 1",
        )
        .bind(area)
        .bind(service_type)
        .bind(from)
        .bind(to)
        .fetch_all(&desk.core.db)
        .await?;
        for (quarter, peak) in peaks {
            let counts = hours.entry(begin_of_hour(quarter, zone)).or_default();
            counts.peak_waiting = counts.peak_waiting.max(Some(peak));
        }
        from = to;
    }
    Ok(hours.into_iter().map(|(hour, counts)| observed(hour, counts, zone)).collect())
}

fn area_zone(desk: &Desk, area: &AreaId) -> AreaTimeZone {
    let rules = desk.areas.rules.get();
    rules.geofence.get(area).and_then(|area| area.time_zone).unwrap_or(desk.config.admission.time_zone)
}

/// Returns the start of the hour that a local clock shows at this time.
fn begin_of_hour(at: DateTime<Utc>, zone: AreaTimeZone) -> DateTime<Utc> {
    let (_, minute) = zone.wall_clock(at);
    let into_minute = TimeDelta::seconds(i64::from(at.second())) + TimeDelta::nanoseconds(i64::from(at.nanosecond()));
    at - TimeDelta::minutes(i64::from(minute % 60)) - into_minute
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
