//! Checks that the waiting sets in Redis match the waiting orders in Postgres.
//!
//! On a live system the two differ briefly: an order takes its place before it has a row, and the reconciler corrects
//! lost members. Only a longer difference is a violation. While the sets have no marker, waiting orders are counted in
//! Postgres, and there is nothing to compare.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use model::ids::{AreaId, ServiceType};
use redis::cmd;

use super::InvariantViolation;
use crate::capability::Maintenance;
use areas::admission::waiting;
use foundation::{core::Core, db, error::ServiceError, redis_keys};

pub(crate) const NAME: &str = "waiting_sets_equal_rows";
/// Time after which the reconciler has corrected a difference; it covers three comparisons. The reconciler removes a
/// member that is missing in Postgres if it also found it missing at least a minute earlier.
const MENDED_WITHIN: TimeDelta = TimeDelta::minutes(5);

/// Sets by key. Each value maps an order to the time at which it stops counting, in ms on Redis' clock.
type WaitingSets = BTreeMap<String, HashMap<String, i64>>;

/// A waiting order in Postgres.
#[derive(sqlx::FromRow)]
struct WaitingRow {
    id: String,
    area_id: AreaId,
    service_type: ServiceType,
    waits_since: DateTime<Utc>,
    lifetime_deadline: DateTime<Utc>,
    /// Whether the order has waited long enough for the reconciler to see it.
    is_settled: bool,
}

/// Finds orders that wait only in Postgres, and members that are only in Redis.
pub(super) async fn check_waiting_sets(maintenance: &Maintenance) -> Result<Vec<InvariantViolation>, ServiceError> {
    let keys = list_keys(&maintenance.core).await?;
    check_sets(maintenance, &keys.into_iter().collect::<Vec<_>>()).await
}

/// Returns the keys of all sets in Redis, and of all sets in which orders in Postgres wait.
pub(crate) async fn list_keys(core: &Core) -> Result<BTreeSet<String>, ServiceError> {
    let mut keys = core.store.find_keys(redis_keys::WAITING_SETS, "zset").await?;
    let waited: Vec<(AreaId, ServiceType)> = sqlx::query_as(
        "-- sets in which orders wait
         SELECT area_id, service_type FROM orders WHERE searching AND area_id IS NOT NULL GROUP BY area_id, service_type",
    )
    .fetch_all(&core.db)
    .await?;
    keys.extend(waited.iter().map(|(area, service_type)| redis_keys::waiting_orders(area, service_type)));
    Ok(keys)
}

/// Same as [`check_waiting_sets`], for some sets.
pub(crate) async fn check_sets(
    maintenance: &Maintenance,
    keys: &[String],
) -> Result<Vec<InvariantViolation>, ServiceError> {
    if !waiting::is_complete(&maintenance.core).await? {
        return Ok(Vec::new());
    }
    // Redis is read first, as in the reconciler. An order that leaves between the two reads looks left over, but has
    // just changed.
    let mut sets = WaitingSets::new();
    for key in keys {
        let mut range = cmd("ZRANGE");
        range.arg(key).arg(0).arg(-1).arg("WITHSCORES");
        let members: Vec<(String, i64)> = maintenance.core.store.run_command("members with scores", &range).await?;
        sets.insert(key.clone(), members.into_iter().collect());
    }
    let (seconds, _): (i64, i64) = maintenance.core.store.run_command("time", &cmd("TIME")).await?;
    let settled_since = db::database_now(&maintenance.core.db).await? - MENDED_WITHIN;
    let rows = list_waiting_rows(&maintenance.core, keys, settled_since).await?;
    // After a flush in between, all members would look missing.
    if !waiting::is_complete(&maintenance.core).await? {
        return Ok(Vec::new());
    }
    let mut violations = Vec::new();
    let (rules, now) = (maintenance.areas.rules.get(), maintenance.core.database_clock.now());
    for row in rows {
        let limits = rules.limits_for(&row.area_id, &row.service_type);
        if limits.counted_until(row.waits_since, row.lifetime_deadline) <= now {
            continue;
        }
        let key = redis_keys::waiting_orders(&row.area_id, &row.service_type);
        let is_member = sets.get_mut(&key).is_some_and(|set| set.remove(&row.id).is_some());
        // A single node of a cluster may have been flushed.
        if !is_member
            && row.is_settled
            && waiting::is_set_complete(&maintenance.core, &row.area_id, &row.service_type).await?
        {
            violations.push(name_violation(row.id, format!("waits but is not in {key}")));
        }
    }
    // The remaining members are not waiting orders. An expired one is removed by the next script on its area.
    let now_ms = seconds * 1000;
    for set in sets.values_mut() {
        set.retain(|_, expires_ms| *expires_ms > now_ms);
    }
    let left_over: Vec<&str> = sets.values().flat_map(HashMap::keys).map(String::as_str).collect();
    let (known, changed) = list_changed(&maintenance.core, &left_over, settled_since).await?;
    for (key, set) in &sets {
        let lifetime_ms = lifetime_of_set(maintenance, key).num_milliseconds();
        for (id, expires_ms) in set {
            // For an order without a row, the expiry shows when the place was taken.
            let is_new = if known.contains(id) {
                changed.contains(id)
            } else {
                (expires_ms - lifetime_ms - now_ms).abs() < MENDED_WITHIN.num_milliseconds()
            };
            if !is_new {
                violations.push(name_violation(id.clone(), format!("is in {key} but does not wait there")));
            }
        }
    }
    Ok(violations)
}

