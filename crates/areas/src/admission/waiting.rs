//! Who waits where: `waiting:order:{area}:{service type}`, a sorted set of order ids by the time until which they count, as the
//! requirement on server busy names it. An order counts until its lifetime ends, or until the window of its area has passed.
//!
//! It heals by itself: an order past that time is dropped with the next look, and the reconciler compares it with
//! Postgres. A marker beside each set vouches for it; while it is missing (Redis, or the node of a cluster that holds the set, was
//! flushed) Postgres counts. A set that is met for the first time is vouched for at once if Postgres says that no one waits there.

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
use redis::{Cmd, FromRedisValue, cmd};

use crate::{capability::Areas, rules::AdmissionRules, standings::AreaStanding};
use foundation::{
    core::Core,
    db::{self, Pool, lock},
    error::ServiceError,
    loops::report_progress,
    redis_keys,
};

/// Lock of the process that compares the sets with Postgres. Any number, the same in every process.
const LOCK: i64 = 0x6470_706c_6163_6573;
/// An order that is not in the database yet may still be on its way there.
const YOUNG: Duration = Duration::from_secs(60);
/// Two clocks are read one after the other: ends that differ by so many milliseconds are the same.
const SAME_END_MS: u64 = 5_000;
/// Members put back by one command: after a flush whole areas are missing.
const AT_ONCE: usize = 1_000;
/// How long a set is believed after it was last compared with Postgres, which happens once a minute.
const VOUCHED_S: u64 = 86_400;
/// Of the average wait that the latest assignment makes up.
const WEIGHT: f64 = 0.1;

/// What the gatekeeper says to an order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlaceOutcome {
    /// It has a place, and had one before if it came twice.
    Taken {
        bypassed: bool,
    },
    Full,
}

/// Drops orders that no longer count, and counts. KEYS: marker of the set, set, busy, average. Returns nothing while the marker is
/// missing, else count, busy since and at which threshold (`ms:threshold`, empty: it is not), until when the oldest counts (0:
/// none), average wait.
/// Bound: as many as expired since the last look.
const LOOK: &str = "
    if redis.call('EXISTS', KEYS[1]) == 0 then return false end
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    local oldest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    return { redis.call('ZCARD', KEYS[2]), redis.call('GET', KEYS[3]) or '', tonumber(oldest[2] or 0),
             redis.call('GET', KEYS[4]) or '' }";

/// Takes a place. KEYS: marker of the set, set, busy. ARGV: order, how many ms it counts, threshold (-1: none), most with bypass (-1: no bypass),
/// cooldown ms, low water mark, 1 to take a place even if there is none. Returns nothing while the marker is missing, else
/// 1 taken, 2 taken by bypass, 0 full; and the count before, busy since.
/// Bound: as many as expired since the last look.
const TAKE: &str = "
    if redis.call('EXISTS', KEYS[1]) == 0 then return false end
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    local count = redis.call('ZCARD', KEYS[2])
    local since = 0
    local busy = redis.call('GET', KEYS[3])
    if busy then
        -- It was full by another threshold: that says nothing of this one.
        local ms, at = string.match(busy, '(%d+):(-?%d+)')
        if at == ARGV[3] then since = tonumber(ms) end
    end
    if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return { 1, count - 1, since } end
    local threshold, most = tonumber(ARGV[3]), tonumber(ARGV[4])
    local answer = 1
    if threshold >= 0 then
        if count >= threshold then
            if since == 0 then
                since = now
                redis.call('SET', KEYS[3], string.format('%d:%s', since, ARGV[3]), 'PX', 86400000)
            end
        elseif since > 0 and now >= since + tonumber(ARGV[5]) and count < tonumber(ARGV[6]) then
            since = 0
            redis.call('DEL', KEYS[3])
        end
        if count >= threshold or since > 0 then
            answer = 0
            if count < most then answer = 2 end
        end
    end
    if answer > 0 or ARGV[7] == '1' then redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1]) end
    return { answer, count, since }";

