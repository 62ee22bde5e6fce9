//! Areas in the API and in SQL: shapes, service types, inherited limits and schedules.

use chrono::{Datelike, TimeDelta, Timelike};
use reqwest::Method;
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use areas::{
    admission::sql_orders,
    import,
    table::{ChangeAuthor, geofences},
};
use desk::reports::{area_hours, area_status};
use foundation::db;
use model::{
    actor::{Actor, ActorRole},
    admission::schedule::ScheduleDay,
    ids::LatLng,
};
use test_support::{Answer, Api, JAKARTA, TestApp, secs};

const BASE: &str = "/api/v1/admin/dispatcher";
const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "test"), reason: Some("test") };
/// Pickup of the examples in the requirement document.
const HERE: (f64, f64) = (-6.2088, 106.8456);

async fn import_areas(t: &TestApp, text: &str) {
    geofences::import_areas(&t.app.core.db, &import::parse(text).unwrap(), false, None, AUTHOR).await.unwrap();
    refresh(t).await;
}

async fn refresh(t: &TestApp) {
    t.app.areas.reload_if_changed().await.unwrap();
}

/// The API, and an operator's key.
struct Desk {
    t: TestApp,
    api: Api,
    operator: String,
}

impl Desk {
    async fn open() -> Self {
        let t = TestApp::start().await;
        let api = Api::start(&t.app).await;
        let operator = t.key(AccountRole::Operator).await;
        import_areas(&t, JAKARTA).await;
        Self { t, api, operator }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Answer {
        let answer = self.api.send(method, &format!("{BASE}{path}"), &self.operator, "", body.to_string()).await;
        refresh(&self.t).await;
        answer
    }

    async fn set(&self, area: &str, change: Value) -> Answer {
        self.send(Method::PUT, &format!("/areas/{area}/threshold"), change).await
    }

    async fn status(&self, area: &str, service_type: &str) -> Value {
        let status = self.api.get(&format!("{BASE}/areas/status"), &self.operator).await;
        let mut rows = status.body["areas"].as_array().unwrap().iter();
        rows.find(|row| row["area_id"] == area && row["service_type"] == service_type).cloned().unwrap_or_default()
    }
}

#[tokio::test]
async fn exported_areas_can_be_imported_unchanged() {
    let desk = Desk::open().await;
    let shown = desk.api.get(&format!("{BASE}/areas/CGK-T3"), &desk.operator).await;
    let shipped: Value = serde_json::from_str(JAKARTA).unwrap();
    assert_eq!(shown.body["geometry"], shipped["features"][6]["geometry"]);
    assert_eq!(
        (&shown.body["area"]["time_zone"], &shown.body["area"]["service_type"]),
        (&json!("Asia/Jakarta"), &json!([]))
    );

    let all = desk.api.send_raw(&format!("{BASE}/areas.geojson"), &desk.operator).await;
    assert_eq!(all.headers()["content-type"], "application/geo+json");
    let collection: Value = all.json().await.unwrap();
    assert_eq!(collection["features"].as_array().unwrap().len(), 7);
    let back = desk.send(Method::PUT, "/areas", collection).await;
    assert_eq!((back.status, &back.body["imported"]), (200, &json!(7)));
    let listed = desk.api.get(&format!("{BASE}/areas"), &desk.operator).await;
    let is_first = |area: &Value| area["version"] == 1;
    assert!(listed.body["areas"].as_array().unwrap().iter().all(is_first), "nothing has changed: {listed:?}");
}

// Rule F2: The import answers 422 with the member that breaks a rule. X-Ignored-Fields lists the members that it does
// not read.
// Rule F3: The import answers 422 to an edge of more than 180 degrees of longitude.
#[tokio::test]
async fn import_answer_names_refused_and_ignored_members() {
    let desk = Desk::open().await;
    let ring = json!([[106.0, -6.0], [107.0, -6.0], [107.0, -5.0], [106.0, -5.0]]);
    let with = |properties: Value, ring: &Value| {
        let geometry = json!({ "type": "Polygon", "coordinates": [ring] });
        json!({ "type": "FeatureCollection",
                "features": [{ "type": "Feature", "properties": properties, "geometry": geometry }] })
    };
    let across = json!([[179, -17], [-179, -17], [-179, -16], [179, -16], [179, -17]]);
    for (body, pointer, said) in [
        (with(json!({ "area_id": "A", "service_type": ["ride"] }), &ring), "properties/service_type/0", "known are"),
        (with(json!({ "area_id": 7 }), &ring), "properties/area_id", "must be a text"),
        (with(json!({ "area_id": "A", "name": 7 }), &ring), "properties/name", "must be a text"),
        (with(json!({ "area_id": "A" }), &across), "geometry", "cut it at 180°"),
    ] {
        let refused = desk.send(Method::PUT, "/areas", body).await;
        assert_eq!(refused.error(), (422, "INVALID"));
        assert_eq!(refused.body["errors"][0]["pointer"], format!("#/features/0/{pointer}"));
        assert!(refused.text("message").contains(said), "{refused:?}");
    }
    let properties = json!({ "area_id": "A", "priority": 1.0, "geohashes": ["qqgu", "qqgu"], "service_types": ["RENT"],
                             "timezone": "Asia/Jakarta", "geohash": "qqgu" });
    let answer = reqwest::Client::new()
        .put(desk.api.url(&format!("{BASE}/areas")))
        .bearer_auth(&desk.operator)
        .json(&with(properties, &ring))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-ignored-fields"], "geohash, service_types, timezone");
    let shown = desk.api.get(&format!("{BASE}/areas/A"), &desk.operator).await;
    assert_eq!((&shown.body["area"]["priority"], &shown.body["area"]["geohashes"]), (&json!(1), &json!(["qqgu"])));
    let kept = shown.body["geometry"]["coordinates"][0].as_array().unwrap();
    assert_eq!((kept.len(), kept.first()), (5, kept.last()), "the ring is closed");
}

// Rule L4: The window of the waiting count and the lifetime of orders are two limits, which are inherited separately.
#[tokio::test]
async fn status_shows_limits_and_null_restores_defaults() {
    let desk = Desk::open().await;
    let all = desk.api.get(&format!("{BASE}/areas/status"), &desk.operator).await;
    assert_eq!(all.body["areas"].as_array().unwrap().len(), 7 * desk.t.app.config.service_types.len());
    let untouched = desk.status("JKT-TIMUR", "RENT").await;
    assert_eq!((&untouched["threshold"], &untouched["effective"]["order_lifetime_sec"]), (&json!(100), &json!(1800)));

    let set = json!({ "service_type": "RIDE", "max_waiting_orders": 7, "waiting_timeout_sec": 300, "order_lifetime_sec": 900, "enabled": false });
    assert_eq!(desk.set("JKT-PUSAT", set).await.status, 200);
    let row = desk.status("JKT-PUSAT", "RIDE").await;
    assert_eq!((&row["threshold"], &row["mode"]), (&json!(7), &json!("DISABLED")));
    let durations = |row: &Value| {
        let effective = &row["effective"];
        [&effective["waiting_timeout_sec"], &effective["order_lifetime_sec"]].map(|value| value.as_i64().unwrap())
    };
    assert_eq!(durations(&row), [300, 900]);
    let back = desk.set("JKT-PUSAT", json!({ "service_type": "RIDE", "max_waiting_orders": null })).await;
    assert_eq!((&back.body["max_waiting_orders"], &back.body["order_lifetime_sec"]), (&Value::Null, &json!(900)));
    let back = desk.set("JKT-PUSAT", json!({ "service_type": "RIDE", "waiting_timeout_sec": null })).await;
    assert_eq!((&back.body["waiting_timeout_sec"], &back.body["order_lifetime_sec"]), (&Value::Null, &json!(900)));
    assert_eq!(durations(&desk.status("JKT-PUSAT", "RIDE").await), [900, 900], "for the whole lifetime");
    assert_eq!(desk.status("JKT-PUSAT", "RIDE").await["threshold"], 100);

    // The reset changes all limits at once, and each version is used only once.
    let reset = desk.send(Method::DELETE, "/areas/JKT-PUSAT/threshold?service_type=RIDE", json!({})).await;
    assert_eq!((reset.status, &reset.body["version"], &reset.body["enabled"]), (200, &json!(4), &json!(true)));
    let row = desk.status("JKT-PUSAT", "RIDE").await;
    assert_eq!((&row["mode"], &row["effective"]["order_lifetime_sec"]), (&json!("AUTO"), &json!(1800)));
}

#[tokio::test]
async fn schedule_follows_the_clock_of_its_area() {
    let desk = Desk::open().await;
    let now = desk.t.app.core.database_clock.now();
    // Jakarta is seven hours ahead of UTC. The entry starts at the current full hour and ends at least an hour from
    // now, so no run reaches its end.
    let there = |hours: i64| (now + TimeDelta::hours(7 + hours)).format("%H:00").to_string();
    let days = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];
    let entry = json!({ "days": days, "from": there(0), "to": there(2), "max_waiting_orders": 3 });
    let set = desk.set("JKT-PUSAT", json!({ "service_type": "RIDE", "schedule": [entry] })).await;
    assert_eq!((set.status, &set.body["schedule"][0]["max_waiting_orders"]), (200, &json!(3)), "{set:?}");
    let row = desk.status("JKT-PUSAT", "RIDE").await;
    assert_eq!((&row["threshold"], &row["effective"]["scheduled"]), (&json!(3), &json!(true)));
    let producer = desk.t.key(AccountRole::Producer).await;
    let question = json!({ "pickup_location": { "latitude": HERE.0, "longitude": HERE.1 }, "service_type": "RIDE" });
    let told = desk.api.post("/api/v1/dispatcher/availability-check", &producer, question).await;
    assert_eq!((told.text("area_id"), &told.body["threshold"]), ("JKT-PUSAT", &json!(3)));

