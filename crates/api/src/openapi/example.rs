//! Examples that several operations share.

use model::order::OrderStep;
use serde_json::{Value, json};

use crate::error::codes;

/// Returns an order that waits for a driver.
pub(crate) fn example_order() -> Value {
    json!({
        "order_id": "ORD-1",
        "status": "DISPATCHING",
        "service_type": "RIDE",
        "area_id": "JKT-PUSAT",
        "customer_id": "CUS-1",
        "language": "id",
        "pickup": { "latitude": -6.2088, "longitude": 106.8456 },
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

/// Returns a paid order that was cancelled with the passenger aboard.
pub(crate) fn example_cancelled() -> Value {
    let mut order = example_order();
    order["status"] = json!("CANCELLED_BY_USER");
    order["driver_id"] = json!("bbd:D-1");
    order["partner"] = json!("bbd");
    order["paid_at"] = json!("2026-01-09T08:00:00Z");
    order["refund"] = json!({ "state": "owed", "amount_minor": 150_000, "currency": "IDR" });
    order["closed_at"] = json!("2026-01-09T08:20:00Z");
    order["next"] = Value::Null;
    order["trip_continues"] = json!(true);
    order["note"] = json!("The passenger was picked up: the partner completes the trip.");
    order
}

/// Returns the limits of one service type in one area.
pub(crate) fn example_area_limits() -> Value {
    json!({
        "area_id": "JKT-PUSAT",
        "service_type": "RIDE",
        "max_waiting_orders": 100,
        "waiting_timeout_sec": 300,
        "dispatch_timeout_sec": null,
        "order_lifetime_sec": 1800,
        "retry_interval_sec": null,
        "busy_retry_interval_sec": null,
        "cooldown_period_sec": null,
        "low_water_percentage": null,
        "bypass_enabled": true,
        "bypass_loyalty_levels": ["VOYAGER", "ELITE"],
        "max_bypass_percentage": 20,
        "max_scheduled_per_hour": 40,
        "schedule": [{ "days": ["MON", "FRI"], "from": "07:00", "to": "09:30", "max_waiting_orders": 60 }],
        "enabled": true,
        "priority": 0,
        "version": 3,
    })
}

/// Returns the flag of a trial: refusals are counted but not made.
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

/// Returns an alert that support acknowledged.
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
        "tickets": [example_ticket()],
    })
}

/// Returns a ticket of a ticket system.
pub(crate) fn example_ticket() -> Value {
    json!({ "channel": "ticket", "ticket": "4711", "url": "https://tickets.example.com/tickets/4711" })
}

/// Returns the position of an available driver.
pub(crate) fn example_place() -> Value {
    json!({ "driver_id": "DRV-1", "latitude": -6.2088, "longitude": 106.8456, "available": true })
}

/// Returns a recorded position of a driver.
pub(crate) fn example_location() -> Value {
    let mut place = example_place();
    place["located_at"] = json!("2026-01-09T08:00:00Z");
    place["recorded"] = json!(true);
    place
}

/// Returns an area that is a rectangle.
pub(crate) fn example_area() -> Value {
    let corners = [[106.80, -6.22], [106.86, -6.22], [106.86, -6.15], [106.80, -6.15], [106.80, -6.22]];
    json!({
        "id": "JKT-PUSAT",
        "area_id": "JKT-PUSAT",
        "name": "Jakarta Pusat",
        "priority": 0,
        "geohashes": [],
        "geohash": null,
        "geofence": corners.map(|[longitude, latitude]| json!({ "latitude": latitude, "longitude": longitude })),
        "service_type": ["RIDE", "RENT"],
        "time_zone": "Asia/Jakarta",
        "has_polygons": true,
        "version": 1,
        "updated_at": "2026-01-09T08:00:00Z",
    })
}

/// Returns the area of [`example_area`] as GeoJSON for import.
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

/// Returns an area with room.
pub(crate) fn example_status() -> Value {
    json!({
        "area_id": "JKT-PUSAT",
        "service_type": "RIDE",
        "waiting": 45,
        "waiting_count": 45,
        "threshold": 100,
        "utilization": 0.45,
        "mode": "AUTO",
        "enforcement": "ON",
        "refuses": null,
        "last_updated": "2026-01-09T08:04:00Z",
        "oldest_waiting_since": "2026-01-09T08:00:00Z",
        "effective": {
            "max_waiting_orders": 100,
            "scheduled": false,
            "waiting_timeout_sec": 300,
            "dispatch_timeout_sec": 120,
            "order_lifetime_sec": 1800,
            "retry_interval_sec": 15,
            "busy_retry_interval_sec": 60,
            "cooldown_period_sec": 60,
            "low_water_percentage": 90,
            "bypass_enabled": true,
            "bypass_loyalty_levels": ["ELITE", "VOYAGER"],
            "max_bypass_percentage": 20,
            "max_scheduled_per_hour": 40,
            "enabled": true,
            "priority": 0,
            "time_zone": "Asia/Jakarta",
        },
    })
}

