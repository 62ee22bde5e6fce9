//! All Redis keys that the engine does not own, with type and lifetime. The keys of the engine are in `queue::keys`.
//!
//! What lies here is a hint: Postgres knows all of it, or can do without. Names that the requirements fix are kept to the
//! letter, for other programs read them; all others begin with `dispatchq:`.
//!
//! In a Redis Cluster the keys of one script must lie in one slot. A key that belongs to another has that one's whole name as hash
//! tag, and so lies beside it: the name of the other stays as it is.

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

/// string: the sets of [`waiting_orders`] have been compared with Postgres. No expiry: only a flush removes it, and then all are compared
/// at once.
pub const WAITING_COMPLETE: &str = "dispatchq:waiting:complete";

/// string, ms: since when Postgres takes no writes, as the first worker that noticed saw it. Removed when it does again; expires after
/// a day.
pub const OUTAGE_SINCE: &str = "dispatchq:outage:since";

/// zset, driver -> when to look whether orders wait near, ms: drivers who may be free again. Expires an hour after the last.
pub const FREED_DRIVERS: &str = "dispatchq:freed";

/// stream of `binding_id`, `command`, `reason`, `actor`, `at`: what was asked of bindings, the latest 10,000. The name is the
/// requirement's.
pub const BINDING_COMMANDS: &str = "wrk:cmd";

/// The copies of a binding, whose names are the requirement's. No expiry but the lock's; removed with the binding.
/// hash `wrk:state:{id}` (`state`, `reason`, `updated_at` in ms, `version`, `owner` of the latest change, `cycle`, `phase`, `row` as
/// JSON without an OTP), hash `wrk:cfg:{id}` (its settings), string `wrk:lock:{id}` (`owner fence` while a call is open, ends with
/// it), string `wrk:hb:{id}` (when a worker was last at work on it, in ms).
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
/// Beside the order's [`trip_lock`]. Expires with the offers.
pub fn offered_drivers(order: &OrderId) -> String {
    format!("dispatchq:offered:{{trip_lock:{order}}}")
}

/// zset, order -> until when it counts, in ms: who waits in this area. No expiry: an order leaves when it is found a driver,
/// and with the next look after that time. The name is the requirement's.
pub fn waiting_orders(area: &AreaId, service_type: &ServiceType) -> String {
    format!("waiting:order:{area}:{service_type}")
}

/// string: this set of [`waiting_orders`] is complete. Beside it. Expires a day after the last comparison with Postgres; while it is
/// missing Postgres counts.
pub fn waiting_complete(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:complete:{{waiting:order:{area}:{service_type}}}")
}

/// hash `threshold`, `timeout_seconds`: a copy of an area's limits, for others to read. Expires an hour after the last
/// copy. The name is the requirement's.
pub fn threshold_config(area: &AreaId, service_type: &ServiceType) -> String {
    format!("threshold:config:{area}:{service_type}")
}

/// string `ms:threshold`: since when this area is busy. Beside its set of [`waiting_orders`]. Expires after a day.
pub fn waiting_busy(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:busy:{{waiting:order:{area}:{service_type}}}")
}

/// string, seconds: how long orders waited that found a driver, on average. Beside the set of [`waiting_orders`]. Expires an hour after
/// the last.
pub fn waiting_average(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:average:{{waiting:order:{area}:{service_type}}}")
}

/// geo: the available drivers of a service type. Expires an hour after the last change.
pub fn driver_places(service_type: &ServiceType) -> String {
    format!("dispatchq:drivers:{service_type}")
}

/// string: the index of [`driver_places`] is believed. Beside it. Expires 120 s after it was built.
pub fn drivers_trusted(service_type: &ServiceType) -> String {
    format!("dispatchq:drivers:trusted:{{dispatchq:drivers:{service_type}}}")
}

/// geo: an index of [`driver_places`] while one process builds it. Beside the one whose place it takes when finished; expires after a
/// minute if not.
pub fn drivers_unfinished(service_type: &ServiceType) -> String {
    format!("dispatchq:drivers:unfinished:{{dispatchq:drivers:{service_type}}}:{}", Uuid::now_v7())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[track_caller]
    fn assert_one_slot(keys: &[String]) {
        let slots: BTreeSet<u16> = keys.iter().map(|key| queue::store::key_slot(key.as_bytes())).collect();
        assert_eq!(slots.len(), 1, "{keys:?}");
    }

    /// Those that scripts and RENAME name together.
    #[test]
    fn keys_that_are_named_together_lie_in_one_slot() {
        for (area, service_type) in [("JKT", "RIDE"), ("a:b", "TAXI"), ("", "X")] {
            let (area, service_type) = (AreaId::from(area), ServiceType::from(service_type));
            assert_one_slot(&[
                waiting_orders(&area, &service_type),
                waiting_complete(&area, &service_type),
                waiting_busy(&area, &service_type),
                waiting_average(&area, &service_type),
            ]);
            assert_one_slot(&[
                driver_places(&service_type),
                drivers_trusted(&service_type),
                drivers_unfinished(&service_type),
            ]);
        }
        let order: OrderId = "ORD-1".parse().unwrap();
        assert_one_slot(&[trip_lock(&order), offered_drivers(&order)]);
    }

    /// Names that other programs read.
    #[test]
    fn required_names_are_kept_to_the_letter() {
        let (area, service_type) = (AreaId::from("JKT"), ServiceType::from("RIDE"));
        assert_eq!(waiting_orders(&area, &service_type), "waiting:order:JKT:RIDE");
        assert_eq!(trip_lock(&"ORD-1".parse().unwrap()), "trip_lock:ORD-1");
    }
}