    desk.t.advance(secs(2 * 3600)).await;
    refresh(&desk.t).await;
    assert_eq!(desk.status("JKT-PUSAT", "RIDE").await["threshold"], 100, "its time is over");
    for (wrong, said) in [
        (json!([{ "from": "07:00", "to": "07:00", "max_waiting_orders": 1 }]), "both 07:00"),
        (json!([{ "from": "7", "to": "08:00", "max_waiting_orders": 1 }]), "not a time of day"),
    ] {
        let refused = desk.set("JKT-PUSAT", json!({ "service_type": "RIDE", "schedule": wrong })).await;
        assert_eq!(refused.error(), (422, "INVALID"));
        assert!(refused.text("message").contains(said), "{refused:?}");
    }
    let none = desk.set("JKT-PUSAT", json!({ "service_type": "RIDE", "schedule": null })).await;
    assert_eq!(none.body["schedule"], Value::Null);
}

// Rule F3: SQL and the API find the same area everywhere, and -180 and 180 are the same meridian.
#[tokio::test]
async fn sql_finds_the_area_that_the_api_finds() {
    let t = TestApp::start().await;
    let square =
        |w: f64, s: f64, side: f64| json!([[w, s], [w + side, s], [w + side, s + side], [w, s + side], [w, s]]);
    let feature = |properties: Value, geometry: Value| json!({ "type": "Feature", "properties": properties, "geometry": geometry });
    import_areas(&t, JAKARTA).await;
    let more = json!({ "type": "FeatureCollection", "features": [
        feature(json!({ "area_id": "RING", "priority": 5 }),
                json!({ "type": "Polygon", "coordinates": [square(106.75, -6.3, 0.1), square(106.78, -6.27, 0.03)] })),
        feature(json!({ "area_id": "ISLES", "priority": 6, "service_type": ["RENT"] }),
                json!({ "type": "MultiPolygon", "coordinates": [[square(106.6, -6.4, 0.1)], [square(106.9, -6.2, 0.05)]] })),
        feature(json!({ "area_id": "CELLS", "priority": 7, "geohashes": ["qqguy", "qqu5", "8"] }), Value::Null),
        feature(json!({ "area_id": "EAST" }), json!({ "type": "Polygon", "coordinates": [square(179.0, -17.0, 1.0)] })),
        feature(json!({ "area_id": "WEST" }), json!({ "type": "Polygon", "coordinates": [square(-180.0, -14.0, 1.0)] })),
    ] });
    import_areas(&t, &more.to_string()).await;
    // For this service type, the airport has priority over its terminal.
    t.sql("INSERT INTO area_limits (area_id, service_type, priority) VALUES ('CGK', 'RENT', 1)").await;
    refresh(&t).await;
    let rules = t.app.areas.rules.get();
    let (mut places, mut found) = (Vec::new(), std::collections::BTreeSet::new());
    for lat in 0..60 {
        for lng in 0..60 {
            places.push(LatLng::new(-6.4137 + 0.0061 * f64::from(lat), 106.5819 + 0.0071 * f64::from(lng)));
        }
    }
    for lat in [-16.5, -13.5, 30.0, 60.0] {
        places.extend([180.0, -180.0, 179.5, -179.5].map(|lng| LatLng::new(lat, lng)));
    }
    for service_type in ["RIDE", "RENT"] {
        let by_sql: Vec<Option<String>> = sqlx::query_scalar(
            "SELECT dispatchq_area_at(p.lat, p.lng, $3) FROM unnest($1::float8[], $2::float8[]) WITH ORDINALITY AS p(lat, lng, n) ORDER BY n",
        )
        .bind(places.iter().map(|place| place.lat).collect::<Vec<_>>())
        .bind(places.iter().map(|place| place.lng).collect::<Vec<_>>())
        .bind(service_type)
        .fetch_all(&t.app.core.db)
        .await
        .unwrap();
        for (place, by_sql) in places.iter().zip(by_sql) {
            let by_rules = rules.find_area(*place, &service_type.into()).map(|area| area.id.to_string());
            assert_eq!(by_sql, by_rules, "{service_type} at {place:?}");
            found.extend(by_sql);
        }
    }
    for (lat, expected) in [(-16.5, Some("EAST")), (-13.5, Some("WEST")), (30.0, Some("CELLS")), (60.0, None)] {
        let at = |lng| rules.find_area(LatLng::new(lat, lng), &"RIDE".into()).map(|area| area.id.as_str());
        assert_eq!([at(180.0), at(-180.0)], [expected; 2], "{lat}");
    }
    let expected = [
        "CELLS",
        "CGK",
        "CGK-T3",
        "EAST",
        "ISLES",
        "JKT-BARAT",
        "JKT-SELATAN",
        "JKT-TIMUR",
        "JKT-UTARA",
        "RING",
        "WEST",
    ];
    assert!(expected.iter().all(|area| found.contains(*area)), "{found:?}");
}

