//! Drivers who may be free again: they moved, became available, or lost an order or an offer. Workers check whether
//! orders wait near them; see `fleet::waiting_orders`.
//!
//! This is a hint like everything in Redis. A lost hint only costs time, because each waiting order also searches for
//! drivers.

use std::time::Duration;

use model::ids::DriverId;
use queue::LuaScript;
use redis::cmd;

use foundation::{core::Core, error::ServiceError, redis_keys};

/// Seconds after the last recorded driver until Redis drops all of them.
const KEPT_SECS: u64 = 3_600;

static RECORD: LuaScript = LuaScript::new(include_str!("scripts/record_freed.lua"));

static TAKE: LuaScript = LuaScript::new(include_str!("scripts/take_freed.lua"));

/// Records drivers to check after `delay`.
pub(crate) async fn record_freed(core: &Core, drivers: &[DriverId], delay: Duration) {
    if drivers.is_empty() {
        return;
    }
    let mut record = RECORD.call([redis_keys::FREED_DRIVERS]);
    record.arg(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)).arg(KEPT_SECS);
    for driver in drivers {
        record.arg(driver.as_str());
    }
    if let Err(error) = core.query_optional::<i64>("record freed drivers", &record).await {
        tracing::debug!(%error, "Freed drivers could not be recorded; orders near them continue to search.");
    }
}

/// Returns whether any driver is recorded. This is the only command of an idle worker.
pub(crate) async fn is_any_freed(core: &Core) -> Result<bool, ServiceError> {
    let mut exists = cmd("EXISTS");
    exists.arg(redis_keys::FREED_DRIVERS);
    Ok(core.store.run_command("look for freed drivers", &exists).await?)
}

/// Takes drivers whose delay has passed. Only one process gets a driver.
pub(crate) async fn take_freed(core: &Core, most: usize) -> Result<Vec<DriverId>, ServiceError> {
    let mut take = TAKE.call([redis_keys::FREED_DRIVERS]);
    take.arg(most);
    let drivers: Vec<String> = core.store.run_command("take freed drivers", &take).await?;
    Ok(drivers.into_iter().map(DriverId::from).collect())
}
