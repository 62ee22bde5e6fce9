//! Orders are refused early in full areas.
//!
//! * `rules`: settings of operators. `advice`: availability checks. `waiting_sets`: waiting orders in Redis.
//! * `places`: places of creations that are abandoned or fail. `verdicts`: metrics, stored counts and reports of
//!   admission requests.

mod advice;
mod places;
mod rules;
mod verdicts;
mod waiting_sets;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use accounts::api_keys::AccountRole;
use areas::{
    admission::waiting::{self, SuspectMembers},
    table::limits::LimitsChange,
};
use model::{decide::actions, order::OrderStatus};
use orders::create::{self, CreateError, NewOrder};
use test_support::{
    Api, TestApp,
    admission::{AUTHOR, areas, flag, full_for, limit_for, refresh},
    by, id, millis,
};

const HERE: (f64, f64) = (-6.2088, 106.8456);

async fn limit(t: &TestApp, area: &str, change: LimitsChange) {
    limit_for(t, "RIDE", area, change).await;
}

/// Imports two areas that each admit `max_waiting_orders` waiting orders, and enables admission.
async fn full_at(t: &TestApp, max_waiting_orders: i64) {
    full_for(t, "RIDE", max_waiting_orders).await;
}

fn new(order: &str, (latitude, longitude): (f64, f64), loyalty: Option<&str>) -> NewOrder {
    let mut new: NewOrder = serde_json::from_value(json!({
        "order_id": order, "service_type": "RIDE", "pickup": { "latitude": latitude, "longitude": longitude },
    }))
    .unwrap();
    new.loyalty_level = loyalty.map(str::to_owned);
    new
}

/// Creates an order. Returns `None` when it is accepted.
async fn create(t: &TestApp, order: &str, loyalty: Option<&str>) -> Option<Value> {
    create_at(t, order, HERE, loyalty).await
}

async fn create_at(t: &TestApp, order: &str, place: (f64, f64), loyalty: Option<&str>) -> Option<Value> {
    match create::create_order(&t.app.orders, id(order), &new(order, place, loyalty), &by("producer:test")).await {
        Ok(_) => None,
        Err(CreateError::Refused(answer)) => Some(answer.json_body(Default::default())),
        Err(error) => panic!("{error}"),
    }
}

async fn waiting_in(t: &TestApp, area: &str) -> i64 {
    t.count(&format!("SELECT dispatchq_waiting('{area}', 'RIDE')")).await
}

#[tokio::test]
async fn a_full_area_takes_loyal_customers_only_and_then_nobody() {
    let t = TestApp::start().await;
    full_at(&t, 5).await;
    for n in 0..5 {
        assert_eq!(create(&t, &format!("ORD-{n}"), None).await, None);
    }
    let refused = create(&t, "ORD-5", None).await.unwrap();
    assert_eq!(
        (&refused["error_code"], &refused["current_waiting"], &refused["threshold"]),
        (&json!("DISPATCHER_AREA_THRESHOLD_REACHED"), &json!(5), &json!(5))
    );
    assert_eq!(refused["nearby_areas"][0]["area_id"], "BGR");
    assert_eq!(create(&t, "ORD-6", Some("VOYAGER")).await, None, "one more: 20 % of 5");
    let refused = create(&t, "ORD-7", Some("ELITE")).await.unwrap();
    assert_eq!((&refused["max_with_bypass"], &refused["bypassed"]), (&json!(6), &json!(false)));
    assert!(create(&t, "ORD-8", Some("GOLD")).await.is_some());
    assert_eq!(waiting_in(&t, "JKT").await, 6);

    t.cancel("ORD-0").await.unwrap();
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(create(&t, "ORD-9", None).await, None);
    assert!(create(&t, "ORD-10", None).await.is_some());
}

#[tokio::test]
async fn assigned_order_frees_its_place_until_cancelled() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    t.drivers(&[("D1", 100.0)]).await;
    assert_eq!(create(&t, "ORD-1", None).await, None);
    assert!(create(&t, "ORD-2", None).await.is_some());
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    assert_eq!(create(&t, "ORD-3", None).await, None);
    t.act("ORD-1", |s| actions::cancel_by_driver(s, &"D1".into(), None)).await.unwrap();
    assert_eq!((t.status("ORD-1").await, waiting_in(&t, "JKT").await), (OrderStatus::Dispatching, 2));
    assert!(create(&t, "ORD-4", None).await.is_some());
    t.assert_sound().await;
}

