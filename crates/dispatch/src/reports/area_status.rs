//! How areas stand, and stood.

use chrono::{DateTime, TimeDelta, Utc};
use model::ids::{AreaId, AreaKey, ServiceType};
use redis::cmd;
use serde::Serialize;

use crate::{
    app::App,
    db,
    error::ServiceError,
    redis_keys,
    reports::census::{self, OrderCensus},
};

/// One area and service type, now.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct AreaStatus {
    #[schema(value_type = String)]
    pub area_id: AreaId,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    pub waiting: i64,
    pub threshold: i64,
    /// Waiting by threshold.
    pub utilization: f64,
    /// FORCE_BUSY, FORCE_AVAILABLE, DISABLED or AUTO.
    pub mode: &'static str,
    pub oldest_waiting_since: Option<DateTime<Utc>>,
}

/// Every area with limits of its own, with orders that wait, or that a person has decided for, as Postgres counts.
pub async fn area_statuses(app: &App) -> Result<Vec<AreaStatus>, sqlx::Error> {
    Ok(status_of(app, &census::take_census(&app.db).await?, Vec::new()))
}

/// As [`area_statuses`], by this count, and of these, too.
pub fn status_of(app: &App, census: &OrderCensus, also: Vec<AreaKey>) -> Vec<AreaStatus> {
    let counted = &census.waiting;
    let rules = app.rules.get();
    let now = app.rules.database_now();
    let mut keys: Vec<AreaKey> = rules.configured_areas().cloned().collect();
    keys.extend(counted.keys().cloned());
    for forced in rules.active_overrides() {
        let services = app.config.service_types.keys().cloned();
        keys.extend(services.map(|service_type| AreaKey { area: forced.area_id.clone(), service_type }));
    }
    keys.extend(also);
    keys.sort();
    keys.dedup();
    let status = |key: AreaKey| {
        let seen = counted.get(&key);
        let AreaKey { area: area_id, service_type } = key;
        let limits = rules.limits_for(&area_id, &service_type);
        let waiting = seen.map_or(0, |c| c.orders);
        let forced = rules.override_for(&area_id).filter(|forced| forced.is_in_force(now));
        AreaStatus {
            waiting,
            threshold: limits.max_waiting,
            utilization: utilisation_ratio(waiting, limits.max_waiting),
            mode: match forced {
                _ if !limits.enabled => "DISABLED",
                Some(forced) => forced.status.as_str(),
                None => "AUTO",
            },
            oldest_waiting_since: seen.map(|c| c.oldest),
            area_id,
            service_type,
        }
    };
    keys.into_iter().map(status).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of orders")]
fn utilisation_ratio(waiting: i64, threshold: i64) -> f64 {
    let ratio = waiting as f64 / threshold.max(1) as f64;
    (ratio * 1000.0).round() / 1000.0
}

/// Keeps how every area stands, with what was refused since the last time.
pub async fn save_snapshot(app: &App) -> Result<usize, ServiceError> {
    // Put aside, so that what is counted meanwhile is in the next one; and until it is kept, so that none is lost. If the
    // process dies in between, a minute may be kept twice.
    let (counts, aside) = (redis_keys::WAITING_COUNTS, redis_keys::WAITING_COUNTS_TAKEN);
    let script = "if redis.call('EXISTS', KEYS[2]) == 0 and redis.call('EXISTS', KEYS[1]) == 1 then
         redis.call('RENAME', KEYS[1], KEYS[2]) end
         return redis.call('HGETALL', KEYS[2])";
    let mut take = cmd("EVAL");
    take.arg(script).arg(2).arg(counts).arg(aside);
    let counts: std::collections::HashMap<String, i64> = app.store.run_command("take counts", &take).await?;
    let key = |field: &String| {
        let mut parts = field.split(':');
        Some(AreaKey { area: parts.next()?.into(), service_type: parts.next()?.into() })
    };
    let census = census::take_census(&app.db).await?;
    let rows = status_of(app, &census, counts.keys().filter_map(key).collect());
    let of = |row: &AreaStatus, what: &str| {
        counts.get(&format!("{}:{}:{what}", row.area_id, row.service_type)).copied().unwrap_or_default()
    };
    let column = |pick: &dyn Fn(&AreaStatus) -> i64| rows.iter().map(pick).collect::<Vec<i64>>();
    sqlx::query(
        "-- snapshot areas
         INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed)
         SELECT t.at, s.* FROM (SELECT dispatchq_now() AS at) t,
                unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) s
         ON CONFLICT DO NOTHING",
    )
    .bind(rows.iter().map(|r| r.area_id.clone()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.service_type.clone()).collect::<Vec<_>>())
    .bind(column(&|r| r.waiting))
    .bind(column(&|r| r.threshold))
    .bind(column(&|r| of(r, "rejected")))
    .bind(column(&|r| of(r, "would_reject")))
    .bind(column(&|r| of(r, "bypassed")))
    .execute(&app.db)
    .await?;
    app.store.run_command::<()>("forget counts", cmd("DEL").arg(aside)).await?;
    Ok(rows.len())
}

/// An area over a stretch of time.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct AreaHour {
    pub hour: DateTime<Utc>,
    pub area_id: AreaId,
    pub service_type: ServiceType,
    pub most_waiting: i64,
    pub mean_utilization: f64,
    pub rejected: i64,
    pub would_reject: i64,
    pub bypassed: i64,
}

/// The last `hours`, hour by hour, newest first.
pub async fn list_area_hours(app: &App, area: Option<&AreaId>, hours: u32) -> Result<Vec<AreaHour>, sqlx::Error> {
    // Bound, so that the planner knows how little of the table it is.
    let since = db::database_now(&app.db).await? - TimeDelta::hours(i64::from(hours));
    sqlx::query_as(
        "-- report of areas
         SELECT date_trunc('hour', at) AS hour, area_id, service_type, max(waiting)::bigint AS most_waiting,
                avg(waiting::float8 / greatest(threshold, 1))::float8 AS mean_utilization,
                sum(rejected)::bigint AS rejected, sum(would_reject)::bigint AS would_reject,
                sum(bypassed)::bigint AS bypassed
         FROM waiting_snapshots
         WHERE at > $2 AND ($1::text IS NULL OR area_id = $1)
         GROUP BY 1, 2, 3 ORDER BY 1 DESC, 2, 3 LIMIT 1000",
    )
    .bind(area)
    .bind(since)
    .fetch_all(&app.db)
    .await
}
