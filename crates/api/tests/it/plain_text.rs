//! The API refuses texts with terminal control sequences.

use serde_json::json;

use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, create_key, ride_with_id};

/// Texts that copy to the clipboard, clear the line, forge a line, or reverse the text.
const EVIL: [&str; 5] = ["\u{1b}]52;c;cm0=\u{7}", "\u{9b}2K", "a\nORD-2  REFUNDED", "\u{202e}DIAP", "\r"];

// Fault S4
#[tokio::test]
async fn free_text_that_a_terminal_obeys_is_refused() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let (_, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let (_, d1) = create_key(&t, "d1", AccountRole::Driver, Some("D1")).await;
    let root = t.key(AccountRole::Admin).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride_with_id("ORD-1")).await.status, 201);
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await.id;
    for evil in EVIL {
        let order = |field: &str| {
            let mut order = ride_with_id("ORD-2");
            order[field] = json!(evil);
            order
        };
        let area = json!({ "type": "FeatureCollection", "features": [{
            "type": "Feature", "properties": { "area_id": "A", "name": evil, "geohashes": ["qqguy"] }, "geometry": null,
        }] });
        for (path, key, body) in [
            ("/api/v1/orders/ORD-1/decline", &d1, json!({ "driver_id": "D1", "offer_id": offer, "reason": evil })),
            ("/api/v1/orders/ORD-1/driver-cancel", &d1, json!({ "reason": evil })),
            ("/api/v1/orders/ORD-1/cancel", &shop, json!({ "reason": evil })),
            ("/api/v1/orders/ORD-1/payment", &shop, json!({ "event_id": evil, "payment_status": "PAID" })),
            ("/api/v1/orders/ORD-1/refund", &root, json!({ "action": "start", "note": evil })),
            ("/api/v1/alerts/1/ack", &root, json!({ "note": evil })),
            ("/api/v1/orders", &shop, order("area_id")),
            ("/api/v1/orders", &shop, order("customer_id")),
            ("/api/v1/orders", &shop, order("channel")),
        ] {
            assert_eq!(api.post(path, key, body).await.error(), (422, "INVALID"), "{path}: {evil:?}");
        }
        let put = |path: &'static str, body: String| api.send(reqwest::Method::PUT, path, &root, "", body);
        let imported = put("/api/v1/admin/dispatcher/areas", area.to_string()).await;
        assert_eq!(imported.error(), (422, "INVALID"), "{evil:?}");
        let flag = json!({ "enabled": false, "reason": evil }).to_string();
        assert_eq!(put("/api/v1/admin/dispatcher/flag", flag).await.error(), (422, "INVALID"), "{evil:?}");
    }
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "ATTEMPT_STARTED"]);
}
