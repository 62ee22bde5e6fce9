//! Present state of areas, and the snapshots of it. The hourly figures are in [`area_report`](super::area_report).

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use model::{
    admission::{
        decide::{self, AreaLoad, AreaRefusal, AreaTerms},
        limits::ThresholdEnforcement,
    },
    ids::{AreaId, AreaKey, ServiceType},
};
use serde::Serialize;

use crate::{
    capability::Desk,
    reports::{
        census::{self, OrderCensus},
        recent_census,
    },
};
use areas::admission::{
    effective::{self, EffectiveLimits},
    waiting,
};
use foundation::{
    db::{self, Connection},
    error::ServiceError,
};

/// Mode of an area without an override.
const AUTO: &str = "AUTO";
/// Maximum age of counts for a snapshot. If snapshots were missing for longer, the counts appear only in the report.
const COUNTED_WITHIN: TimeDelta = TimeDelta::hours(3);

/// Present state of one area and service type.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct AreaStatus {
    #[schema(value_type = String)]
    pub area_id: AreaId,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    pub waiting: i64,
    /// Same as `waiting`, with the name that the requirement on server busy uses.
    pub waiting_count: i64,
    /// Threshold in effect, from the schedule if it covers this time.
    pub threshold: i64,
    /// Waiting orders divided by the threshold.
    pub utilization: f64,
    /// FORCE_BUSY, FORCE_AVAILABLE, DISABLED or AUTO. All modes except AUTO apply regardless of the flag.
    pub mode: &'static str,
    /// Whether and how the threshold is enforced in mode AUTO.
    pub enforcement: ThresholdEnforcement,
    /// Reason that the area refuses orders of this service type now; null: it accepts them.
    #[schema(required)]
    pub refuses: Option<AreaRefusal>,
    pub oldest_waiting_since: Option<DateTime<Utc>>,
    /// Time of the count.
    pub last_updated: DateTime<Utc>,
    pub effective: EffectiveLimits,
}

impl AreaStatus {
    fn key(&self) -> AreaKey {
        AreaKey::new(&self.area_id, &self.service_type)
    }
}

/// Returns the state of every area and service type that the area serves, and of others with waiting orders. Postgres
/// counts the orders. With very many open orders, the count may be old, see [`recent_census`].
pub async fn area_statuses(desk: &Desk) -> Result<Vec<AreaStatus>, sqlx::Error> {
    Ok(look_at_areas(desk, &*recent_census::count_orders(&desk.core.db).await?).await)
}

/// Same as [`area_statuses`], with the counts of `census`. Queries Redis, so the caller must not be in a transaction.
async fn look_at_areas(desk: &Desk, census: &OrderCensus) -> Vec<AreaStatus> {
    let mut statuses = status_of(desk, census, served_areas(desk));
    find_cooling(desk, &mut statuses).await;
    statuses
}

/// Returns the state of areas that refuse orders, have their own limits, have waiting orders, or have an override, with
/// the counts of `census`.
pub async fn notable_areas(desk: &Desk, census: &OrderCensus) -> Vec<AreaStatus> {
    keep_notable(desk, census, look_at_areas(desk, census).await, &HashSet::new())
}

/// Removes areas with nothing to report, except those in `also`.
fn keep_notable(
    desk: &Desk,
    census: &OrderCensus,
    mut rows: Vec<AreaStatus>,
    also: &HashSet<AreaKey>,
) -> Vec<AreaStatus> {
    let notable: HashSet<AreaKey> = list_rows(desk, census, Vec::new()).into_iter().collect();
    rows.retain(|row| row.refuses.is_some() || notable.contains(&row.key()) || also.contains(&row.key()));
    let listed: HashSet<AreaKey> = rows.iter().map(AreaStatus::key).collect();
    // Areas that have requests but no longer exist.
    let gone: Vec<AreaKey> = also.difference(&listed).cloned().collect();
    rows.extend(status_of(desk, census, gone).into_iter().filter(|row| !listed.contains(&row.key())));
    rows
}

/// Concurrent Redis queries for areas.
const ASKED_AT_ONCE: usize = 16;

/// Finds the areas that are in a cooldown after they were full, from Redis. Without Redis, none are found.
async fn find_cooling(desk: &Desk, statuses: &mut [AreaStatus]) {
    let rules = desk.areas.rules.get();
    let now = desk.core.database_clock.now();
    let is_open = |row: &&mut AreaStatus| {
        let is_enforced = matches!(row.enforcement, ThresholdEnforcement::On | ThresholdEnforcement::Partly);
        row.refuses.is_none() && row.mode == AUTO && is_enforced
    };
    let mut open: Vec<&mut AreaStatus> = statuses.iter_mut().filter(is_open).collect();
    for some in open.chunks_mut(ASKED_AT_ONCE) {
        let asked = some.iter().map(|row| waiting::read_busy(&desk.core, &row.area_id, &row.service_type));
        let seen = join_all(asked).await;
        let is_away = seen.iter().all(Option::is_none);
        for (row, seen) in some.iter_mut().zip(seen) {
            let limits = rules.limits_at(&row.area_id, &row.service_type, now);
            row.refuses = seen.and_then(|seen| {
                let standing = AreaLoad { waiting: row.waiting, ..seen.standing_under(&limits) };
                let terms = AreaTerms { area: &row.area_id, limits: &limits, forced: None, flag: &rules.flag };
                decide::find_refusal(terms, standing, now)
            });
        }
        if is_away {
            break;
        }
    }
}

