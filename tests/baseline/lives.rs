//! The lives of 500 orders. Each life is a script that all its orders follow. The pickup points are far apart, and each
//! driver gets offers for one order only.

use reqwest::Method;
use serde_json::json;

use crate::cast::{Cast, Order};

/// Name, service type, number of orders, and drivers per order.
const LIVES: [(&str, &str, usize, usize); 18] = [
    ("completed", "RIDE", 60, 1),
    ("second-choice", "RIDE", 50, 2),
    ("offer-expired", "RIDE", 50, 2),
    ("handed-back", "RIDE", 40, 2),
    ("cancelled-early", "RIDE", 40, 1),
    ("cancelled-late", "RIDE", 30, 1),
    ("no-driver", "RIDE", 40, 0),
    ("no-driver-paid", "RIDE", 30, 0),
    ("no-driver-ignored", "RIDE", 5, 0),
    ("assigned", "RENT", 40, 0),
    ("reminded", "RENT", 10, 0),
    ("held", "RIDE", 15, 1),
    ("released", "RIDE", 10, 2),
    ("stale", "RIDE", 10, 1),
    ("taxi-callback", "TAXI", 30, 0),
    ("taxi-silent", "TAXI", 20, 0),
    ("taxi-second", "TAXI", 10, 0),
    ("full", "RIDE", 10, 0),
];

/// Seconds until each timer for which the run waits.
const OFFER_EXPIRES: i64 = 121;
const FIRST_POLL: i64 = 7;
const SEARCH_AGAIN: i64 = 16;
const FOLLOW: i64 = 301;
const REMINDER: i64 = 301;
const NEAR_THE_END: i64 = 30 * 60 - 7;
const TRIP_IS_STALE: i64 = 12 * 3600 + 1;
const SLA_WARNING: i64 = 20 * 3600 + 1;

/// Returns the orders of a life.
fn orders(life: &str) -> Vec<Order> {
    let mut place = 0;
    for (name, service, count, _) in LIVES {
        if name == life {
            return (0..count).map(|n| order(name, service, n, place + n)).collect();
        }
        place += count;
    }
    panic!("no life {life}")
}

/// Returns an order. Places are 4 degrees apart; those of the life `full` are in one city area.
fn order(life: &str, service: &'static str, n: usize, place: usize) -> Order {
    let (row, column) = (place % 25, place / 25);
    let far = (4.0 * row as f64 - 48.0, 6.0 * column as f64 - 170.0);
    let (latitude, longitude) = if life == "full" { (-6.18, 106.83) } else { far };
    Order { id: format!("{life}-{n:03}"), service, latitude, longitude }
}

/// Imports all drivers with one command and gives each a key.
pub async fn hire(cast: &Cast) {
    let mut lines = String::new();
    let mut drivers = Vec::new();
    for (life, _, _, count) in LIVES {
        for order in orders(life) {
            for n in 0..count {
                let latitude = order.latitude + 0.001 * (n + 1) as f64;
                let line = json!({ "id": order.driver(n), "service_types": ["RIDE", "RENT"], "latitude": latitude,
                                   "longitude": order.longitude, "available": true });
                lines.push_str(&format!("{line}\n"));
                drivers.push(order.driver(n));
            }
        }
    }
    // Drivers that a dispatcher assigns by hand are far from every pickup.
    for order in orders("assigned") {
        let line = json!({ "id": order.driver(0), "service_types": ["RENT"], "latitude": order.latitude + 1.0,
                           "longitude": order.longitude, "available": true });
        lines.push_str(&format!("{line}\n"));
        drivers.push(order.driver(0));
    }
    let output = cast.world.run(&["driver", "import", "-"], &lines);
    assert_eq!(output.code, 0, "{}", output.err);
    cast.each(&drivers, async |driver| cast.employ(driver, "driver", Some(driver)).await).await;
}

/// Runs all lives.
pub async fn play(cast: &Cast) {
    limit_area(cast).await;
    without_waiting(cast).await;
    cast.world.quiet().await;
    expired_offers(cast).await;
    silent_partner(cast).await;
    reminders(cast).await;
    for life in ["no-driver", "no-driver-paid", "no-driver-ignored"] {
        lifetime(cast, life).await;
    }
    settle_refunds(cast).await;
    stale_trips(cast).await;
    ignored_alerts(cast).await;
    cast.world.quiet().await;
}