fn name_violation(subject: String, detail: String) -> InvariantViolation {
    InvariantViolation { invariant: NAME, subject, detail }
}

async fn list_waiting_rows(
    core: &Core,
    keys: &[String],
    settled_since: DateTime<Utc>,
) -> Result<Vec<WaitingRow>, sqlx::Error> {
    let (areas, service_types): (Vec<AreaId>, Vec<ServiceType>) =
        keys.iter().filter_map(|key| redis_keys::parts_of_waiting_set(key)).unzip();
    sqlx::query_as(
        "-- who should be in the waiting sets
         SELECT o.id, o.area_id, o.service_type, coalesce(o.starts_at, o.created_at) AS waits_since,
                o.lifetime_deadline,
                NOT EXISTS (SELECT 1 FROM order_events e
                            WHERE e.order_id = o.id AND e.at > $1
                              AND coalesce(e.from_status, '')
                                  NOT IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')) AS is_settled
         FROM orders o
         WHERE o.searching AND o.area_id IS NOT NULL
           AND (o.area_id, o.service_type) IN (SELECT * FROM unnest($2::text[], $3::text[]))
           AND o.lifetime_deadline > dispatchq_now()",
    )
    .bind(settled_since)
    .bind(areas)
    .bind(service_types)
    .fetch_all(&core.db)
    .await
}

/// Returns the orders among these that exist, and those of them that have changed since.
async fn list_changed(
    core: &Core,
    ids: &[&str],
    since: DateTime<Utc>,
) -> Result<(HashSet<String>, HashSet<String>), sqlx::Error> {
    if ids.is_empty() {
        return Ok((HashSet::new(), HashSet::new()));
    }
    let rows: Vec<(String, bool)> = sqlx::query_as(
        "-- what became of members of waiting sets
         SELECT o.id, EXISTS (SELECT 1 FROM order_events e WHERE e.order_id = o.id AND e.at > $2)
         FROM orders o WHERE o.id = ANY ($1)",
    )
    .bind(ids)
    .bind(since)
    .fetch_all(&core.db)
    .await?;
    let changed = rows.iter().filter(|(_, is_changed)| *is_changed).map(|(id, _)| id.clone()).collect();
    Ok((rows.into_iter().map(|(id, _)| id).collect(), changed))
}

/// Returns how long an order counts as waiting in the set with this key.
fn lifetime_of_set(maintenance: &Maintenance, key: &str) -> TimeDelta {
    let (area, service_type) = redis_keys::parts_of_waiting_set(key).unwrap_or_default();
    let of_area = maintenance.areas.rules.get().durations_for(&area, &service_type).lifetime;
    let lifetime = of_area.unwrap_or_else(|| maintenance.config.policy_for_type(&service_type).lifetime);
    let counted_for = maintenance.areas.rules.get().limits_for(&area, &service_type).counted_for(lifetime);
    TimeDelta::from_std(counted_for).unwrap_or(TimeDelta::MAX)
}
