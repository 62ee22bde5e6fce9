//! Every change records a role, a person or program, and the key.

use serde_json::json;

use accounts::{
    api_keys::{self, AccountRole},
    key_admin::{self, KeyError},
};
use model::{
    actor::{Actor, ActorRole},
    decide::{Decision, OrderRefusal, actions},
    order::OrderStatus,
};
use test_support::{Api, TestApp, by, create_key, ride_with_id, secs};

// Fault S8
#[tokio::test]
async fn every_change_names_role_and_key() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let (shop_id, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let (d1_id, d1) = create_key(&t, "phone of D1", AccountRole::Driver, Some("D1")).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride_with_id("ORD-0")).await.status, 201);
    t.run_due().await;
    let offer = t.live_offer("ORD-0").await.id;
    let accept = json!({ "driver_id": "D1", "offer_id": offer });
    assert_eq!(api.post("/api/v1/orders/ORD-0/accept", &d1, accept).await.status, 200);
    let mut expected =
        vec![format!("ORD-0 ORDER_CREATED producer:shop {shop_id}"), format!("ORD-0 OFFER_ACCEPTED driver:D1 {d1_id}")];
    let staff =
        [(AccountRole::Dispatcher, "dispatcher"), (AccountRole::Support, "support"), (AccountRole::Admin, "admin")];
    for (n, (role, word)) in staff.into_iter().enumerate() {
        let (id, key) = create_key(&t, &format!("anna the {word}"), role, None).await;
        let order = format!("ORD-{}", n + 1);
        t.order(&order).await;
        let cancelled = api.post(&format!("/api/v1/orders/{order}/cancel"), &key, json!({})).await;
        assert_eq!(cancelled.status, 200, "{role:?}");
        expected.push(format!("{order} CANCELLED_BY_USER {word}:anna the {word} {id}"));
    }
    let told = t
        .texts(
            "SELECT order_id || ' ' || reason || ' ' || actor || ' ' || key_id FROM order_events
             WHERE key_id IS NOT NULL ORDER BY seq",
        )
        .await;
    assert_eq!(told, expected);
    assert_eq!(t.count("SELECT count(*) FROM audit_event_keys").await, 5);
    t.assert_sound().await;
}

// Fault S8
#[tokio::test]
async fn what_staff_change_besides_orders_names_the_key_too() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (id, root) = create_key(&t, "root", AccountRole::Admin, None).await;
    let flag = json!({ "enabled": false, "reason": "a test" }).to_string();
    let put = api.send(reqwest::Method::PUT, "/api/v1/admin/dispatcher/flag", &root, "", flag).await;
    assert_eq!(put.status, 200, "{put:?}");
    t.sql(
        "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
         VALUES ('ORD-1', 'MANUAL_REFUND_REQUIRED', '', '{}', dispatchq_now())",
    )
    .await;
    let alert = t.count("SELECT min(id) FROM alerts").await;
    let ack = api.post(&format!("/api/v1/alerts/{alert}/ack"), &root, json!({ "note": "refunded" })).await;
    assert_eq!((ack.status, ack.text("acked_by")), (200, "admin:root"));
    let told = t
        .texts(
            "SELECT actor || ' ' || key_id FROM admission_audit UNION ALL
             SELECT acked_by || ' ' || acked_key_id FROM alerts WHERE acked_key_id IS NOT NULL",
        )
        .await;
    assert_eq!(told, vec![format!("admin:root {id}"); 2]);
}

// Fault S8
#[tokio::test]
async fn a_name_opens_nothing() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.sql(
        "UPDATE orders SET status = 'COMPENSATING', held_for_review = true, held_reason = 'an odd payment',
                next_attempt_at = NULL",
    )
    .await;
    let held = t.snapshot("ORD-1").await;
    assert_eq!((held.order.status, held.order.held_for_review), (OrderStatus::Compensating, true));
    // The role decides which staff actions a held order allows; the name is irrelevant.
    for (role, may) in [
        (ActorRole::Producer, false),
        (ActorRole::Driver, false),
        (ActorRole::Other, false),
        (ActorRole::System, false),
        (ActorRole::Dispatcher, true),
        (ActorRole::Cli, true),
    ] {
        let decision = actions::cancel_order(&held, &Actor::new(role, "operator:anna", None), None);
        let refused = matches!(decision, Decision::Refuse(OrderRefusal::WrongState { .. }));
        assert_eq!(refused, !may, "{role:?}: {decision:?}");
    }
    // Any staff role is accepted here.
    assert!(matches!(actions::cancel_order(&held, &by("operator:anna"), None), Decision::Change(_)));
}

// Fault S8
#[tokio::test]
async fn two_live_keys_never_share_a_name() {
    let t = TestApp::start().await;
    let db = &t.app.core.db;
    let (first, _) = create_key(&t, "anna", AccountRole::Support, None).await;
    let taken = key_admin::create_permanent_key(db, "anna", AccountRole::Admin, None).await;
    assert!(matches!(taken, Err(KeyError::NameTaken(_))), "{taken:?}");
    // A rotation replaces the key by one with the same rights.
    let (second, _) = key_admin::rotate_key(db, "anna", secs(60), None).await.unwrap();
    assert_eq!((second.role, second.name.as_str()), (AccountRole::Support, "anna"));
    assert!(second.id != first);
    assert!(api_keys::revoke_key(db, second.id).await.unwrap());
    create_key(&t, "anna", AccountRole::Operator, None).await;
    for name in ["", " ", "two\nlines", "\u{202e}live"] {
        assert!(
            matches!(
                key_admin::create_permanent_key(db, name, AccountRole::Support, None).await,
                Err(KeyError::BadName(_))
            ),
            "{name:?}"
        );
    }
}
