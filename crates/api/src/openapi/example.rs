//! Examples that several operations show.

use serde_json::{Value, json};

/// An order whose driver is being searched.
pub(crate) fn example_order() -> Value {
    json!({
        "order_id": "ORD-1",
        "status": "DISPATCHING",
        "service_type": "RIDE",
        "area_id": "JKT-PUSAT",
        "customer_id": "CUS-1",
        "payment_status": "PAID",
        "amount_minor": 150_000,
        "currency": "IDR",
        "driver_id": null,
        "attempt_no": 1,
        "held_for_review": false,
        "next": { "action": "OFFER_TIMEOUT", "at": "2026-01-09T08:02:00Z", "in_sec": 100 },
        "created_at": "2026-01-09T08:00:00Z",
        "lifetime_deadline": "2026-01-09T08:30:00Z",
        "lifetime_left_sec": 1780,
        "closed_at": null,
    })
}

/// The limits of one service type in one area.
pub(crate) fn example_area_limits() -> Value {
    json!({
        "area_id": "JKT-PUSAT",
        "service_type": "RIDE",
        "max_waiting_orders": 100,
        "dispatch_timeout_sec": null,
        "order_lifetime_sec": 1800,
        "retry_interval_sec": null,
        "busy_retry_interval_sec": null,
        "cooldown_period_sec": null,
        "low_water_percentage": null,
        "bypass_enabled": true,
        "bypass_loyalty_levels": ["VOYAGER", "ELITE"],
        "max_bypass_percentage": 20,
        "enabled": true,
        "priority": 0,
        "version": 3,
    })
}

/// The flag in a trial: refusals are counted, and none is made.
pub(crate) fn example_flag() -> Value {
    json!({
        "enabled": true,
        "enabled_areas": ["JKT-PUSAT"],
        "enabled_channels": [],
        "percentage": 100,
        "shadow_mode": true,
        "version": 2,
    })
}

/// An alert that support has taken care of.
pub(crate) fn example_alert() -> Value {
    json!({
        "id": 1,
        "order_id": "ORD-1",
        "kind": "MANUAL_REFUND_REQUIRED",
        "raised_at": "2026-01-09T08:30:00Z",
        "escalations": 0,
        "next_escalation_at": null,
        "gave_up_at": null,
        "acked_at": "2026-01-09T08:40:00Z",
        "acked_by": "support:anna",
        "ack_note": "refunded by hand",
        "payload": { "order_id": "ORD-1", "amount_minor": 150_000, "currency": "IDR" },
    })
}

/// The place of a driver who wants work.
pub(crate) fn example_place() -> Value {
    json!({ "driver_id": "DRV-1", "latitude": -6.2088, "longitude": 106.8456, "available": true })
}

/// An area of one rectangle.
pub(crate) fn example_area() -> Value {
    json!({
        "id": "JKT-PUSAT",
        "name": "Jakarta Pusat",
        "priority": 0,
        "geohashes": [],
        "has_polygons": true,
        "version": 1,
        "updated_at": "2026-01-09T08:00:00Z",
    })
}

/// The same area as it is imported.
pub(crate) fn example_collection() -> Value {
    let corners = [[106.80, -6.22], [106.86, -6.22], [106.86, -6.15], [106.80, -6.15], [106.80, -6.22]];
    json!({
        "type": "FeatureCollection",
        "features": [{
            "type": "Feature",
            "properties": { "area_id": "JKT-PUSAT", "name": "Jakarta Pusat" },
            "geometry": { "type": "Polygon", "coordinates": [corners] },
        }],
    })
}

/// An area with room.
pub(crate) fn example_status() -> Value {
    json!({
        "area_id": "JKT-PUSAT",
        "service_type": "RIDE",
        "waiting": 45,
        "threshold": 100,
        "utilization": 0.45,
        "mode": "AUTO",
        "oldest_waiting_since": "2026-01-09T08:00:00Z",
    })
}
