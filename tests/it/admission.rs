//! Orders are refused early where an area is full.
//!
//! * `places`: places of creations that are given up, or fail. `verdicts`: what is counted, kept and reported of requests for
//!   places.

mod places;
mod verdicts;

use std::sync::Arc;

use chrono::TimeDelta;
use dispatch::{
    accounts::api_keys::AccountRole,
    actor::{Actor, ActorRole},
    admission::{
        limits::{AdmissionFlag, ForcedStatus},
        waiting::{self, SuspectMembers},
    },
    areas::{
        import,
        table::{
            ChangeAuthor, flag, geofences,
            limits::{self, LimitsChange},
            overrides,
        },
    },
    db::database_now,
    orders::{
        OrderStatus, actions,
        create::{self, CreateError, NewOrder},
    },
    reports::area_status,
    system::FixedClock,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Answer, Api, TestApp, by, id, millis, secs};

const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "test"), reason: Some("test") };
const HERE: (f64, f64) = (-6.2088, 106.8456);

/// Jakarta around every test's pickup, and Bogor to the south of it.
fn areas() -> String {
    let square = |id: &str, south: f64| {
        let (n, s, w, e) = (south + 0.2, south, 106.7, 107.0);
        json!({ "type": "Feature", "properties": { "area_id": id, "name": format!("Area {id}") },
                "geometry": { "type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]] } })
    };
    json!({ "type": "FeatureCollection", "features": [square("JKT", -6.3), square("BGR", -6.6)] }).to_string()
}

async fn refresh(t: &TestApp) {
    t.app.rules.reload_if_changed(&t.app.db, &t.app.config.admission).await.unwrap();
}

async fn limit(t: &TestApp, area: &str, change: LimitsChange) {
    limit_for(t, "RIDE", area, change).await;
}

async fn limit_for(t: &TestApp, service_type: &str, area: &str, change: LimitsChange) {
    let change = LimitsChange { service_type: service_type.into(), ..change };
    limits::set_limits(&t.app.db, &area.into(), &change, None, AUTHOR).await.unwrap();
    refresh(t).await;
}

async fn flag(t: &TestApp, change: impl FnOnce(&mut AdmissionFlag)) {
    let mut flag = flag::load_flag(&t.app.db).await.unwrap();
    change(&mut flag);
    flag::set_flag(&t.app.db, &flag, Some(flag.version), AUTHOR).await.unwrap();
    refresh(t).await;
}

/// Two areas; so many orders may wait in each, and it counts.
async fn full_at(t: &TestApp, max_waiting_orders: i64) {
    full_for(t, "RIDE", max_waiting_orders).await;
}

/// As [`full_at`], of this service type.
pub(crate) async fn full_for(t: &TestApp, service_type: &str, max_waiting_orders: i64) {
    let areas = import::parse(&areas()).unwrap();
    geofences::import_areas(&t.app.db, &areas, false, None, AUTHOR).await.unwrap();
    for area in ["JKT", "BGR"] {
        let change = LimitsChange {
            max_waiting_orders: Some(max_waiting_orders),
            cooldown_period_sec: Some(0),
            low_water_percentage: Some(100),
            ..LimitsChange::default()
        };
        limit_for(t, service_type, area, change).await;
    }
    flag(t, |flag| flag.enabled = true).await;
    waiting::repair_waiting_sets(&t.app, &mut SuspectMembers::default()).await.unwrap();
}

fn new(order: &str, (latitude, longitude): (f64, f64), loyalty: Option<&str>) -> NewOrder {
    let mut new: NewOrder = serde_json::from_value(json!({
        "order_id": order, "service_type": "RIDE", "pickup": { "latitude": latitude, "longitude": longitude },
    }))
    .unwrap();
    new.loyalty_level = loyalty.map(str::to_owned);
    new
}

/// `None`: it was taken.
async fn create(t: &TestApp, order: &str, loyalty: Option<&str>) -> Option<Value> {
    match create::create_order(&t.app, id(order), &new(order, HERE, loyalty), &by("producer:test")).await {
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
async fn whoever_has_a_driver_waits_no_longer_and_whoever_loses_one_waits_again() {
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
async fn the_advice_has_the_bodies_and_statuses_of_the_requirement() {
    let t = TestApp::start().await;
    full_at(&t, 2).await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let ask = async |place: (f64, f64), loyalty: Option<&str>| -> Answer {
        // Advice may be a tenth of a second old.
        tokio::time::sleep(millis(150)).await;
        let mut body = json!({ "pickup_location": { "latitude": place.0, "longitude": place.1 },
                               "service_type": "RIDE", "channel": "MYBB", "user_id": "USR-1" });
        if let Some(level) = loyalty {
            body["loyalty_level"] = json!(level);
        }
        api.post("/api/v1/dispatcher/availability-check", &key, body).await
    };
    let free = ask(HERE, None).await;
    let expected = json!({ "status": "AVAILABLE", "area_id": "JKT", "current_waiting": 0, "threshold": 2,
                           "estimated_wait_time_sec": 120 });
    assert_eq!((free.status, &free.body), (200, &expected));
    create(&t, "ORD-1", None).await;
    create(&t, "ORD-2", None).await;
    let busy = ask(HERE, None).await;
    assert_eq!(
        (busy.status, &busy.body["status"], &busy.body["retry_after_sec"]),
        (503, &json!("SERVER_BUSY"), &json!(60))
    );
    assert!(busy.body["oldest_waiting_since"].is_string(), "{busy:?}");
    // The members of RFC 9457 stand behind those of the requirement, of which `status` is one.
    let code = "DISPATCHER_AREA_THRESHOLD_REACHED";
    assert_eq!((busy.error(), busy.text("type")), ((503, code), format!("/errors/{code}").as_str()));
    assert_eq!(
        (&busy.body["detail"], busy.text("instance")),
        (&busy.body["message"], "/api/v1/dispatcher/availability-check")
    );
    limit(&t, "JKT", LimitsChange { max_bypass_percentage: Some(50), ..LimitsChange::default() }).await;
    let loyal = ask(HERE, Some("ELITE")).await;
    assert_eq!((loyal.status, &loyal.body["bypass_reason"]), (200, &json!("LOYALTY_ELITE")));
    assert_eq!(ask((0.0, 0.0), None).await.error(), (400, "DISPATCHER_AREA_NOT_FOUND"));
    limit(&t, "JKT", LimitsChange { enabled: Some(false), ..LimitsChange::default() }).await;
    assert_eq!(ask(HERE, None).await.error(), (503, "DISPATCHER_AREA_DISABLED"));
    let driver = t.driver_key("D1").await;
    let body = json!({ "pickup_location": { "latitude": HERE.0, "longitude": HERE.1 }, "service_type": "RIDE" });
    let forbidden = api.post("/api/v1/dispatcher/availability-check", &driver, body).await;
    assert_eq!(forbidden.error(), (403, "FORBIDDEN"));
    flag(&t, |flag| flag.enabled_areas = vec!["BGR".into()]).await;
    let elsewhere = ask((0.0, 0.0), None).await;
    assert_eq!(
        (elsewhere.status, &elsewhere.body["status"]),
        (200, &json!("AVAILABLE")),
        "a pilot refuses no request elsewhere"
    );
}

#[tokio::test]
async fn without_redis_and_postgres_the_advice_says_that_nobody_knows() {
    let mut t = TestApp::start().await;
    full_at(&t, 1).await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let body = json!({ "pickup_location": { "latitude": HERE.0, "longitude": HERE.1 }, "service_type": "RIDE" });
    let ask = async || api.post("/api/v1/dispatcher/availability-check", &key, body.clone()).await;
    assert_eq!(ask().await.status, 200);
    t.postgres.kill().await;
    tokio::time::sleep(millis(1_100)).await;
    assert_eq!(ask().await.status, 200, "Redis counts, and the key is believed while it cannot be revoked");
    t.redis.stop().await.unwrap();
    tokio::time::sleep(millis(300)).await;
    assert_eq!(ask().await.error(), (503, "DISPATCHER_SERVICE_UNAVAILABLE"));
    t.postgres.restart().await.unwrap();
    t.redis.restart().await.unwrap();
}

#[tokio::test]
async fn a_refused_order_over_http_may_come_again_under_its_key() {
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
    // The area is full again, and an order that is there needs no place.
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

#[tokio::test]
async fn without_the_flag_and_in_shadow_mode_nobody_is_refused() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    create(&t, "ORD-1", None).await;
    flag(&t, |flag| flag.shadow_mode = true).await;
    assert_eq!(create(&t, "ORD-2", None).await, None);
    t.app.tally.write_counts(&t.app.db).await.unwrap();
    area_status::save_snapshot(&t.app).await.unwrap();
    assert_eq!(t.count("SELECT sum(would_reject)::bigint FROM waiting_snapshots").await, 1);
    flag(&t, |flag| flag.enabled = false).await;
    assert_eq!(create(&t, "ORD-3", None).await, None);
    flag(&t, |flag| {
        flag.enabled = true;
        flag.shadow_mode = false;
        flag.enabled_areas = vec!["BGR".into()];
    })
    .await;
    assert_eq!(create(&t, "ORD-4", None).await, None);
    flag(&t, |flag| flag.enabled_areas.clear()).await;
    assert!(create(&t, "ORD-5", None).await.is_some());
    assert_eq!(waiting_in(&t, "JKT").await, 4);
}

#[tokio::test]
async fn a_person_decides_for_an_area_for_a_while() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    let until = |secs: i64| Some(t.app.rules.database_now() + chrono::TimeDelta::seconds(secs));
    let force = async |status, end| {
        overrides::set_override(&t.app.db, &"JKT".into(), Some((status, end)), None, AUTHOR).await.unwrap();
        refresh(&t).await;
    };
    force(ForcedStatus::ForceBusy, until(60)).await;
    let refused = create(&t, "ORD-1", Some("ELITE")).await.unwrap();
    assert_eq!((&refused["status"], &refused["reason"]), (&json!("SERVER_BUSY"), &json!("test")));
    // The process counts on from what the database said last: time enough for a slow machine, too.
    t.advance(secs(3600)).await;
    refresh(&t).await;
    assert_eq!(create(&t, "ORD-2", None).await, None, "it is over by itself");
    force(ForcedStatus::ForceAvailable, None).await;
    assert_eq!(create(&t, "ORD-3", None).await, None);
    overrides::set_override(&t.app.db, &"JKT".into(), None, None, AUTHOR).await.unwrap();
    refresh(&t).await;
    assert!(create(&t, "ORD-4", None).await.is_some());
}

#[tokio::test]
async fn after_a_flush_postgres_counts_and_nothing_is_overshot() {
    let t = TestApp::start().await;
    full_at(&t, 3).await;
    for n in 0..2 {
        create(&t, &format!("ORD-{n}"), None).await;
    }
    let _: () = t.redis(&["FLUSHALL"]).await;
    assert_eq!(create(&t, "ORD-2", None).await, None);
    let refused = create(&t, "ORD-3", None).await.unwrap();
    assert_eq!(refused["current_waiting"], 3);
    let drift = waiting::repair_waiting_sets(&t.app, &mut SuspectMembers::default()).await.unwrap();
    assert_eq!((drift.missing, drift.left_over), (3, 0));
    assert!(create(&t, "ORD-4", None).await.is_some());
    let counted: i64 = t.redis(&["ZCARD", "waiting:order:JKT:RIDE"]).await;
    assert_eq!(counted, 3);
}

#[tokio::test]
async fn without_redis_the_threshold_holds() {
    let mut t = TestApp::start().await;
    full_at(&t, 2).await;
    t.redis.stop().await.unwrap();
    assert_eq!(create(&t, "ORD-1", None).await, None);
    assert_eq!(create(&t, "ORD-2", None).await, None);
    assert!(create(&t, "ORD-3", None).await.is_some());
    t.redis.restart().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_producers_at_once_none_overshoots() {
    let t = Arc::new(TestApp::with(|config| config.database.max_connections = 20).await);
    full_at(&t, 20).await;
    // What each creation saw when it was done, at the moment before its commit.
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
                waiting::repair_waiting_sets(&t.app, &mut SuspectMembers::default()).await.unwrap();
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

#[tokio::test]
async fn an_area_does_not_flap_around_its_threshold() {
    let t = TestApp::start().await;
    full_at(&t, 10).await;
    let cooling =
        LimitsChange { cooldown_period_sec: Some(0), low_water_percentage: Some(50), ..LimitsChange::default() };
    limit(&t, "JKT", cooling).await;
    for n in 0..11 {
        create(&t, &format!("ORD-{n}"), None).await;
    }
    for n in 0..5 {
        t.cancel(&format!("ORD-{n}")).await.unwrap();
        assert!(create(&t, &format!("LATE-{n}"), None).await.is_some(), "{n} left, and it is still busy");
    }
    t.cancel("ORD-5").await.unwrap();
    assert_eq!(create(&t, "LATE-5", None).await, None, "fewer than half wait");
}

#[tokio::test]
async fn an_areas_durations_are_its_orders() {
    let t = TestApp::start().await;
    full_at(&t, 5).await;
    let change = LimitsChange {
        dispatch_timeout_sec: Some(30),
        waiting_timeout_sec: Some(300),
        retry_interval_sec: Some(7),
        ..LimitsChange::default()
    };
    limit(&t, "JKT", change).await;
    t.drivers(&[("D1", 100.0)]).await;
    create(&t, "ORD-1", None).await;
    let s = t.snapshot("ORD-1").await;
    assert_eq!((s.order.lifetime_deadline - s.order.created_at).num_seconds(), 300);
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    assert_eq!((offer.expires_at - offer.offered_at).num_seconds(), 30);
    t.advance(secs(30)).await;
    t.run_due().await;
    let s = t.snapshot("ORD-1").await;
    assert_eq!((s.order.next_attempt_at.unwrap() - s.now).num_seconds(), 7);
    t.run_for(secs(300)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_full_area_is_searched_less_often() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    create(&t, "ORD-1", None).await;
    t.run_due().await;
    let s = t.snapshot("ORD-1").await;
    assert_eq!((s.order.next_attempt_at.unwrap() - s.now).num_seconds(), 60);
    t.assert_sound().await;
}

#[tokio::test]
async fn those_who_run_areas_change_them_over_http_and_are_written_down() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (operator, producer) = (t.key(AccountRole::Operator).await, t.key(AccountRole::Producer).await);
    let base = "/api/v1/admin/dispatcher";
    let put = async |path: &str, key: &str, body: String| {
        api.send(Method::PUT, &format!("{base}{path}"), key, "", body).await
    };
    assert_eq!(put("/areas", &operator, areas()).await.body["imported"], 2);
    assert_eq!(put("/areas", &producer, areas()).await.error(), (403, "FORBIDDEN"));
    assert_eq!(put("/areas", &operator, "{}".to_owned()).await.error(), (422, "INVALID"));

    let set = json!({ "service_type": "RIDE", "max_waiting_orders": 150, "waiting_timeout_sec": 300 });
    let answer = put("/areas/JKT/threshold", &operator, set.to_string()).await;
    assert_eq!(
        (answer.status, &answer.body["order_lifetime_sec"], &answer.body["version"]),
        (200, &json!(300), &json!(1))
    );
    for (wrong, code) in [
        (json!({ "service_type": "SHIP" }), (422, "INVALID")),
        (json!({ "service_type": "RIDE", "max_waiting_orders": -1 }), (422, "INVALID")),
        (json!({ "service_type": "RIDE", "bypass_loyalty_levels": ["GOLD"] }), (422, "INVALID")),
    ] {
        assert_eq!(put("/areas/JKT/threshold", &operator, wrong.to_string()).await.error(), code, "{wrong}");
    }
    assert_eq!(put("/areas/XXX/threshold", &operator, set.to_string()).await.error(), (404, "AREA_NOT_FOUND"));
    let old = reqwest::Client::new()
        .put(api.url(&format!("{base}/areas/JKT/threshold")))
        .bearer_auth(&operator)
        .header("if-match", "\"7\"")
        .json(&set)
        .send()
        .await
        .unwrap();
    assert_eq!(old.status().as_u16(), 412);

    let over = json!({ "status": "FORCE_BUSY", "reason": "Banjir di area", "expires_at": "2099-01-27T18:00:00Z" });
    let answer = api.post(&format!("{base}/areas/JKT/override"), &operator, over).await;
    assert_eq!((answer.status, answer.text("status")), (200, "FORCE_BUSY"));
    let no_reason = api.post(&format!("{base}/areas/JKT/override"), &operator, json!({ "status": "FORCE_BUSY" })).await;
    assert_eq!(no_reason.error(), (422, "INVALID"));
    refresh(&t).await;
    let status = api.get(&format!("{base}/areas/status"), &operator).await;
    let forced = |row: &&Value| row["area_id"] == "JKT" && row["service_type"] == "RIDE";
    let forced = status.body["areas"].as_array().unwrap().iter().find(forced).unwrap();
    assert_eq!(forced["mode"], "FORCE_BUSY");
    let on = put("/flag", &operator, json!({ "enabled": true, "percentage": 10 }).to_string()).await;
    assert_eq!((on.status, &on.body["percentage"], &on.body["version"]), (200, &json!(10), &json!(2)));

    let changes = api.get(&format!("{base}/areas/JKT/changes"), &operator).await;
    let what: Vec<_> = changes.body["changes"].as_array().unwrap().iter().map(|c| c["what"].clone()).collect();
    assert_eq!(what, ["override set", "limits set", "area imported"]);
    assert_eq!(changes.body["changes"][0]["reason"], "Banjir di area");
    let all = put("/flag", &operator, json!({ "enabled": true }).to_string()).await;
    assert_eq!(all.status, 200);
    refresh(&t).await;
    assert_eq!(create(&t, "ORD-1", None).await.unwrap()["reason"], "Banjir di area");
    let typo = put("/flag", &operator, json!({ "enabled": true, "enabled_areas": ["JKTT"] }).to_string()).await;
    assert_eq!(typo.error(), (422, "INVALID"));
    assert_eq!(put("/areas/%00/threshold", &operator, set.to_string()).await.error(), (422, "INVALID"));
}

#[tokio::test]
async fn a_change_is_seen_by_another_replica_within_a_second() {
    let t = TestApp::on_real_time(|_| {}).await;
    full_at(&t, 1).await;
    let other = t.reconfigured(|_| {});
    let stop = tokio_util::sync::CancellationToken::new();
    tokio::spawn(other.rules.clone().keep_fresh(
        other.db.clone(),
        other.config.clone(),
        other.loops.clone(),
        stop.clone(),
    ));
    let threshold = || other.rules.get().limits_for(&"JKT".into(), &"RIDE".into()).max_waiting;
    crate::support::eventually("it has read the rules", || async { threshold() == 1 }).await;
    // A busy machine may lose a moment once, not every time.
    let mut took = Vec::new();
    for most in [7, 8, 9] {
        limit(&t, "JKT", LimitsChange { max_waiting_orders: Some(most), ..LimitsChange::default() }).await;
        let begun = std::time::Instant::now();
        crate::support::eventually("the change is seen", || async { threshold() == most }).await;
        took.push(begun.elapsed());
    }
    took.sort();
    assert!(took[1] < secs(1), "{took:?}");
    stop.cancel();
}

#[tokio::test]
async fn a_place_whose_order_never_came_is_given_back() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    let _: () = t.redis(&["ZADD", "waiting:order:JKT:RIDE", "9999999999999", "ORD-GHOST"]).await;
    assert!(create(&t, "ORD-1", None).await.is_some());
    let mut suspects = SuspectMembers::default();
    let first = waiting::repair_waiting_sets(&t.app, &mut suspects).await.unwrap();
    assert_eq!(first.left_over, 0, "it may be on its way");
    suspects.backdate_suspects(secs(61));
    let second = waiting::repair_waiting_sets(&t.app, &mut suspects).await.unwrap();
    assert_eq!(second.left_over, 1);
    assert_eq!(create(&t, "ORD-2", None).await, None);
}

#[tokio::test]
async fn a_raised_threshold_ends_the_cooldown_of_the_old_one() {
    let t = TestApp::start().await;
    full_at(&t, 2).await;
    limit(&t, "JKT", LimitsChange { cooldown_period_sec: Some(600), ..LimitsChange::default() }).await;
    for n in 0..3 {
        create(&t, &format!("ORD-{n}"), None).await;
    }
    t.cancel("ORD-0").await.unwrap();
    assert!(create(&t, "ORD-3", None).await.is_some(), "it cools down");
    limit(&t, "JKT", LimitsChange { max_waiting_orders: Some(5), ..LimitsChange::default() }).await;
    assert_eq!(create(&t, "ORD-4", None).await, None);
}

#[tokio::test]
async fn limits_are_copied_for_others_and_forgotten_after_a_while() {
    let t = TestApp::start().await;
    full_at(&t, 7).await;
    waiting::mirror_limits(&t.app).await.unwrap();
    let key = "threshold:config:JKT:RIDE";
    let copied: Vec<i64> = t.redis(&["HMGET", key, "threshold", "timeout_seconds"]).await;
    assert_eq!(copied, [7, 1800]);
    let ttl: i64 = t.redis(&["TTL", key]).await;
    assert!((1..=3600).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn many_who_wait_are_put_back_whole_after_a_flush() {
    let t = TestApp::start().await;
    full_at(&t, 5_000).await;
    create(&t, "ORD-1", None).await;
    t.sql(
        "INSERT INTO orders SELECT (jsonb_populate_record(o, jsonb_build_object('id', 'COPY-' || n))).*
         FROM orders o, generate_series(1, 1500) n",
    )
    .await;
    let _: () = t.redis(&["FLUSHALL"]).await;
    let drift = waiting::repair_waiting_sets(&t.app, &mut SuspectMembers::default()).await.unwrap();
    assert_eq!((drift.missing, drift.left_over), (1_501, 0));
    let count: i64 = t.redis(&["ZCARD", "waiting:order:JKT:RIDE"]).await;
    assert_eq!(count, 1_501);
}

#[tokio::test]
async fn overrides_end_by_the_clock_of_postgres_however_wrong_this_machine_is() {
    let t = TestApp::start().await;
    let wrong = Arc::new(FixedClock::new("2001-01-01T00:00:00Z".parse().unwrap()));
    let app = t.app.clone().with_clock(wrong.clone());
    app.rules.reload_if_changed(&app.db, &app.config.admission).await.unwrap();
    let now = database_now(&app.db).await.unwrap();
    assert_eq!(app.rules.database_now(), now);
    wrong.move_by(TimeDelta::seconds(90));
    assert_eq!(app.rules.database_now(), now + TimeDelta::seconds(90));
}
