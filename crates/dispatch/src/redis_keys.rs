//! Every Redis key beside those of the engine, with its type and lifetime. The engine's are in `workers::keys`.
//!
//! What lies here is a hint: Postgres knows all of it, or can do without. Names that the requirements fix are kept to the
//! letter, for other programs read them; all others begin with `dispatchq:`.

use jobs::OrderId;
use model::ids::{AreaId, ServiceType};
use uuid::Uuid;

/// Finds every set of [`waiting_orders`].
pub const WAITING_SETS: &str = "waiting:order:*";

/// string: the sets of [`waiting_orders`] are complete. No expiry: only a flush removes it, and then Postgres counts.
pub const WAITING_COMPLETE: &str = "dispatchq:waiting:complete";

/// hash, `{area}:{service type}:{what}` -> how often, since the last snapshot. Renamed to [`WAITING_COUNTS_TAKEN`] once a
/// minute.
pub const WAITING_COUNTS: &str = "dispatchq:waiting:counts";

/// hash, as [`WAITING_COUNTS`]: counts that a snapshot is about to keep. Removed when it has.
pub const WAITING_COUNTS_TAKEN: &str = "dispatchq:waiting:counts:taken";

/// string: the indexes of [`driver_places`] are believed. Expires 120 s after they were built.
pub const DRIVERS_TRUSTED: &str = "dispatchq:drivers";

/// string, driver: who is taking this order right now. Expires after 10 s. The name is the requirement's.
pub fn trip_lock(order: &OrderId) -> String {
    format!("trip_lock:{order}")
}

/// zset, order -> end of its lifetime in ms: who waits in this area. No expiry: an order leaves when it is found a driver,
/// and with the next look after its lifetime. The name is the requirement's.
pub fn waiting_orders(area: &AreaId, service_type: &ServiceType) -> String {
    format!("waiting:order:{area}:{service_type}")
}

/// hash `threshold`, `timeout_seconds`: a copy of an area's limits, for others to read. Expires an hour after the last
/// copy. The name is the requirement's.
pub fn threshold_config(area: &AreaId, service_type: &ServiceType) -> String {
    format!("threshold:config:{area}:{service_type}")
}

/// string `ms:threshold`: since when this area is busy. Expires after a day.
pub fn waiting_busy(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:busy:{area}:{service_type}")
}

/// string, seconds: how long orders waited that found a driver, on average. Expires an hour after the last.
pub fn waiting_average(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:average:{area}:{service_type}")
}

/// geo: the available drivers of a service type. Expires an hour after the last change.
pub fn driver_places(service_type: &ServiceType) -> String {
    format!("{DRIVERS_TRUSTED}:{service_type}")
}

/// geo: an index of [`driver_places`] while one process builds it. Takes its place when finished, expires after a minute if not.
pub fn drivers_unfinished(service_type: &ServiceType) -> String {
    format!("{DRIVERS_TRUSTED}:{service_type}:{}", Uuid::now_v7())
}
