//! Waiting orders per area and service type: `waiting:order:{area}:{service type}`, a sorted set of order ids. The
//! score is the time until which an order counts: the end of its lifetime, or the end of the area's waiting window. The
//! requirement on server busy prescribes the key.
//!
//! Each script removes expired orders, and the reconciler compares the sets with Postgres. A marker next to each set
//! shows that the set is complete. Without the marker (Redis, or the cluster node of the set, was flushed) Postgres
//! counts. A new set gets the marker at once if Postgres counts no waiting order.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::{DateTime, Utc};
use jobs::OrderId;
use metrics::gauge;
use model::{
    admission::{
        decide::{AdmissionGate, AreaLoad},
        limits::AreaLimits,
    },
    ids::{AreaId, AreaKey, ServiceType},
    order::Order,
};
use queue::{Command, LuaScript};
use redis::{Cmd, FromRedisValue, cmd};

use crate::{capability::Areas, rules::AdmissionRules, standings::AreaStanding};
use foundation::{
    core::Core,
    db::{self, Pool, lock},
    error::ServiceError,
    loops::report_progress,
    redis_keys,
};

/// Lock key of the process that compares the sets with Postgres. The number is arbitrary but the same in every process.
const LOCK: i64 = 0x6470_706c_6163_6573;
/// Age below which an order that is missing from Postgres may still be about to be written.
const YOUNG: Duration = Duration::from_secs(60);
/// Tolerance in milliseconds for expiry times, because the clocks of Redis and Postgres are read one after the other.
const SAME_END_MS: u64 = 5_000;
/// Maximum members added by one command. After a flush, whole areas may have to be added.
const AT_ONCE: usize = 1_000;
/// Lifetime of a set's marker in seconds. Each comparison with Postgres, once a minute, renews it.
const VOUCHED_S: u64 = 86_400;
/// Weight of the latest assignment in the average wait.
const WEIGHT: f64 = 0.1;

/// Answer of the gate for an order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlaceOutcome {
    /// The order has a place. A repeated request keeps its place.
    Taken {
        bypassed: bool,
    },
    Full,
}

static LOOK: LuaScript = LuaScript::new(include_str!("scripts/read_counts.lua"));

static TAKE: LuaScript = LuaScript::new(include_str!("scripts/take_place.lua"));

static LEAVE: LuaScript = LuaScript::new(include_str!("scripts/leave_place.lua"));

/// Returns the state of the area from Redis, or `None` if Redis does not have it.
pub async fn read_counts(core: &Core, area: &AreaId, service_type: &ServiceType) -> Option<AreaStanding> {
    let look = LOOK.call([
        redis_keys::waiting_complete(area, service_type),
        redis_keys::waiting_orders(area, service_type),
        redis_keys::waiting_busy(area, service_type),
        redis_keys::waiting_average(area, service_type),
    ]);
    let (count, busy, oldest, average): (i64, String, f64, String) =
        ask_vouched_set(core, (area, service_type), "look at area", &look).await?;
    let busy = parse_busy(&busy);
    Some(AreaStanding {
        standing: AreaLoad { waiting: count, ..busy.standing },
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds since the epoch")]
        oldest_expiry_ms: (oldest > 0.0).then_some(oldest as i64),
        average_wait_s: average.parse().ok(),
        ..busy
    })
}

/// Parses the busy mark `ms:threshold`: the time at which the area became busy, and the threshold that applied then.
/// Empty: not busy.
fn parse_busy(busy: &str) -> AreaStanding {
    let (since, threshold) = busy.split_once(':').unwrap_or_default();
    AreaStanding {
        standing: AreaLoad { waiting: 0, busy_since: since.parse().ok().and_then(time_of_ms) },
        busy_threshold: threshold.parse().ok(),
        ..AreaStanding::default()
    }
}

/// Returns the busy mark of an area without reading its count, or `None` if Redis does not respond.
pub async fn read_busy(core: &Core, area: &AreaId, service_type: &ServiceType) -> Option<AreaStanding> {
    let mut get = cmd("GET");
    get.arg(redis_keys::waiting_busy(area, service_type));
    let busy = core.query_optional::<Option<String>>("look at busy area", &get).await.ok()?;
    Some(parse_busy(&busy.unwrap_or_default()))
}