/// Returns every area with each service type that it serves.
fn served_areas(desk: &Desk) -> Vec<AreaKey> {
    let mut all = Vec::new();
    for area in desk.areas.rules.get().geofence.areas() {
        let served = desk.config.service_types.keys().filter(|service_type| area.serves(service_type));
        all.extend(served.map(|service_type| AreaKey::new(&area.id, service_type)));
    }
    all
}

/// Returns the state of areas that have their own limits, waiting orders, or an override, and of those in `also`, with
/// the counts of `census`.
fn status_of(desk: &Desk, census: &OrderCensus, also: Vec<AreaKey>) -> Vec<AreaStatus> {
    let counted = &census.waiting;
    let rules = desk.areas.rules.get();
    let now = desk.core.database_clock.now();
    let status = |key: AreaKey| {
        let seen = counted.get(&key);
        let AreaKey { area: area_id, service_type } = key;
        let effective = effective::resolve_limits(&desk.areas, &rules, &area_id, &service_type, now);
        let threshold = effective.max_waiting_orders;
        let waiting = seen.map_or(0, |c| c.orders);
        let forced = rules.override_for(&area_id).filter(|forced| forced.is_in_force(now));
        let limits = rules.limits_at(&area_id, &service_type, now);
        let terms = AreaTerms { area: &area_id, limits: &limits, forced, flag: &rules.flag };
        AreaStatus {
            // An area that only a producer names, and that is not configured, refuses nothing.
            refuses: rules
                .geofence
                .get(&area_id)
                .and_then(|_| decide::find_refusal(terms, AreaLoad { waiting, busy_since: None }, now)),
            waiting,
            waiting_count: waiting,
            last_updated: census.at,
            threshold,
            utilization: utilisation_ratio(waiting, threshold),
            mode: match forced {
                _ if !effective.enabled => "DISABLED",
                Some(forced) => forced.status.as_str(),
                None => AUTO,
            },
            enforcement: rules.flag.enforcement_in(&area_id),
            oldest_waiting_since: seen.map(|c| c.oldest),
            effective,
            area_id,
            service_type,
        }
    };
    list_rows(desk, census, also).into_iter().map(status).collect()
}

/// Returns the areas that [`status_of`] reports.
fn list_rows(desk: &Desk, census: &OrderCensus, also: Vec<AreaKey>) -> Vec<AreaKey> {
    let rules = desk.areas.rules.get();
    let mut keys: Vec<AreaKey> = rules.configured_areas().cloned().collect();
    keys.extend(census.waiting.keys().cloned());
    for forced in rules.overrides_in_force(desk.core.database_clock.now()) {
        let services = desk.config.service_types.keys().cloned();
        keys.extend(services.map(|service_type| AreaKey { area: forced.area_id.clone(), service_type }));
    }
    keys.extend(also);
    keys.sort();
    keys.dedup();
    keys
}

#[expect(clippy::cast_precision_loss, reason = "counts of orders")]
fn utilisation_ratio(waiting: i64, threshold: i64) -> f64 {
    // A threshold of 0 is always reached.
    let ratio = if threshold == 0 { waiting.max(1) as f64 } else { waiting as f64 / threshold as f64 };
    (ratio * 1000.0).round() / 1000.0
}

/// Stores the state of every area with the refusals since the last snapshot. Both are written in one transaction, so
/// each request is in exactly one snapshot.
pub async fn save_snapshot(desk: &Desk) -> Result<usize, ServiceError> {
    save_counted(desk, &census::take_census(&desk.core.db).await?).await
}

/// Same as [`save_snapshot`], with the counts of `census`.
pub async fn save_counted(desk: &Desk, census: &OrderCensus) -> Result<usize, ServiceError> {
    let since = db::database_now(&desk.core.db).await? - COUNTED_WITHIN;
    // Runs before the transaction: Postgres would end a transaction that waits for Redis, and its rows would be locked
    // in the meantime.
    let seen = look_at_areas(desk, census).await;
    let mut tx = desk.core.db.begin().await?;
    let counts = take_counts(&mut tx, since).await?;
    let counted: HashSet<AreaKey> = counts.keys().map(|(area, _)| area.clone()).collect();
    let rows = keep_notable(desk, census, seen, &counted);
    let of =
        |row: &AreaStatus, verdict: &str| counts.get(&(row.key(), verdict.to_owned())).copied().unwrap_or_default();
    let column = |pick: &dyn Fn(&AreaStatus) -> i64| rows.iter().map(pick).collect::<Vec<i64>>();
    sqlx::query(
        "-- snapshot areas
         INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed, refuses)
         SELECT t.at, s.* FROM (SELECT dispatchq_now() AS at) t,
                unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[]) s
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
    .bind(rows.iter().map(|r| r.refuses.map_or("", AreaRefusal::as_str)).collect::<Vec<_>>())
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

/// Marks the counts since the last snapshot as taken, and returns them by area and verdict. Counts that a process is
/// adding to right now are taken by the next snapshot.
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
