//! Settings of operators: flag, limits and overrides.

use std::sync::Arc;

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};

use super::{AUTHOR, areas, create, flag, full_at, limit, refresh, waiting_in};
use accounts::api_keys::AccountRole;
use areas::{
    admission::waiting::{self, SuspectMembers},
    table::{limits::LimitsChange, overrides},
};
use desk::reports::{area_status, census, glance};
use foundation::{db::database_now, system::FixedClock};
use model::{admission::limits::ForcedStatus, order::OrderStatus};
use test_support::{Api, TestApp, http_client, secs};

#[tokio::test]
async fn without_the_flag_and_in_shadow_mode_nobody_is_refused() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    create(&t, "ORD-1", None).await;
    flag(&t, |flag| flag.shadow_mode = true).await;
    assert_eq!(create(&t, "ORD-2", None).await, None);
    t.app.areas.tally.write_counts(&t.app.core.db).await.unwrap();
    area_status::save_snapshot(&t.app.desk).await.unwrap();
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
    let until = |secs: i64| Some(t.app.core.database_clock.now() + chrono::TimeDelta::seconds(secs));
    let force = async |status, end| {
        overrides::set_override(&t.app.core.db, &"JKT".into(), Some((status, end)), None, AUTHOR).await.unwrap();
        refresh(&t).await;
    };
    force(ForcedStatus::ForceBusy, until(60)).await;
    let refused = create(&t, "ORD-1", Some("ELITE")).await.unwrap();
    assert_eq!((&refused["status"], &refused["reason"]), (&json!("SERVER_BUSY"), &json!("test")));
    // The process extrapolates the database time that it read last. An hour is enough for a slow machine.
    t.advance(secs(3600)).await;
    refresh(&t).await;
    assert_eq!(create(&t, "ORD-2", None).await, None, "it is over by itself");
    force(ForcedStatus::ForceAvailable, None).await;
    assert_eq!(create(&t, "ORD-3", None).await, None);
    overrides::set_override(&t.app.core.db, &"JKT".into(), None, None, AUTHOR).await.unwrap();
    refresh(&t).await;
    assert!(create(&t, "ORD-4", None).await.is_some());
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
async fn an_areas_durations_are_its_orders() {
    let t = TestApp::start().await;
    full_at(&t, 5).await;
    let change = LimitsChange {
        dispatch_timeout_sec: Some(30),
        order_lifetime_sec: Some(300),
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

// Rule L4: The window of an area limits how long an order counts as waiting, and does not change its lifetime.
#[tokio::test]
async fn window_bounds_the_count_and_not_the_lifetime() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    let window = |secs| LimitsChange { waiting_timeout_sec: Some(secs), ..LimitsChange::default() };
    limit(&t, "JKT", window(300)).await;
    assert_eq!(create(&t, "ORD-1", None).await, None);
    assert!(create(&t, "ORD-2", None).await.is_some(), "it counts");
    let s = t.snapshot("ORD-1").await;
    assert_eq!((s.order.lifetime_deadline - s.order.created_at).num_seconds(), 1_800);
    let end_in_redis = async || -> f64 { t.redis(&["ZSCORE", "waiting:order:JKT:RIDE", "ORD-1"]).await };
    let counted_s = |end: f64, from: f64| ((end - from) / 1_000.0).round();
    let first = end_in_redis().await;

    // A changed window also applies to orders that already wait.
    limit(&t, "JKT", window(900)).await;
    let drift = waiting::repair_waiting_sets(&t.app.areas, &mut SuspectMembers::default()).await.unwrap();
    assert_eq!((drift.missing, drift.left_over), (0, 0));
    let moved = counted_s(end_in_redis().await, first);
    assert!((595.0..=605.0).contains(&moved), "{moved}");
    limit(&t, "JKT", window(300)).await;

    t.advance(secs(299)).await;
    refresh(&t).await;
    assert_eq!(waiting_in(&t, "JKT").await, 1);
    t.advance(secs(2)).await;
    refresh(&t).await;
    assert_eq!(waiting_in(&t, "JKT").await, 0, "it waits on, and no longer counts");
    let mut suspects = SuspectMembers::default();
    waiting::repair_waiting_sets(&t.app.areas, &mut suspects).await.unwrap();
    suspects.backdate_suspects(secs(61));
    waiting::repair_waiting_sets(&t.app.areas, &mut suspects).await.unwrap();
    let census = census::take_census(&t.app.core.db).await.unwrap();
    let counted = census.waiting.values().map(|waiting| waiting.orders).sum::<i64>();
    assert_eq!((census.orders, counted), (1, 0));
    assert_eq!(create(&t, "ORD-3", None).await, None);
    t.assert_sound().await;
    t.run_for(secs(1_000)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
}

// Rule L4: Redis removes an order from the count when its window has passed, without a worker.
#[tokio::test]
async fn order_leaves_the_waiting_set_with_its_window() {
    let t = TestApp::on_real_time(|_| {}).await;
    full_at(&t, 1).await;
    limit(&t, "JKT", LimitsChange { waiting_timeout_sec: Some(2), ..LimitsChange::default() }).await;
    assert_eq!(create(&t, "ORD-1", None).await, None);
    assert!(create(&t, "ORD-2", None).await.is_some());
    test_support::eventually("there is room again", || async { create(&t, "ORD-3", None).await.is_none() }).await;
}

// Rule L6: The number of areas at threshold counts every area that refuses: forced, disabled, cooling down, full, or
// with a threshold of 0.
#[tokio::test]
async fn every_refusing_area_is_counted_with_its_cause() {
    let t = TestApp::start().await;
    full_at(&t, 2).await;
    limit(&t, "JKT", LimitsChange { low_water_percentage: Some(50), ..LimitsChange::default() }).await;
    let refusals = async || -> Vec<String> {
        let statuses = area_status::area_statuses(&t.app.desk).await.unwrap();
        let refusing = statuses.iter().filter_map(|row| {
            row.refuses.map(|cause| format!("{} {} {}", row.area_id, row.service_type, cause.as_str()))
        });
        refusing.collect()
    };
    assert_eq!(refusals().await, Vec::<String>::new());
    // JKT is full, and BGR admits no order.
    for order in ["ORD-1", "ORD-2"] {
        assert_eq!(create(&t, order, None).await, None);
    }
    assert!(create(&t, "ORD-3", None).await.is_some());
    limit(&t, "BGR", LimitsChange { max_waiting_orders: Some(0), ..LimitsChange::default() }).await;
    assert_eq!(refusals().await, ["BGR RIDE THRESHOLD", "JKT RIDE THRESHOLD"]);
    // JKT has room again but is cooling down: its waiting orders still reach the low-water mark.
    t.cancel("ORD-1").await.unwrap();
    assert!(create(&t, "ORD-4", None).await.is_some());
    assert_eq!(refusals().await, ["BGR RIDE THRESHOLD", "JKT RIDE COOLING"]);
    // A threshold that is not enforced refuses no order. An override and a disabled area still do.
    limit(&t, "BGR", LimitsChange { enabled: Some(false), ..LimitsChange::default() }).await;
    overrides::set_override(&t.app.core.db, &"JKT".into(), Some((ForcedStatus::ForceBusy, None)), None, AUTHOR)
        .await
        .unwrap();
    flag(&t, |flag| flag.enabled = false).await;
    let services = t.app.config.service_types.len();
    let found = refusals().await;
    assert_eq!(found.len(), 1 + services, "{found:?}");
    area_status::save_snapshot(&t.app.desk).await.unwrap();
    let curve = glance::area_curve(&t.app.core.db).await.unwrap();
    let services = i64::try_from(services).unwrap();
    let latest = curve.last().unwrap();
    assert_eq!((latest.full, latest.by_cause.as_slice()), (1 + services, [1, services, 0, 0].as_slice()));
}

#[tokio::test]
async fn a_full_area_is_searched_less_often() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    create(&t, "ORD-1", None).await;
    t.run_due().await;
    let pause = async |order: &str| {
        let s = t.snapshot(order).await;
        (s.order.next_attempt_at.unwrap() - s.now).num_seconds()
    };
    assert_eq!(pause("ORD-1").await, 60);
    // Shadow mode only records refusals.
    flag(&t, |flag| flag.shadow_mode = true).await;
    assert_eq!(create(&t, "ORD-2", None).await, None);
    t.run_due().await;
    assert_eq!(pause("ORD-2").await, 15);
    t.assert_sound().await;
}

// Rule L6: Answers about areas and their status use the names of the requirement document, in addition to the old
// names.
#[tokio::test]
async fn area_changes_over_http_are_recorded() {
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
        (
            answer.status,
            &answer.body["waiting_timeout_sec"],
            &answer.body["order_lifetime_sec"],
            &answer.body["version"]
        ),
        (200, &json!(300), &Value::Null, &json!(1))
    );
    for (wrong, code) in [
        (json!({ "service_type": "SHIP" }), (422, "INVALID")),
        (json!({ "service_type": "RIDE", "max_waiting_orders": -1 }), (422, "INVALID")),
        (json!({ "service_type": "RIDE", "bypass_loyalty_levels": ["GOLD"] }), (422, "INVALID")),
    ] {
        assert_eq!(put("/areas/JKT/threshold", &operator, wrong.to_string()).await.error(), code, "{wrong}");
    }
    assert_eq!(put("/areas/XXX/threshold", &operator, set.to_string()).await.error(), (404, "AREA_NOT_FOUND"));
    let old = http_client()
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
    assert_eq!((&forced["mode"], &forced["refuses"]), (&json!("FORCE_BUSY"), &json!("FORCED")));
    assert_eq!((&forced["waiting_count"], &forced["effective"]["waiting_timeout_sec"]), (&json!(0), &json!(300)));
    assert!(forced["last_updated"].as_str().is_some_and(|at| at.ends_with('Z')), "{forced}");
    let listed = api.get(&format!("{base}/areas"), &operator).await;
    let area = listed.body["areas"].as_array().unwrap().iter().find(|row| row["area_id"] == "JKT").unwrap();
    for name in ["name", "geohash", "service_type", "geofence"] {
        assert!(area.get(name).is_some(), "{name}: {area}");
    }
    assert_eq!((&area["id"], &area["geohash"]), (&json!("JKT"), &Value::Null));
    let (first, corners) = (&area["geofence"][0], area["geofence"].as_array().unwrap());
    assert!(first["latitude"].is_f64() && first["longitude"].is_f64() && corners.len() >= 4, "{area}");
    let alone = api.get(&format!("{base}/areas/JKT"), &operator).await;
    assert_eq!(alone.body["area"]["geofence"], area["geofence"]);
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
    tokio::spawn(other.areas.clone().keep_fresh(stop.clone()));
    let threshold = || other.areas.rules.get().limits_for(&"JKT".into(), &"RIDE".into()).max_waiting;
    test_support::eventually("it has read the rules", || async { threshold() == 1 }).await;
    // A busy machine may miss a notification once or twice, but not every time.
    let mut took = Vec::new();
    for most in [7, 8, 9, 10, 11] {
        limit(&t, "JKT", LimitsChange { max_waiting_orders: Some(most), ..LimitsChange::default() }).await;
        let begun = std::time::Instant::now();
        test_support::eventually("the change is seen", || async { threshold() == most }).await;
        took.push(begun.elapsed());
    }
    took.sort();
    assert!(took[2] < secs(1), "{took:?}");
    stop.cancel();
}

#[tokio::test]
async fn overrides_end_by_the_postgres_clock() {
    let t = TestApp::start().await;
    let wrong = Arc::new(FixedClock::new("2001-01-01T00:00:00Z".parse().unwrap()));
    let app = t.app.clone().with_clock(wrong.clone());
    app.areas.reload_if_changed().await.unwrap();
    let now = database_now(&app.core.db).await.unwrap();
    assert_eq!(app.core.database_clock.now(), now);
    wrong.move_by(TimeDelta::seconds(90));
    assert_eq!(app.core.database_clock.now(), now + TimeDelta::seconds(90));
}