/// Takes a place for an order if the gate admits it, or returns `None` if Redis cannot decide. With `anyway` the order
/// is added even if the area is full.
pub async fn enter_waiting_set(
    core: &Core,
    order: &OrderId,
    AreaKey { area, service_type }: &AreaKey,
    counted_for: Duration,
    (gate, anyway): (AdmissionGate, bool),
    limits: &AreaLimits,
) -> Option<(PlaceOutcome, AreaLoad)> {
    let (threshold, most) = match gate {
        AdmissionGate::Counted { threshold, with_bypass } => (threshold, with_bypass.unwrap_or(-1)),
        AdmissionGate::Open | AdmissionGate::Closed(_) => (-1, -1),
    };
    let mut take = TAKE.call([
        redis_keys::waiting_complete(area, service_type),
        redis_keys::waiting_orders(area, service_type),
        redis_keys::waiting_busy(area, service_type),
    ]);
    take.arg(order.as_str()).arg(as_millis(counted_for)).arg(threshold).arg(most);
    take.arg(as_millis(limits.cooldown)).arg(limits.low_water());
    take.arg(u8::from(anyway));
    let (answer, count, since): (i64, i64, i64) =
        ask_vouched_set(core, (area, service_type), "take place", &take).await?;
    let entry = match answer {
        0 => PlaceOutcome::Full,
        answer => PlaceOutcome::Taken { bypassed: answer == 2 },
    };
    Some((entry, AreaLoad { waiting: count, busy_since: time_of_ms(since) }))
}

/// Runs a script that returns nothing while the set's marker is missing. For a new set, sets the marker and runs the
/// script again.
async fn ask_vouched_set<T: FromRedisValue>(
    core: &Core,
    (area, service_type): (&AreaId, &ServiceType),
    name: &'static str,
    script: &Command,
) -> Option<T> {
    if let Some(answer) = core.query_optional::<Option<T>>(name, script).await.ok()? {
        return Some(answer);
    }
    if !vouch_for_empty(core, area, service_type).await {
        return None;
    }
    core.query_optional::<Option<T>>(name, script).await.ok()?
}

/// Sets the marker if Redis has not been flushed and Postgres counts no waiting order. Returns whether the script is
/// worth a second try, because an order that arrived in between may have set the marker.
async fn vouch_for_empty(core: &Core, area: &AreaId, service_type: &ServiceType) -> bool {
    let mut exists = cmd("EXISTS");
    exists.arg(redis_keys::WAITING_COMPLETE);
    if !core.query_optional::<bool>("look at sets", &exists).await.unwrap_or(false) {
        return false;
    }
    match count_waiting(&core.db, area, service_type).await {
        Ok(0) => core.query_optional::<()>("vouch for set", &vouch_command(area, service_type)).await.is_ok(),
        Ok(_) => true,
        Err(_) => false,
    }
}

