//! All Redis keys that the engine does not own, with type and expiry. The engine's keys are in `queue::keys`.
//!
//! These values are hints: Postgres has all of them, or can work without them. Names fixed by the requirements are kept
//! exactly, because other programs read them. All other names start with `dispatchq:`.
//!
//! In a Redis Cluster, the keys of one script must be in one slot. A dependent key has the whole name of its main key
//! as hash tag. It is therefore in the same slot, and the main key's name needs no hash tag.

use jobs::{BindingId, OrderId};
use model::ids::{AreaId, ServiceType};
use uuid::Uuid;

/// Pattern that matches every set of [`waiting_orders`].
pub const WAITING_SETS: &str = "waiting:order:*";

/// Returns the area and the service type of a key of [`waiting_orders`].
pub fn parts_of_waiting_set(key: &str) -> Option<(AreaId, ServiceType)> {
    let (area, service_type) = key.strip_prefix(WAITING_SETS.trim_end_matches('*'))?.rsplit_once(':')?;
    Some((area.into(), service_type.into()))
}

/// string: marks that the sets of [`waiting_orders`] have been compared with Postgres. No expiry: only a flush removes
/// it, and then all sets are compared immediately.
pub const WAITING_COMPLETE: &str = "dispatchq:waiting:complete";

/// string, ms: time since which Postgres accepts no writes, set by the first worker that notices. Removed when it
/// accepts writes again; expires after a day.
pub const OUTAGE_SINCE: &str = "dispatchq:outage:since";

/// zset, driver -> time of the next check for waiting orders nearby, ms: drivers who may be free again. Expires an hour
/// after the last addition.
pub const FREED_DRIVERS: &str = "dispatchq:freed";

/// stream of `binding_id`, `command`, `reason`, `actor`, `at`: the latest 10,000 commands to bindings. The requirement
/// fixes the name.
pub const BINDING_COMMANDS: &str = "wrk:cmd";

/// Returns the keys of a binding's copies. The requirement fixes their names. Only the lock expires; the others are
/// removed with the binding. hash `wrk:state:{id}` (`state`, `reason`, `updated_at` in ms, `version`, `owner` of the
/// latest change, `cycle`, `phase`, `row` as JSON without an OTP), hash `wrk:cfg:{id}` (its settings), string
/// `wrk:lock:{id}` (`owner fence` while a call is open, removed when the call ends), string `wrk:hb:{id}` (time of a
/// worker's last activity on it, in ms).
pub fn binding_copies(id: &BindingId) -> [String; 4] {
    [format!("wrk:state:{id}"), format!("wrk:cfg:{id}"), format!("wrk:lock:{id}"), format!("wrk:hb:{id}")]
}

/// string `claimed` or `told`: the notification of support about this outage over this channel is being sent, or was
/// sent. Expires after 60 s, or a day.
pub fn outage_told(since_ms: u64, channel: &str) -> String {
    format!("dispatchq:outage:told:{since_ms}:{channel}")
}

/// string, driver: the driver that is accepting this order. Expires after 10 s. The requirement fixes the name.
pub fn trip_lock(order: &OrderId) -> String {
    format!("trip_lock:{order}")
}

/// hash, offer -> driver, and `taken` -> the accepted offer: the offers of an order that is offered to several drivers.
/// It has the same Redis slot as the order's [`trip_lock`] and expires with the offers.
pub fn offered_drivers(order: &OrderId) -> String {
    format!("dispatchq:offered:{{trip_lock:{order}}}")
}

/// zset, order -> time in ms until which it counts: orders that wait in this area. No expiry: an order is removed when
/// a driver is found, or at the next read after its time. The requirement fixes the name.
pub fn waiting_orders(area: &AreaId, service_type: &ServiceType) -> String {
    format!("waiting:order:{area}:{service_type}")
}

/// string: marks that this set of [`waiting_orders`] is complete. In the slot of the set. Expires a day after the last
/// comparison with Postgres. While it is missing, Postgres counts the orders.
pub fn waiting_complete(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:complete:{{waiting:order:{area}:{service_type}}}")
}

/// hash `threshold`, `timeout_seconds`: copy of an area's limits for other programs. Expires an hour after the last
/// copy. The requirement fixes the name.
pub fn threshold_config(area: &AreaId, service_type: &ServiceType) -> String {
    format!("threshold:config:{area}:{service_type}")
}

/// string `ms:threshold`: time since which this area is busy. In the slot of its set of [`waiting_orders`]. Expires
/// after a day.
pub fn waiting_busy(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:busy:{{waiting:order:{area}:{service_type}}}")
}

/// string, seconds: average wait of the orders that found a driver. In the slot of the set of [`waiting_orders`].
/// Expires an hour after the last update.
pub fn waiting_average(area: &AreaId, service_type: &ServiceType) -> String {
    format!("dispatchq:waiting:average:{{waiting:order:{area}:{service_type}}}")
}

/// geo: available drivers of a service type. Expires an hour after the last change.
pub fn driver_places(service_type: &ServiceType) -> String {
    format!("dispatchq:drivers:{service_type}")
}

/// string: marks that the index of [`driver_places`] is reliable. In the slot of the index. Expires 120 s after the
/// index was built.
pub fn drivers_trusted(service_type: &ServiceType) -> String {
    format!("dispatchq:drivers:trusted:{{dispatchq:drivers:{service_type}}}")
}

/// geo: an index of [`driver_places`] that one process is building. In the slot of the index that it replaces when
/// finished. Expires after a minute if it is not finished.
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

    /// Keys that one script or RENAME uses together.
    #[test]
    fn keys_used_together_share_a_slot() {
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
    fn required_key_names_are_exact() {
        let (area, service_type) = (AreaId::from("JKT"), ServiceType::from("RIDE"));
        assert_eq!(waiting_orders(&area, &service_type), "waiting:order:JKT:RIDE");
        assert_eq!(trip_lock(&"ORD-1".parse().unwrap()), "trip_lock:ORD-1");
    }
}