#[tokio::test]
async fn sql_order_is_located_in_its_transaction() {
    let t = TestApp::start().await;
    import_areas(&t, JAKARTA).await;
    t.sql("INSERT INTO area_limits (area_id, service_type, order_lifetime_sec) VALUES ('CGK-T3', 'RIDE', 300)").await;
    let mut tx = t.app.core.db.begin().await.unwrap();
    let create = |order: &str, place: &str, more: &str| {
        format!("SELECT dispatchq_create_order('{order}', 'RIDE', {place}{more})")
    };
    for create in [
        create("ORD-1", "-6.12, 106.665", ""),
        // The pickup has priority over the given area id.
        create("ORD-2", "-6.12, 106.665", ", area_id => 'JKT-PUSAT', lifetime => interval '1 hour'"),
        create("ORD-3", "0, 0", ", area_id => 'NOWHERE'"),
        create("ORD-4", "0, 0", ""),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(create)).execute(&mut *tx).await.unwrap();
    }
    let counted: i64 =
        sqlx::query_scalar("SELECT dispatchq_waiting('CGK-T3', 'RIDE')").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(counted, 2, "before the transaction ends");
    tx.commit().await.unwrap();
    let areas = t.texts("SELECT coalesce(area_id, '-') FROM orders ORDER BY id").await;
    assert_eq!(areas, ["CGK-T3", "CGK-T3", "NOWHERE", "-"]);
    let lifetimes = t.texts("SELECT (lifetime_deadline - created_at)::text FROM orders ORDER BY id").await;
    assert_eq!(lifetimes, ["00:05:00", "01:00:00", "00:30:00", "00:30:00"]);

    // The advice reads Redis, which gets these orders with the next run of a worker.
    let added = sql_orders::count_new_orders(&t.app.areas).await.unwrap();
    assert_eq!(added, 3);
    let in_redis: Vec<String> = t.redis(&["ZRANGE", "waiting:order:CGK-T3:RIDE", "0", "-1"]).await;
    assert_eq!(in_redis, ["ORD-1", "ORD-2"]);
    assert_eq!(sql_orders::count_new_orders(&t.app.areas).await.unwrap(), 0, "once");
    t.cancel("ORD-1").await.unwrap();
    let in_redis: i64 = t.redis(&["ZCARD", "waiting:order:CGK-T3:RIDE"]).await;
    assert_eq!(in_redis, 1);
}