fn vouch_command(area: &AreaId, service_type: &ServiceType) -> Cmd {
    let mut vouch = cmd("SET");
    vouch.arg(redis_keys::waiting_complete(area, service_type)).arg("complete").arg("EX").arg(VOUCHED_S);
    vouch
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn time_of_ms(ms: i64) -> Option<DateTime<Utc>> {
    (ms > 0).then(|| DateTime::from_timestamp_millis(ms)).flatten()
}

/// Returns the Redis command to run after a change with which an order starts or stops waiting. Returns `None` for any
/// other change.
pub fn build_update(rules: &AdmissionRules, was_waiting: bool, order: &Order, now: DateTime<Utc>) -> Option<Command> {
    let area = order.area_id.as_ref()?;
    let waits = order.status.is_searching();
    if was_waiting == waits {
        return None;
    }
    let limits = rules.limits_for(area, &order.service_type);
    let counted_until = limits.counted_until(order.dispatch_start(), order.lifetime_deadline);
    if waits {
        let mut add = cmd("ZADD");
        add.arg(redis_keys::waiting_orders(area, &order.service_type))
            .arg(counted_until.timestamp_millis())
            .arg(order.id.as_str());
        return Some(add.into());
    }
    let found_driver = order.driver_id.is_some();
    let waited = found_driver.then(|| (now - order.dispatch_start()).as_seconds_f64().max(0.0).to_string());
    let was_counted = now < counted_until;
    Some(leave_command(area, &order.service_type, &order.id, waited, was_counted))
}

/// Sends the command from [`build_update`]. Errors are ignored, because the reconciler compares the sets.
pub async fn send_update(core: &Core, update: &Command) {
    let _ = core.query_optional::<i64>("update who waits", update).await;
}

/// Removes from the set an order that does not exist or no longer waits.
pub async fn remove_order(
    core: &Core,
    area: &AreaId,
    service_type: &ServiceType,
    order: &OrderId,
    waited_s: Option<String>,
) {
    let leave = leave_command(area, service_type, order, waited_s, true);
    let _ = core.query_optional::<i64>("give place back", &leave).await;
}

fn leave_command(
    area: &AreaId,
    service_type: &ServiceType,
    order: &OrderId,
    waited_s: Option<String>,
    was_counted: bool,
) -> Command {
    let keys = [redis_keys::waiting_orders(area, service_type), redis_keys::waiting_average(area, service_type)];
    let mut leave = LEAVE.call(keys);
    leave.arg(order.as_str()).arg(waited_s.unwrap_or_default()).arg(WEIGHT).arg(u8::from(!was_counted));
    leave
}

/// Returns the number of waiting orders in Postgres.
pub async fn count_waiting(db: &Pool, area: &AreaId, service_type: &ServiceType) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- count waiting
         SELECT dispatchq_waiting($1, $2)",
    )
    .bind(area)
    .bind(service_type)
    .fetch_one(db)
    .await
}

/// Returns the number of open scheduled orders with a pickup in the hour from `from`.
pub async fn count_scheduled(
    db: &Pool,
    area: &AreaId,
    service_type: &ServiceType,
    from: DateTime<Utc>,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- count scheduled
         SELECT dispatchq_scheduled($1, $2, $3)",
    )
    .bind(area)
    .bind(service_type)
    .bind(from)
    .fetch_one(db)
    .await
}

/// Differences that a comparison with Postgres found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct WaitingDrift {
    pub missing: u64,
    pub left_over: u64,
}

#[derive(sqlx::FromRow)]
struct WaitingOrder {
    area_id: AreaId,
    service_type: ServiceType,
    id: String,
    waits_since: DateTime<Utc>,
    lifetime_deadline: DateTime<Utc>,
}

/// Same as [`repair_waiting_sets`]. Returns `None` if another process is comparing the sets.
pub async fn repair_exclusively(
    areas: &Areas,
    suspects: &mut SuspectMembers,
) -> Result<Option<WaitingDrift>, ServiceError> {
    lock::run_under_lock(&areas.core.upkeep, LOCK, repair_waiting_sets(areas, suspects)).await
}