/// Gives a place back. KEYS: set, average. ARGV: order, seconds it waited (empty: it found no driver), weight of the latest, 1 if the
/// order no longer counted.
const LEAVE: &str = "
    local left = redis.call('ZREM', KEYS[1], ARGV[1])
    if (left == 1 or ARGV[4] == '1') and ARGV[2] ~= '' then
        local before = tonumber(redis.call('GET', KEYS[2]) or ARGV[2])
        local average = before + (tonumber(ARGV[2]) - before) * tonumber(ARGV[3])
        redis.call('SET', KEYS[2], string.format('%.3f', average), 'EX', 3600)
    end
    return 1";

/// How the area stands, as Redis knows it; `None`: it does not.
pub async fn read_counts(core: &Core, area: &AreaId, service_type: &ServiceType) -> Option<AreaStanding> {
    let mut look = cmd("EVAL");
    look.arg(LOOK)
        .arg(4)
        .arg(redis_keys::waiting_complete(area, service_type))
        .arg(redis_keys::waiting_orders(area, service_type))
        .arg(redis_keys::waiting_busy(area, service_type));
    look.arg(redis_keys::waiting_average(area, service_type));
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

/// Reads `ms:threshold`: since when an area is busy, and by which threshold. Empty: it is not.
fn parse_busy(busy: &str) -> AreaStanding {
    let (since, threshold) = busy.split_once(':').unwrap_or_default();
    AreaStanding {
        standing: AreaLoad { waiting: 0, busy_since: since.parse().ok().and_then(time_of_ms) },
        busy_threshold: threshold.parse().ok(),
        ..AreaStanding::default()
    }
}

/// Returns since when an area is busy, without its count; `None`: Redis does not answer.
pub async fn read_busy(core: &Core, area: &AreaId, service_type: &ServiceType) -> Option<AreaStanding> {
    let mut get = cmd("GET");
    get.arg(redis_keys::waiting_busy(area, service_type));
    let busy = core.query_optional::<Option<String>>("look at busy area", &get).await.ok()?;
    Some(parse_busy(&busy.unwrap_or_default()))
}

/// Takes a place for an order, if the gate lets it in; `None`: Redis does not know. With `anyway` it is counted in any case.
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
    let mut take = cmd("EVAL");
    take.arg(TAKE)
        .arg(3)
        .arg(redis_keys::waiting_complete(area, service_type))
        .arg(redis_keys::waiting_orders(area, service_type))
        .arg(redis_keys::waiting_busy(area, service_type));
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

/// Runs a script that returns nothing while the set's marker is missing. One that is met for the first time gets it.
async fn ask_vouched_set<T: FromRedisValue>(
    core: &Core,
    (area, service_type): (&AreaId, &ServiceType),
    name: &'static str,
    script: &Cmd,
) -> Option<T> {
    if let Some(answer) = core.query_optional::<Option<T>>(name, script).await.ok()? {
        return Some(answer);
    }
    if !vouch_for_empty(core, area, service_type).await {
        return None;
    }
    core.query_optional::<Option<T>>(name, script).await.ok()?
}

/// Vouches for a set if Redis has not been flushed and Postgres says that no order waits there. Returns whether the set is worth asking
/// again: an order that came in between may have brought the marker.
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

/// Returns what Redis is to be told of an order that was changed: it waits no longer, or again. `None`: nothing of that has changed.
pub fn build_update(rules: &AdmissionRules, was_waiting: bool, order: &Order, now: DateTime<Utc>) -> Option<Cmd> {
    let area = order.area_id.as_ref()?;
    let waits = order.status.is_searching();
    if was_waiting == waits {
        return None;
    }
    let limits = rules.limits_for(area, &order.service_type);
    let counted_until = limits.counted_until(order.created_at, order.lifetime_deadline);
    if waits {
        let mut add = cmd("ZADD");
        add.arg(redis_keys::waiting_orders(area, &order.service_type))
            .arg(counted_until.timestamp_millis())
            .arg(order.id.as_str());
        return Some(add);
    }
    let found_driver = order.driver_id.is_some();
    let waited = found_driver.then(|| (now - order.created_at).as_seconds_f64().max(0.0).to_string());
    let was_counted = now < counted_until;
    Some(leave_command(area, &order.service_type, &order.id, waited, was_counted))
}

/// Sends what [`build_update`] returned. A failure is no harm: the reconciler compares.
pub async fn send_update(core: &Core, update: &Cmd) {
    let _ = core.query_optional::<i64>("update who waits", update).await;
}

/// The order is not there, or waits no longer.
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
) -> Cmd {
    let mut leave = cmd("EVAL");
    leave
        .arg(LEAVE)
        .arg(2)
        .arg(redis_keys::waiting_orders(area, service_type))
        .arg(redis_keys::waiting_average(area, service_type));
    leave.arg(order.as_str()).arg(waited_s.unwrap_or_default()).arg(WEIGHT).arg(u8::from(!was_counted));
    leave
}

