//! Drivers who may be free again: they moved, began to want work, or lost an order or an offer. Workers look whether orders wait
//! near them; see `fleet::waiting_orders`.
//!
//! A hint like everything in Redis: one that is lost costs time, for each order that waits searches by itself as well.

use std::time::Duration;

use model::ids::DriverId;
use redis::cmd;

use foundation::{core::Core, error::ServiceError, redis_keys};

/// Drivers whom no worker looks at are forgotten after this.
const KEPT_SECS: u64 = 3_600;

/// Notes drivers who are to be looked at after a delay; one who is to be looked at earlier stays so. KEYS: set. ARGV: delay ms,
/// seconds after which the set is forgotten, drivers.
/// Bound: as many as one change frees.
const RECORD: &str = "
    local time = redis.call('TIME')
    local at = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
    for n = 3, #ARGV do redis.call('ZADD', KEYS[1], 'LT', at, ARGV[n]) end
    return redis.call('EXPIRE', KEYS[1], ARGV[2])";

/// Takes drivers who are to be looked at by now, those who have waited longest first. KEYS: set. ARGV: how many at most.
const TAKE: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local drivers = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
    if #drivers > 0 then redis.call('ZREM', KEYS[1], unpack(drivers)) end
    return drivers";

/// Has these drivers looked at soon.
pub(crate) async fn record_freed(core: &Core, drivers: &[DriverId]) {
    record_freed_in(core, drivers, Duration::ZERO).await;
}

/// Has these drivers looked at after this time.
pub(crate) async fn record_freed_in(core: &Core, drivers: &[DriverId], delay: Duration) {
    if drivers.is_empty() {
        return;
    }
    let mut record = cmd("EVAL");
    record.arg(RECORD).arg(1).arg(redis_keys::FREED_DRIVERS);
    record.arg(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)).arg(KEPT_SECS);
    for driver in drivers {
        record.arg(driver.as_str());
    }
    if let Err(error) = core.query_optional::<i64>("record freed drivers", &record).await {
        tracing::debug!(%error, "Drivers who are free again were not noted; orders near them search by themselves.");
    }
}

/// Returns whether any driver is noted: one command, which is all that an idle worker asks.
pub(crate) async fn is_any_freed(core: &Core) -> Result<bool, ServiceError> {
    let mut exists = cmd("EXISTS");
    exists.arg(redis_keys::FREED_DRIVERS);
    Ok(core.store.run_command("look for freed drivers", &exists).await?)
}

/// Takes drivers whose time has come. Another process that asks gets others.
pub(crate) async fn take_freed(core: &Core, most: usize) -> Result<Vec<DriverId>, ServiceError> {
    let mut take = cmd("EVAL");
    take.arg(TAKE).arg(1).arg(redis_keys::FREED_DRIVERS).arg(most);
    let drivers: Vec<String> = core.store.run_command("take freed drivers", &take).await?;
    Ok(drivers.into_iter().map(DriverId::from).collect())
}