/// Runs the lives that need no timer.
async fn without_waiting(cast: &Cast) {
    cast.each(&orders("completed"), async |order| {
        cast.create(order, "PAID").await;
        cast.answer_offer(order, &order.driver(0), "accept").await;
        cast.ride(order, &order.driver(0)).await;
    })
    .await;
    cast.each(&orders("second-choice"), async |order| {
        cast.create(order, "UNPAID").await;
        cast.answer_offer(order, &order.driver(0), "decline").await;
        cast.answer_offer(order, &order.driver(1), "accept").await;
        cast.ride(order, &order.driver(1)).await;
    })
    .await;
    cast.each(&orders("handed-back"), async |order| {
        cast.create(order, "UNPAID").await;
        let (first, second) = (order.driver(0), order.driver(1));
        cast.answer_offer(order, &first, "accept").await;
        cast.step(&first, order, "driver-cancel", json!({ "driver_id": first, "reason": "flat tyre" })).await;
        cast.answer_offer(order, &second, "accept").await;
        cast.ride(order, &second).await;
    })
    .await;
    cast.each(&orders("cancelled-early"), async |order| {
        cast.create(order, "UNPAID").await;
        cast.offer(order, &order.driver(0)).await;
        cast.step("shop", order, "cancel", json!({ "reason": "changed my mind" })).await;
    })
    .await;
    cast.each(&orders("cancelled-late"), async |order| {
        cast.create(order, "PAID").await;
        cast.answer_offer(order, &order.driver(0), "accept").await;
        cast.step("shop", order, "cancel", json!({ "reason": "changed my mind" })).await;
    })
    .await;
    by_staff(cast).await;
    cast.each(&orders("taxi-callback"), async |order| {
        cast.create(order, "UNPAID").await;
        let booked = "SELECT state FROM audit_bookings WHERE order_id = $1";
        cast.world.until_row(booked, &order.id, "booked").await;
        for kind in ["job_id_assigned", "driver_assigned", "picked_up", "completed", "completed"] {
            cast.call_back(order, kind).await;
        }
    })
    .await;
    full_area(cast).await;
}

/// Runs the lives with staff decisions.
async fn by_staff(cast: &Cast) {
    cast.each(&orders("held"), async |order| {
        cast.create(order, "UNPAID").await;
        cast.offer(order, &order.driver(0)).await;
        cast.step("dispatcher", order, "hold", json!({ "reason": "suspicious" })).await;
        cast.step("dispatcher", order, "take", json!({ "reason": "mine" })).await;
        cast.step("dispatcher", order, "resume", json!({ "reason": "all is well" })).await;
        cast.until_events(order, "SEARCH_AGAIN", 1).await;
        cast.step("dispatcher", order, "cancel", json!({ "reason": "asked by phone" })).await;
    })
    .await;
    cast.each(&orders("released"), async |order| {
        cast.create(order, "PENDING").await;
        let (first, second) = (order.driver(0), order.driver(1));
        cast.answer_offer(order, &first, "accept").await;
        cast.step(
            "shop",
            order,
            "payment",
            json!({ "event_id": format!("PAY-{}", order.id), "payment_status": "PAID" }),
        )
        .await;
        cast.step("dispatcher", order, "release", json!({ "reason": "driver is lost" })).await;
        cast.answer_offer(order, &second, "accept").await;
        cast.ride(order, &second).await;
    })
    .await;
    cast.each(&orders("assigned"), async |order| {
        cast.create(order, "UNPAID").await;
        cast.until_status(order, "PENDING").await;
        cast.step("dispatcher", order, "redispatch", json!({ "reason": "once more" })).await;
        cast.until_events(order, "NO_CANDIDATES", 2).await;
        cast.step("dispatcher", order, "assign", json!({ "driver_id": order.driver(0), "reason": "is free" })).await;
        cast.ride(order, &order.driver(0)).await;
    })
    .await;
    cast.each(&orders("stale"), async |order| {
        cast.create(order, "UNPAID").await;
        cast.answer_offer(order, &order.driver(0), "accept").await;
    })
    .await;
}

/// Adds an area for the places of all orders, because orders outside areas are refused, and limits one city area to
/// six. Waits until the API applies these changes.
async fn limit_area(cast: &Cast) {
    let corners = json!([[-179, -60], [-29, -60], [-29, 60], [-179, 60], [-179, -60]]);
    let area = json!({ "type": "Feature", "properties": { "area_id": "FAR", "name": "Far from the city" },
                       "geometry": { "type": "Polygon", "coordinates": [corners] } });
    let areas = json!({ "type": "FeatureCollection", "features": [area] }).to_string();
    let output = cast.world.run(&["area", "import", "-"], &areas);
    assert_eq!(output.code, 0, "{}", output.err);
    let limit =
        ["area", "set", "JKT-PUSAT", "--service-type", "RIDE", "--max-waiting-orders", "6", "--reason", "baseline"];
    assert_eq!(cast.world.run(&limit, "").code, 0);
    assert_eq!(cast.world.run(&["area", "flag", "--enabled", "true", "--reason", "baseline"], "").code, 0);
    let status = "/api/v1/admin/dispatcher/areas/status";
    cast.world
        .until("the API enforces the limits of areas", async || {
            let answer = cast.world.ask(&cast.world.admin, Method::GET, status, None).await;
            let mut areas = answer.body["areas"].as_array().into_iter().flatten();
            areas.any(|area| area["area_id"] == "FAR" && area["enforcement"] == "ON")
        })
        .await;
}