/// Compares all sets with Postgres, corrects them and sets their markers. Members whose waiting window was changed get
/// their new expiry.
///
/// An order that has just taken a place may not be in Postgres yet. Its score does not show its age, so a member is
/// removed only if it was already missing from Postgres a minute earlier.
pub async fn repair_waiting_sets(areas: &Areas, suspects: &mut SuspectMembers) -> Result<WaitingDrift, ServiceError> {
    // Redis is read first. An order that leaves between the two reads then looks left over, and is not added again by
    // mistake.
    let mut members: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for key in areas.core.store.find_keys(redis_keys::WAITING_SETS, "zset").await? {
        let mut range = cmd("ZRANGE");
        range.arg(&key).arg(0).arg(-1).arg("WITHSCORES");
        let there: Vec<(String, f64)> = areas.core.store.run_command("members", &range).await?;
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds since the epoch")]
        members.insert(key, there.into_iter().map(|(id, until)| (id, until as i64)).collect());
        report_progress();
    }
    let waiters: Vec<WaitingOrder> = sqlx::query_as(
        "-- who waits
         SELECT area_id, service_type, id, coalesce(starts_at, created_at) AS waits_since, lifetime_deadline
         FROM orders
         WHERE searching AND area_id IS NOT NULL
           AND lifetime_deadline > dispatchq_now()",
    )
    .fetch_all(&areas.core.db)
    .await?;
    let mut by_set: BTreeMap<String, BTreeMap<String, i64>> =
        members.keys().map(|key| (key.clone(), BTreeMap::new())).collect();
    let rules = areas.rules.get();
    // Members expire on the clock of Redis, which may differ from the clock of Postgres.
    let now = db::database_now(&areas.core.db).await?;
    let (seconds, micros): (i64, i64) = areas.core.store.run_command("time", &cmd("TIME")).await?;
    let redis_now_ms = seconds * 1000 + micros / 1000;
    for w in waiters {
        let limits = rules.limits_for(&w.area_id, &w.service_type);
        let counted_until = limits.counted_until(w.waits_since, w.lifetime_deadline);
        if counted_until > now {
            let waiting = by_set.entry(redis_keys::waiting_orders(&w.area_id, &w.service_type)).or_default();
            waiting.insert(w.id, redis_now_ms + (counted_until - now).num_milliseconds());
        }
    }
    let mut vouched: BTreeSet<AreaKey> = rules.configured_areas().cloned().collect();
    vouched.extend(by_set.keys().filter_map(|key| {
        let (area, service_type) = redis_keys::parts_of_waiting_set(key)?;
        Some(AreaKey { area, service_type })
    }));
    let mut drift = WaitingDrift::default();
    let mut left_over_now = SuspectMembers::default();
    for (key, wanted) in by_set {
        let there = members.remove(&key).unwrap_or_default();
        let missing: Vec<_> = wanted.iter().filter(|(id, _)| !there.contains_key(*id)).collect();
        let moved =
            |(id, until): &(&String, &i64)| there.get(*id).is_some_and(|known| known.abs_diff(**until) > SAME_END_MS);
        let moved: Vec<_> = wanted.iter().filter(moved).collect();
        for (some, condition) in
            missing.chunks(AT_ONCE).map(|some| (some, "NX")).chain(moved.chunks(AT_ONCE).map(|some| (some, "XX")))
        {
            let mut add = cmd("ZADD");
            add.arg(&key).arg(condition);
            for (id, until) in some {
                add.arg(**until).arg(id.as_str());
            }
            // Counts only new members.
            drift.missing += areas.core.store.run_command::<u64>("mend set", &add).await?;
            report_progress();
        }
        for id in there.into_keys().filter(|id| !wanted.contains_key(id)) {
            let first_seen =
                suspects.0.get(&(key.clone(), id.clone())).copied().unwrap_or_else(std::time::Instant::now);
            if first_seen.elapsed() < YOUNG {
                left_over_now.0.insert((key.clone(), id), first_seen);
            } else {
                drift.left_over +=
                    areas.core.store.run_command::<u64>("mend set", cmd("ZREM").arg(&key).arg(&id)).await?;
            }
        }
    }
    *suspects = left_over_now;
    for AreaKey { area, service_type } in &vouched {
        areas.core.store.run_command::<()>("vouch for set", &vouch_command(area, service_type)).await?;
        report_progress();
    }
    areas
        .core
        .store
        .run_command::<()>("vouch for sets", cmd("SET").arg(redis_keys::WAITING_COMPLETE).arg("complete"))
        .await?;
    gauge!("dispatchq_waiting_drift")
        .set(f64::from(u32::try_from(drift.missing + drift.left_over).unwrap_or(u32::MAX)));
    Ok(drift)
}

/// Members that are missing from Postgres, each with the time at which this was first noticed.
#[derive(Debug, Default)]
pub struct SuspectMembers(BTreeMap<(String, String), std::time::Instant>);

impl SuspectMembers {
    /// Moves the times into the past, for tests.
    pub fn backdate_suspects(&mut self, by: Duration) {
        for first_seen in self.0.values_mut() {
            *first_seen = first_seen.checked_sub(by).unwrap_or(*first_seen);
        }
    }
}

/// Returns whether the sets were compared with Postgres since the last flush.
pub async fn is_complete(core: &Core) -> Result<bool, ServiceError> {
    Ok(core.store.run_command::<i64>("look at sets", cmd("EXISTS").arg(redis_keys::WAITING_COMPLETE)).await? == 1)
}

pub async fn is_set_complete(core: &Core, area: &AreaId, service_type: &ServiceType) -> Result<bool, ServiceError> {
    let mut exists = cmd("EXISTS");
    exists.arg(redis_keys::waiting_complete(area, service_type));
    Ok(core.store.run_command("look at set", &exists).await?)
}