#[tokio::test]
async fn advice_reads_found_drivers_and_snapshots() {
    let t = TestApp::start().await;
    import_areas(&t, JAKARTA).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.order("ORD-2").await;
    area_status::save_snapshot(&t.app.desk).await.unwrap();
    let now = t.app.core.database_clock.now();
    let period = (now - TimeDelta::hours(2), now + TimeDelta::hours(2));
    let hours = area_hours::observe_hours(&t.app.desk, &"JKT-PUSAT".into(), &"RIDE".into(), period).await.unwrap();
    let [hour] = hours[..] else { panic!("{hours:?}") };
    assert_eq!((hour.created, hour.found_driver, hour.peak_waiting), (2, 1, Some(1)));
    let there = now + TimeDelta::hours(7);
    assert_eq!((hour.day, hour.hour), (ScheduleDay::from(there.weekday()), there.hour()), "by the clock of Jakarta");
    let elsewhere = area_hours::observe_hours(&t.app.desk, &"CGK".into(), &"RIDE".into(), period).await.unwrap();
    assert_eq!(elsewhere, []);
}

/// Uses a time zone with a half-hour offset, and a period that starts and ends between full hours and needs more than
/// one statement.
#[tokio::test]
async fn advice_counts_whole_hours_by_the_clock_of_the_area() {
    let t = TestApp::start().await;
    import_areas(&t, &JAKARTA.replace("Asia/Jakarta", "Asia/Kolkata")).await;
    // The time is 13:30 in Kolkata.
    let begun = db::database_now(&t.app.core.db).await.unwrap();
    let mut passed = 0;
    // Orders at 13:40, 13:50, 14:10, 14:50 and 15:10.
    for (n, minutes) in [10, 20, 40, 80, 100].into_iter().enumerate() {
        t.advance(secs((minutes - passed) * 60)).await;
        passed = minutes;
        t.order(&format!("ORD-{n}")).await;
    }
    let observe = async |since: i64, until: i64| -> Vec<(u32, u64)> {
        let period = (begun + TimeDelta::minutes(since), begun + TimeDelta::minutes(until));
        let hours = area_hours::observe_hours(&t.app.desk, &"JKT-PUSAT".into(), &"RIDE".into(), period).await.unwrap();
        hours.iter().map(|hour| (hour.hour, hour.created)).collect()
    };
    // The period starts at 13:45 of the day before, so a statement ends within an hour of this day.
    assert_eq!(observe(15 - 24 * 60, 110).await, [(13, 2), (14, 2)], "15 is not over");
    // The first period is for learning, the second for evaluation.
    assert_eq!(observe(-60, 45).await, [(13, 2)]);
    assert_eq!(observe(45, 110).await, [(14, 2)]);
}
