//! How areas stand, and the snapshots that are kept of it. What became of it hour by hour: [`area_report`](super::area_report).

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    admission::limits::ThresholdEnforcement,
    ids::{AreaId, AreaKey, ServiceType},
};
use serde::Serialize;

use crate::{
    app::App,
    db::{self, Connection},
    error::ServiceError,
    reports::{
        census::{self, OrderCensus},
        effective::{self, EffectiveLimits},
        recent_census,
    },
};

/// Counts of hours that ended longer ago are in the report alone: the snapshots stood still that long.
const COUNTED_WITHIN: TimeDelta = TimeDelta::hours(3);

/// One area and service type, now.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct AreaStatus {
    #[schema(value_type = String)]
    pub area_id: AreaId,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    pub waiting: i64,
    /// By the schedule, while it says one.
    pub threshold: i64,
    /// Waiting by threshold.
    pub utilization: f64,
    /// FORCE_BUSY, FORCE_AVAILABLE, DISABLED or AUTO. All but AUTO hold whatever the flag says.
    pub mode: &'static str,
    /// How far the threshold holds while the mode is AUTO.
    pub enforcement: ThresholdEnforcement,
    pub oldest_waiting_since: Option<DateTime<Utc>>,
    pub effective: EffectiveLimits,
}

/// Every area with every service type it is for, as Postgres counts; and what else has orders that wait. Where very many orders are open
/// the count may be some seconds old.
pub async fn area_statuses(app: &App) -> Result<Vec<AreaStatus>, sqlx::Error> {
    let rules = app.rules.get();
    let mut all = Vec::new();
    for area in rules.geofence.areas() {
        let served = app.config.service_types.keys().filter(|service_type| area.serves(service_type));
        all.extend(served.map(|service_type| AreaKey::new(&area.id, service_type)));
    }
    Ok(status_of(app, &*recent_census::count_orders(&app.db).await?, all))
}

/// How areas stand that have limits of their own or orders that wait, or that a person has decided for; and of these, too. As
/// counted by `census`.
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
        let effective = effective::resolve_limits(app, &rules, &area_id, &service_type, now);
        let threshold = effective.max_waiting_orders;
        let waiting = seen.map_or(0, |c| c.orders);
        let forced = rules.override_for(&area_id).filter(|forced| forced.is_in_force(now));
        AreaStatus {
            waiting,
            threshold,
            utilization: utilisation_ratio(waiting, threshold),
            mode: match forced {
                _ if !effective.enabled => "DISABLED",
                Some(forced) => forced.status.as_str(),
                None => "AUTO",
            },
            enforcement: rules.flag.enforcement_in(&area_id),
            oldest_waiting_since: seen.map(|c| c.oldest),
            effective,
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

/// Keeps how every area stands, with what was refused since the last time. Each request is in one snapshot: both are written in
/// one transaction.
pub async fn save_snapshot(app: &App) -> Result<usize, ServiceError> {
    save_counted(app, &census::take_census(&app.db).await?).await
}

/// As [`save_snapshot`], as counted by `census`.
pub async fn save_counted(app: &App, census: &OrderCensus) -> Result<usize, ServiceError> {
    let since = db::database_now(&app.db).await? - COUNTED_WITHIN;
    let mut tx = app.db.begin().await?;
    let counts = take_counts(&mut tx, since).await?;
    let counted: Vec<AreaKey> = counts.keys().map(|(area, _)| area.clone()).collect();
    let rows = status_of(app, census, counted);
    let of = |row: &AreaStatus, verdict: &str| {
        let key = (AreaKey::new(&row.area_id, &row.service_type), verdict.to_owned());
        counts.get(&key).copied().unwrap_or_default()
    };
    let column = |pick: &dyn Fn(&AreaStatus) -> i64| rows.iter().map(pick).collect::<Vec<i64>>();
    sqlx::query(
        "-- snapshot areas
         INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed)
         SELECT t.at, s.* FROM (SELECT dispatchq_now() AS at) t,
                unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) s
         ON CONFLICT (at, area_id, service_type) DO UPDATE
             SET rejected = waiting_snapshots.rejected + excluded.rejected,
                 would_reject = waiting_snapshots.would_reject + excluded.would_reject,
                 bypassed = waiting_snapshots.bypassed + excluded.bypassed",
    )
    .bind(rows.iter().map(|r| r.area_id.clone()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.service_type.clone()).collect::<Vec<_>>())
    .bind(column(&|r| r.waiting))
    .bind(column(&|r| r.threshold))
    .bind(column(&|r| of(r, "REFUSED")))
    .bind(column(&|r| of(r, "WOULD_REFUSE")))
    .bind(column(&|r| of(r, "BYPASSED")))
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(rows.len())
}

#[derive(sqlx::FromRow)]
struct FreshCount {
    area_id: AreaId,
    service_type: ServiceType,
    verdict: String,
    requests: i64,
}

/// Marks what was counted since the last snapshot as taken, and returns it by area and verdict. A line that a process is adding to
/// comes with the next snapshot.
async fn take_counts(
    tx: &mut Connection,
    since: DateTime<Utc>,
) -> Result<HashMap<(AreaKey, String), i64>, sqlx::Error> {
    let counts: Vec<FreshCount> = sqlx::query_as(
        "-- take counts of admission
         WITH fresh AS MATERIALIZED (
             SELECT hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests - in_snapshot AS more
             FROM admission_counts
             WHERE hour > $1 AND area_id <> '' AND verdict <> 'TAKEN' AND in_snapshot < requests
             FOR UPDATE SKIP LOCKED),
         taken AS (
             UPDATE admission_counts c SET in_snapshot = c.in_snapshot + f.more FROM fresh f
             WHERE (c.hour, c.area_id, c.service_type, c.source, c.verdict, c.cause, c.loyalty, c.waiting)
                 = (f.hour, f.area_id, f.service_type, f.source, f.verdict, f.cause, f.loyalty, f.waiting))
         SELECT area_id, service_type, verdict, sum(more)::bigint AS requests FROM fresh GROUP BY 1, 2, 3",
    )
    .bind(since)
    .fetch_all(tx)
    .await?;
    let key = |count: &FreshCount| (AreaKey::new(&count.area_id, &count.service_type), count.verdict.clone());
    Ok(counts.iter().map(|count| (key(count), count.requests)).collect())
}