/// As Postgres counts.
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

/// What a comparison with Postgres found.
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
    created_at: DateTime<Utc>,
    lifetime_deadline: DateTime<Utc>,
}

/// As [`repair_waiting_sets`]. Returns `None` if another process is comparing the sets.
pub async fn repair_exclusively(
    areas: &Areas,
    suspects: &mut SuspectMembers,
) -> Result<Option<WaitingDrift>, ServiceError> {
    lock::run_under_lock(&areas.core.upkeep, LOCK, repair_waiting_sets(areas, suspects)).await
}

/// Compares all sets with Postgres and mends them, then vouches for them. Where a window was changed the members get their new end. An order that has just taken a place may not be in
/// Postgres yet, and is left alone for a minute: an order's expiry tells its age only by its lifetime, so members are
/// removed in a second look, when they were left over at the first, too.
pub async fn repair_waiting_sets(areas: &Areas, suspects: &mut SuspectMembers) -> Result<WaitingDrift, ServiceError> {
    // Redis first: an order that leaves between the two looks is then left over, and never put back.
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
         SELECT area_id, service_type, id, created_at, lifetime_deadline FROM orders
         WHERE status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING') AND area_id IS NOT NULL
           AND lifetime_deadline > dispatchq_now()",
    )
    .fetch_all(&areas.core.db)
    .await?;
    let mut by_set: BTreeMap<String, BTreeMap<String, i64>> =
        members.keys().map(|key| (key.clone(), BTreeMap::new())).collect();
    let rules = areas.rules.get();
    // Members are dropped by the clock of Redis, which may differ from that of Postgres.
    let now = db::database_now(&areas.core.db).await?;
    let (seconds, micros): (i64, i64) = areas.core.store.run_command("time", &cmd("TIME")).await?;
    let redis_now_ms = seconds * 1000 + micros / 1000;
    for w in waiters {
        let limits = rules.limits_for(&w.area_id, &w.service_type);
        let counted_until = limits.counted_until(w.created_at, w.lifetime_deadline);
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
            // Counts new members alone.
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

/// Members that Postgres does not know, and since when they have been seen so.
#[derive(Debug, Default)]
pub struct SuspectMembers(BTreeMap<(String, String), std::time::Instant>);

impl SuspectMembers {
    /// For tests: as if they had been seen so much earlier.
    pub fn backdate_suspects(&mut self, by: Duration) {
        for first_seen in self.0.values_mut() {
            *first_seen = first_seen.checked_sub(by).unwrap_or(*first_seen);
        }
    }
}

/// Returns whether the sets have been compared with Postgres since the last flush.
pub async fn is_complete(core: &Core) -> Result<bool, ServiceError> {
    Ok(core.store.run_command::<i64>("look at sets", cmd("EXISTS").arg(redis_keys::WAITING_COMPLETE)).await? == 1)
}

/// Returns whether one set is vouched for.
pub async fn is_set_complete(core: &Core, area: &AreaId, service_type: &ServiceType) -> Result<bool, ServiceError> {
    let mut exists = cmd("EXISTS");
    exists.arg(redis_keys::waiting_complete(area, service_type));
    Ok(core.store.run_command("look at set", &exists).await?)
}
