//! How areas stand, and the snapshots that are kept of it. What became of it hour by hour: [`area_report`](super::area_report).

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

/// The mode of an area that no person has decided for.
const AUTO: &str = "AUTO";
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
    /// The same by the name of the requirement on server busy.
    pub waiting_count: i64,
    /// By the schedule, while it says one.
    pub threshold: i64,
    /// Waiting by threshold.
    pub utilization: f64,
    /// FORCE_BUSY, FORCE_AVAILABLE, DISABLED or AUTO. All but AUTO hold whatever the flag says.
    pub mode: &'static str,
    /// How far the threshold holds while the mode is AUTO.
    pub enforcement: ThresholdEnforcement,
    /// Why the area takes no orders of this service type now; null: it takes them.
    #[schema(required)]
    pub refuses: Option<AreaRefusal>,
    pub oldest_waiting_since: Option<DateTime<Utc>>,
    /// When the orders were counted.
    pub last_updated: DateTime<Utc>,
    pub effective: EffectiveLimits,
}

impl AreaStatus {
    fn key(&self) -> AreaKey {
        AreaKey::new(&self.area_id, &self.service_type)
    }
}

/// Every area with every service type it is for, as Postgres counts; and what else has orders that wait. Where very many orders are open
/// the count may be some seconds old.
pub async fn area_statuses(desk: &Desk) -> Result<Vec<AreaStatus>, sqlx::Error> {
    Ok(look_at_areas(desk, &*recent_census::count_orders(&desk.core.db).await?).await)
}

/// As [`area_statuses`], as counted by `census`. Asks Redis: the caller is in no transaction.
async fn look_at_areas(desk: &Desk, census: &OrderCensus) -> Vec<AreaStatus> {
    let mut statuses = status_of(desk, census, served_areas(desk));
    find_cooling(desk, &mut statuses).await;
    statuses
}

/// How areas stand that refuse orders, that have limits of their own or orders that wait, or that a person has decided for. As
/// counted by `census`.
pub async fn notable_areas(desk: &Desk, census: &OrderCensus) -> Vec<AreaStatus> {
    keep_notable(desk, census, look_at_areas(desk, census).await, &HashSet::new())
}

/// Removes the areas of which there is nothing to report, but for `also`.
fn keep_notable(
    desk: &Desk,
    census: &OrderCensus,
    mut rows: Vec<AreaStatus>,
    also: &HashSet<AreaKey>,
) -> Vec<AreaStatus> {
    let notable: HashSet<AreaKey> = list_rows(desk, census, Vec::new()).into_iter().collect();
    rows.retain(|row| row.refuses.is_some() || notable.contains(&row.key()) || also.contains(&row.key()));
    let listed: HashSet<AreaKey> = rows.iter().map(AreaStatus::key).collect();
    // Requests for an area that is gone since.
    let gone: Vec<AreaKey> = also.difference(&listed).cloned().collect();
    rows.extend(status_of(desk, census, gone).into_iter().filter(|row| !listed.contains(&row.key())));
    rows
}

/// Areas that Redis is asked about at once.
const ASKED_AT_ONCE: usize = 16;

/// Finds the areas that were full and cool down, as Redis knows. Without Redis none does.
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

/// Every area with every service type it is for.
fn served_areas(desk: &Desk) -> Vec<AreaKey> {
    let mut all = Vec::new();
    for area in desk.areas.rules.get().geofence.areas() {
        let served = desk.config.service_types.keys().filter(|service_type| area.serves(service_type));
        all.extend(served.map(|service_type| AreaKey::new(&area.id, service_type)));
    }
    all
}

/// How areas stand that have limits of their own or orders that wait, or that a person has decided for; and of these, too. As
/// counted by `census`.
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
            // An area that a producer names and no dispatcher defined refuses nothing.
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

/// The areas that [`status_of`] reports.
fn list_rows(desk: &Desk, census: &OrderCensus, also: Vec<AreaKey>) -> Vec<AreaKey> {
    let rules = desk.areas.rules.get();
    let mut keys: Vec<AreaKey> = rules.configured_areas().cloned().collect();
    keys.extend(census.waiting.keys().cloned());
    for forced in rules.active_overrides() {
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

/// Keeps how every area stands, with what was refused since the last time. Each request is in one snapshot: both are written in
/// one transaction.
pub async fn save_snapshot(desk: &Desk) -> Result<usize, ServiceError> {
    save_counted(desk, &census::take_census(&desk.core.db).await?).await
}

/// As [`save_snapshot`], as counted by `census`.
pub async fn save_counted(desk: &Desk, census: &OrderCensus) -> Result<usize, ServiceError> {
    let since = db::database_now(&desk.core.db).await? - COUNTED_WITHIN;
    // Before the transaction: Postgres ends one that waits for Redis, and its rows are locked meanwhile.
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