/// Creates more orders than the area has room for. The last ones are refused.
async fn full_area(cast: &Cast) {
    let orders = orders("full");
    for order in &orders {
        cast.create(order, "UNPAID").await;
    }
    let check = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.18, "longitude": 106.83 } });
    let path = "/api/v1/dispatcher/availability-check";
    let key = cast.keys.lock().expect("no panic")["shop"].clone();
    // The answer may be a tenth of a second old.
    cast.world
        .until("the area is full", async || {
            cast.world.ask(&key, Method::POST, path, Some(check.clone())).await.status == 503
        })
        .await;
    cast.post("shop", path, check).await;
    for order in orders.iter().take(6) {
        cast.until_events(order, "SEARCH_AGAIN", 1).await;
        cast.step("shop", order, "cancel", json!({ "reason": "changed my mind" })).await;
    }
}

async fn expired_offers(cast: &Cast) {
    let orders = orders("offer-expired");
    cast.each(&orders, async |order| {
        cast.create(order, "UNPAID").await;
        cast.offer(order, &order.driver(0)).await;
    })
    .await;
    cast.world.jump(OFFER_EXPIRES).await;
    cast.each(&orders, async |order| {
        cast.answer_offer(order, &order.driver(1), "accept").await;
        cast.ride(order, &order.driver(1)).await;
    })
    .await;
}

/// Runs orders without callbacks: the partner is polled. Some orders are booked twice, because the first booking finds
/// no driver.
async fn silent_partner(cast: &Cast) {
    let twice = orders("taxi-second");
    let orders: Vec<_> = orders("taxi-silent").into_iter().chain(twice.clone()).collect();
    cast.each(&orders, async |order| {
        cast.create(order, "UNPAID").await;
    })
    .await;
    cast.world.jump(FIRST_POLL).await;
    cast.each(&twice, async |order| cast.until_events(order, "BOOKING_CANCELLED", 1).await).await;
    cast.world.jump(SEARCH_AGAIN).await;
    cast.each(&twice, async |order| cast.until_events(order, "BOOKED", 2).await).await;
    cast.world.jump(FIRST_POLL).await;
    cast.each(&orders, async |order| cast.until_status(order, "DRIVER_ASSIGNED").await).await;
    for status in ["PICKED_UP", "COMPLETED"] {
        cast.world.jump(FOLLOW).await;
        cast.each(&orders, async |order| cast.until_status(order, status).await).await;
    }
}

/// Runs orders that wait for a dispatcher, who gets reminders and does nothing.
async fn reminders(cast: &Cast) {
    let orders = orders("reminded");
    cast.each(&orders, async |order| {
        cast.create(order, "UNPAID").await;
        cast.until_status(order, "PENDING").await;
    })
    .await;
    for _ in 0..5 {
        cast.world.jump(REMINDER).await;
    }
    cast.world.jump(REMINDER).await;
    cast.each(&orders, async |order| cast.until_status(order, "CANCELLED_BY_SYSTEM").await).await;
}

/// Runs orders without a driver until their lifetime ends. The last search ends earlier.
async fn lifetime(cast: &Cast, life: &str) {
    let orders = orders(life);
    let payment = if life.starts_with("no-driver-") { "PAID" } else { "UNPAID" };
    cast.each(&orders, async |order| {
        cast.create(order, payment).await;
    })
    .await;
    cast.world.jump(NEAR_THE_END).await;
    cast.world.jump(8).await;
    let end = if payment == "PAID" { "CANCELLED_BY_SYSTEM_AFTER_PAYMENT" } else { "CANCELLED_BY_SYSTEM" };
    cast.each(&orders, async |order| cast.until_status(order, end).await).await;
}

async fn settle_refunds(cast: &Cast) {
    for life in ["cancelled-late", "no-driver-paid"] {
        cast.each(&orders(life), async |order| {
            cast.step("support", order, "refund", json!({ "action": "start", "note": "by bank" })).await;
            cast.step("support", order, "refund", json!({ "action": "done" })).await;
        })
        .await;
    }
}

/// Runs orders whose drivers accept and then send nothing for half a day.
async fn stale_trips(cast: &Cast) {
    cast.world.jump(TRIP_IS_STALE).await;
    cast.each(&orders("stale"), async |order| {
        // The alert is sent over both channels of support.
        let alert = "SELECT count(*) FROM audit_notifications WHERE order_id = $1 AND kind = 'STALE_TRIP'";
        cast.world.until_row(alert, &order.id, "2").await;
        acknowledge(cast, order).await;
        cast.ride(order, &order.driver(0)).await;
    })
    .await;
}

/// Ignores refund alerts: support gets a warning, then the next contact.
async fn ignored_alerts(cast: &Cast) {
    cast.world.jump(SLA_WARNING - TRIP_IS_STALE).await;
    for _ in 0..2 {
        cast.world.jump(4 * 3600 + 1).await;
    }
    cast.world.quiet().await;
    cast.each(&orders("no-driver-ignored"), async |order| acknowledge(cast, order).await).await;
}

/// Acknowledges the open alerts of an order.
async fn acknowledge(cast: &Cast, order: &Order) {
    let path = format!("/api/v1/alerts?open=true&order_id={}", order.id);
    let alerts = cast.ask("support", Method::GET, &path, None).await;
    for alert in alerts.body["alerts"].as_array().expect("a list of alerts") {
        let path = format!("/api/v1/alerts/{}/ack", alert["id"]);
        cast.post("support", &path, json!({ "note": "taken care of" })).await;
    }
}
