//! No text makes a terminal do something.

use serde_json::json;

use super::{key, ride};
use crate::support::{Api, Fleet, TestApp};
use accounts::api_keys::AccountRole;
use model::plain_text;

/// Copies to the clipboard, clears the line, forges one, shows it backwards.
const EVIL: [&str; 5] = ["\u{1b}]52;c;cm0=\u{7}", "\u{9b}2K", "a\nORD-2  REFUNDED", "\u{202e}DIAP", "\r"];

#[tokio::test]
async fn s04_free_text_that_a_terminal_obeys_is_refused() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let (_, shop) = key(&t, "shop", AccountRole::Producer, None).await;
    let (_, d1) = key(&t, "d1", AccountRole::Driver, Some("D1")).await;
    let root = t.key(AccountRole::Admin).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride("ORD-1")).await.status, 201);
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await.id;
    for evil in EVIL {
        let order = |field: &str| {
            let mut order = ride("ORD-2");
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

#[tokio::test]
async fn s04_what_is_stored_already_is_printed_escaped() {
    let fleet = Fleet::start().await;
    let create = ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8"];
    assert_eq!(fleet.run(&create).code, Some(0));
    // A partner or a program that writes SQL may have left it.
    for (n, evil) in EVIL.iter().enumerate() {
        for statement in [
            "UPDATE order_events SET detail = $1, actor = $1",
            "UPDATE orders SET held_for_review = true, held_reason = $1, service_type = $1, job_id = $1",
            "INSERT INTO api_keys (id, name, sha256, role) SELECT gen_random_uuid(), $1, sha256($1::bytea), 'support'",
            "INSERT INTO users (id, name, role, channel) SELECT md5($1), $1, 'support', $1",
            "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by, ack_note)
             SELECT 'ORD-1', $1, '', '{}', now(), now(), $1, $1",
            "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, last_error,
                                 created_at)
             SELECT 'ORD-1', $1, $1, '', '{}', 'dead', now(), now(), $1, now()",
            "INSERT INTO admission_audit (actor, what, reason) SELECT $1, $1, $1",
        ] {
            sqlx::query(statement).bind(evil).execute(&fleet.app.core.db).await.unwrap();
        }
        let message = (n + 1).to_string();
        for args in [
            &["order", "show", "ORD-1"][..],
            &["order", "list"],
            &["order", "list", "--json"],
            &["order", "timeline", "ORD-1"],
            &["order", "timeline", "ORD-1", "--json"],
            &["order", "explain", "ORD-1"],
            &["apikey", "list"],
            &["apikey", "list", "--json"],
            &["user", "list"],
            &["alert", "list"],
            &["outbox", "list"],
            &["outbox", "show", &message],
            &["area", "changes"],
        ] {
            let printed = fleet.run(args);
            assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
            for line in printed.stdout.lines() {
                assert!(plain_text::is_plain(line), "{args:?}: {line:?}");
                assert!(!line.trim_start().starts_with("ORD-2"), "{args:?}: a forged line: {line:?}");
            }
        }
    }
}

#[tokio::test]
async fn s04_the_command_line_takes_no_such_text_either() {
    let fleet = Fleet::start().await;
    for args in [
        &["order", "cancel", "ORD-1", "--reason", EVIL[0]][..],
        &["order", "refund", "start", "ORD-1", "--note", EVIL[3]],
        &["alert", "ack", "1", "--note", EVIL[2]],
    ] {
        assert_eq!(fleet.run(args).code, Some(2), "{args:?}");
    }
    assert_eq!(fleet.run(&["apikey", "create", EVIL[0], "--role", "support"]).code, Some(1));
}