/// Returns a full area as the requirement prints it, followed by the members of RFC 9457.
pub(crate) fn example_busy() -> Value {
    let message = "Area sedang sibuk, silakan coba beberapa saat lagi";
    json!({
        "status": "SERVER_BUSY",
        "error_code": "DISPATCHER_AREA_THRESHOLD_REACHED",
        "area_id": "JKT-PUSAT",
        "current_waiting": 105,
        "threshold": 100,
        "retry_after_sec": 60,
        "message": message,
        "oldest_waiting_since": "2026-01-09T08:00:00Z",
        "nearby_areas": [{ "area_id": "JKT-BARAT", "name": "Jakarta Barat", "distance_m": 2400.0 }],
        "type": "/errors/DISPATCHER_AREA_THRESHOLD_REACHED",
        "title": codes::DISPATCHER_AREA_THRESHOLD_REACHED.title,
        "detail": message,
        "instance": "/api/v1/dispatcher/availability-check",
        "request_id": "019ba1c0-0000-7000-8000-000000000002",
    })
}

/// Returns an event of the stream.
pub(crate) fn example_step(step: OrderStep) -> Value {
    let (status, previous_status, reason) = match step {
        OrderStep::Created => ("DISPATCHING", None, "ORDER_CREATED"),
        OrderStep::Updated => ("DRIVER_ASSIGNED", Some("DRIVER_ASSIGNED"), "CONTENTS_CHANGED"),
        OrderStep::Scheduled => ("SCHEDULED", None, "ORDER_CREATED"),
        OrderStep::Offered => ("DISPATCHING", Some("DISPATCHING"), "ATTEMPT_STARTED"),
        OrderStep::Assigned => ("DRIVER_ASSIGNED", Some("DISPATCHING"), "OFFER_ACCEPTED"),
        OrderStep::PickedUp => ("PICKED_UP", Some("DRIVER_ASSIGNED"), "PICKED_UP"),
        OrderStep::Completed => ("COMPLETED", Some("PICKED_UP"), "COMPLETED"),
        OrderStep::Cancelled => ("CANCELLED_BY_USER", Some("DISPATCHING"), "CANCELLED_BY_USER"),
        OrderStep::Held => ("COMPENSATING", Some("COMPENSATING"), "HELD_FOR_REVIEW"),
        OrderStep::Refunded => ("REFUNDED", Some("REFUND_PENDING"), "REFUNDED"),
    };
    let has_driver =
        matches!(step, OrderStep::Updated | OrderStep::Assigned | OrderStep::PickedUp | OrderStep::Completed);
    let mut example = json!({
        "type": step.as_str(),
        "timestamp": "2026-01-09T08:00:00Z",
        "version": 1,
        "data": {
            "seq": 4711,
            "order_id": "ORD-1",
            "status": status,
            "previous_status": previous_status,
            "reason": reason,
            "attempt_no": previous_status.map(|_| 1),
            "driver_id": has_driver.then_some("DRV-1"),
        },
    });
    if step == OrderStep::Updated {
        example["data"]["changed"] = json!(["dropoff"]);
    }
    example
}

/// Returns the report of an area in a trial: 12 of 410 orders would have been refused, and 180 by a threshold of 60.
pub(crate) fn example_area_report() -> Value {
    let hour = |hour: Value| {
        json!({
            "hour": hour,
            "area_id": "JKT-PUSAT",
            "service_type": "RIDE",
            "most_waiting": 104,
            "mean_utilization": 0.71,
            "rejected": 0,
            "would_reject": 12,
            "bypassed": 3,
            "requests": [
                { "source": "create", "verdict": "BYPASSED", "cause": "threshold", "requests": 3 },
                { "source": "create", "verdict": "TAKEN", "cause": "none", "requests": 395 },
                { "source": "create", "verdict": "WOULD_REFUSE", "cause": "threshold", "requests": 12 },
            ],
            "what_if": { "checks": 0, "checks_refused": 0, "creations": 410, "creations_refused": 180 },
        })
    };
    json!({
        "since": "2026-01-09T08:00:00Z",
        "until": "2026-01-09T09:00:00Z",
        "threshold": 60,
        "hours": [hour(json!("2026-01-09T08:00:00Z"))],
        "areas": [hour(Value::Null)],
    })
}