#[tokio::test]
async fn refused_order_may_repeat_under_its_key() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let body = json!({ "service_type": "RIDE", "pickup": { "latitude": HERE.0, "longitude": HERE.1 } });
    assert_eq!(api.post_once("/api/v1/orders", &key, "first", body.clone()).await.status, 201);
    let refused = api.post_once("/api/v1/orders", &key, "second", body.clone()).await;
    assert_eq!(refused.error(), (503, "DISPATCHER_AREA_THRESHOLD_REACHED"));
    assert_eq!(api.post_once("/api/v1/orders", &key, "first", body.clone()).await.status, 201, "the same order");
    let first = t.texts("SELECT id FROM orders").await.remove(0);
    t.cancel(&first).await.unwrap();
    let taken = api.post_once("/api/v1/orders", &key, "second", body).await;
    assert_eq!((taken.status, taken.replayed), (201, false));
    // The area is full again, and the repeat for an existing order needs no place.
    let named =
        json!({ "order_id": "ORD-1", "service_type": "RIDE", "pickup": { "latitude": HERE.0, "longitude": HERE.1 } });
    t.cancel(taken.text("order_id")).await.unwrap();
    assert_eq!(api.post("/api/v1/orders", &key, named.clone()).await.status, 201);
    assert_eq!(api.post("/api/v1/orders", &key, named).await.error(), (409, "ORDER_EXISTS"));
    t.sql("UPDATE idempotency_keys SET status = NULL, body = NULL, created_at = dispatchq_now() - interval '2 minutes' WHERE key = 'second'")
        .await;
    let resumed = api
        .post_once(
            "/api/v1/orders",
            &key,
            "second",
            json!({ "service_type": "RIDE", "pickup": { "latitude": HERE.0, "longitude": HERE.1 } }),
        )
        .await;
    assert_eq!((resumed.status, resumed.text("order_id")), (201, taken.text("order_id")), "its process had died");
    let outside = json!({ "service_type": "RIDE", "pickup": { "latitude": 0.0, "longitude": 0.0 } });
    assert_eq!(api.post("/api/v1/orders", &key, outside.clone()).await.error(), (400, "DISPATCHER_AREA_NOT_FOUND"));
    let mut named = outside;
    named["area_id"] = json!("JKT");
    let refused = api.post("/api/v1/orders", &key, named).await;
    assert_eq!(refused.error(), (400, "DISPATCHER_AREA_NOT_FOUND"), "a name moves no pickup into an area");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_producers_at_once_none_overshoots() {
    let t = Arc::new(TestApp::with(|config| config.database.max_connections = 20).await);
    full_at(&t, 20).await;
    // Records the waiting count that each creation saw immediately before its commit.
    t.sql("CREATE TABLE most_waiting (n bigint)").await;
    t.sql(
        "CREATE FUNCTION note_waiting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO most_waiting VALUES (dispatchq_waiting(NEW.area_id, NEW.service_type)); RETURN NULL; END $$",
    )
    .await;
    t.sql("CREATE TRIGGER note_waiting AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION note_waiting()").await;
    let mut producers = JoinSet::new();
    for p in 0..32 {
        let t = t.clone();
        producers.spawn(async move {
            let mut taken = Vec::new();
            for n in 0..15 {
                let order = format!("ORD-{p}-{n}");
                let loyalty = (p % 4 == 0).then_some("ELITE");
                if create(&t, &order, loyalty).await.is_none() {
                    taken.push(order);
                }
                if n % 4 == 3
                    && let Some(order) = taken.pop()
                {
                    t.cancel(&order).await.unwrap();
                }
            }
        });
    }
    let watching = async {
        let mut most = 0;
        for round in 0..60 {
            most = most.max(waiting_in(&t, "JKT").await);
            if round == 20 {
                let _: () = t.redis(&["FLUSHALL"]).await;
            }
            if round == 35 {
                waiting::repair_waiting_sets(&t.app.areas, &mut SuspectMembers::default()).await.unwrap();
            }
            tokio::time::sleep(millis(20)).await;
        }
        most
    };
    let (_, most) = tokio::join!(producers.join_all(), watching);
    assert!(most <= 24, "{most}");
    assert!(waiting_in(&t, "JKT").await <= 24);
    let most_ever = t.count("SELECT max(n) FROM most_waiting").await;
    assert!((20..=24).contains(&most_ever), "{most_ever}");
}
