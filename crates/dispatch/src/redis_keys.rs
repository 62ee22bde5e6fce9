//! Every Redis key beside those of the engine, with its type and lifetime. The engine's are in `workers::keys`.
//!
//! What lies here is a hint: Postgres knows all of it, or can do without. Names that the requirements fix are kept to the
//! letter, for other programs read them; all others begin with `dispatchq:`.

use jobs::{BindingId, OrderId};
use model::ids::{AreaId, ServiceType};
use uuid::Uuid;

/// Finds every set of [`waiting_orders`].
pub const WAITING_SETS: &str = "waiting:order:*";

/// The area and the service type of a key of [`waiting_orders`].
pub fn parts_of_waiting_set(key: &str) -> Option<(AreaId, ServiceType)> {
    let (area, service_type) = key.strip_prefix(WAITING_SETS.trim_end_matches('*'))?.rsplit_once(':')?;
    Some((area.into(), service_type.into()))
}

/// string: the sets of [`waiting_orders`] are complete. No expiry: only a flush removes it, and then Postgres counts.
pub const WAITING_COMPLETE: &str = "dispatchq:waiting:complete";

/// string, ms: since when Postgres takes no writes, as the first worker that noticed saw it. Removed when it does again; expires after
/// a day.
pub const OUTAGE_SINCE: &str = "dispatchq:outage:since";

/// string: the indexes of [`driver_places`] are believed. Expires 120 s after they were built.
pub const DRIVERS_TRUSTED: &str = "dispatchq:drivers";

/// zset, driver -> when to look whether orders wait near, ms: drivers who may be free again. Expires an hour after the last.
pub const FREED_DRIVERS: &str = "dispatchq:freed";

/// stream of `binding_id`, `command`, `reason`, `actor`, `at`: what was asked of bindings, the latest 10,000. The name is the
/// requirement's.
pub const BINDING_COMMANDS: &str = "wrk:cmd";

/// The copies of a binding, whose names are the requirement's. No expiry but the lock's; removed with the binding.
/// hash `wrk:state:{id}` (`state`, `reason`, `updated_at` in ms, `version`), hash `wrk:cfg:{id}` (its settings), string
/// `wrk:lock:{id}` (`owner fence` while a call is open, ends with it), hash `wrk:hb:{id}` (`at` in ms, `owner`, `cycle`,
/// `phase`).
pub fn binding_copies(id: &BindingId) -> [String; 4] {
    [format!("wrk:state:{id}"), format!("wrk:cfg:{id}"), format!("wrk:lock:{id}"), format!("wrk:hb:{id}")]
}

/// string `claimed` or `told`: support is being told of this outage over this channel, or was. Expires after 60 s, or a day.
pub fn outage_told(since_ms: u64, channel: &str) -> String {
    format!("dispatchq:outage:told:{since_ms}:{channel}")
}

/// string, driver: who is taking this order right now. Expires after 10 s. The name is the requirement's.
pub fn trip_lock(order: &OrderId) -> String {
    format!("trip_lock:{order}")
}

/// hash, offer -> driver, and `taken` -> the offer by which the order was taken: an order that several drivers are asked for.
/// Expires with the offers.
pub fn offered_drivers(order: &OrderId) -> String {
    format!("dispatchq:offered:{order}")
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
