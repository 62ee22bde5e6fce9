//! Contents of orders: who reads which, bad values, and their removal.
//!
//! * `edits`: changes. `filters`: lists by metadata. `outputs`: the contents in each output. `erasure`: no trace is left.

mod edits;
mod erasure;
mod filters;
mod outputs;

use reqwest::Method;
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use maintenance::periodic::cleanup::{self, CleanupMode};
use test_support::{Answer, Api, TestApp, secs};

/// Returns a ride with all contents.
fn full_ride(order: &str) -> Value {
    json!({
        "order_id": order, "service_type": "RIDE",
        "pickup": { "latitude": -6.2088, "longitude": 106.8456, "address": "PICKUP-TEXT 1" },
        "dropoff": { "latitude": -6.1754, "longitude": 106.8272, "address": "DROPOFF-TEXT 2" },
        "notes": "NOTES-TEXT", "metadata": { "crm_id": "META-TEXT" },
        "contact": { "name": "CONTACT-TEXT", "phone": "+628123456789", "email": "ana@example.com" },
    })
}

/// Asserts which contents the answer has: pickup address, dropoff, notes, metadata, contact.
#[track_caller]
fn assert_contents(what: &str, answer: &Answer, expected: [bool; 5]) {
    let text = answer.body.to_string();
    let found =
        ["PICKUP-TEXT", "DROPOFF-TEXT", "NOTES-TEXT", "META-TEXT", "CONTACT-TEXT"].map(|mark| text.contains(mark));
    assert_eq!(found, expected, "{what}: {}", answer.body);
}

const NONE: [bool; 5] = [false; 5];
const ALL_BUT_CONTACT: [bool; 5] = [true, true, true, true, false];
const ALL: [bool; 5] = [true; 5];

/// Roles that list and read orders.
const STAFF: [AccountRole; 5] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator, AccountRole::Admin];

async fn accept(t: &TestApp, api: &Api, order: &str) -> Answer {
    let offer = t.live_offer(order).await;
    let body = json!({ "driver_id": offer.driver_id, "offer_id": offer.id });
    api.post(&format!("/api/v1/orders/{order}/accept"), &t.driver_key(&offer.driver_id).await, body).await
}

/// Asserts that no role reads the contact, except by the request made for it.
async fn assert_contact_hidden(t: &TestApp, api: &Api) {
    for role in STAFF.into_iter().chain([AccountRole::Producer]) {
        let key = t.key(role).await;
        for path in ["orders/ORD-1", "orders/ORD-1/timeline", "orders?q=ORD-1", "events", "orders/ORD-1/explain"] {
            let answer = api.get(&format!("/api/v1/{path}"), &key).await;
            assert!(!answer.body.to_string().contains("CONTACT-TEXT"), "{role:?} reads {path}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn each_reader_gets_its_contents_only() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let shop = t.key(AccountRole::Producer).await;
    let created = api.post("/api/v1/orders", &shop, full_ride("ORD-1")).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_contents("the creation", &created, ALL_BUT_CONTACT);
    t.run_due().await;
    for role in STAFF.into_iter().chain([AccountRole::Producer]) {
        let key = t.key(role).await;
        for path in ["/api/v1/orders/ORD-1", "/api/v1/orders", "/api/v1/orders?q=ORD-1"] {
            assert_contents(&format!("{role:?} {path}"), &api.get(path, &key).await, ALL_BUT_CONTACT);
        }
    }
    assert_contact_hidden(&t, &api).await;
    let driver = t.driver_key("D1").await;
    let offers = api.get("/api/v1/drivers/D1/offers", &driver).await;
    assert_contents("the offers", &offers, [true, true, true, false, false]);
    assert_eq!(api.get("/api/v1/orders/ORD-1", &driver).await.status, 404, "the driver has not accepted");

    assert_contents("the accept", &accept(&t, &api, "ORD-1").await, ALL);
    assert_contents("the driver's order", &api.get("/api/v1/orders/ORD-1", &driver).await, ALL);
    let other = t.driver_key("D2").await;
    assert_contents("another driver", &api.get("/api/v1/orders/ORD-1", &other).await, NONE);
    assert_contact_hidden(&t, &api).await;
    for verb in ["pickup", "complete"] {
        let answer = api.post(&format!("/api/v1/orders/ORD-1/{verb}"), &driver, json!({ "driver_id": "D1" })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_contents("after the trip", &api.get("/api/v1/orders/ORD-1", &driver).await, NONE);
    assert_contact_hidden(&t, &api).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn staff_read_a_contact_on_record() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, full_ride("ORD-1")).await.status, 201);
    assert_eq!(api.post("/api/v1/orders", &shop, test_support::ride_with_id("ORD-2")).await.status, 201);
    let path = "/api/v1/orders/ORD-1/contact";
    for role in [AccountRole::Producer, AccountRole::Viewer, AccountRole::Operator] {
        assert_eq!(api.get(path, &t.key(role).await).await.error(), (403, "FORBIDDEN"), "{role:?}");
    }
    for role in [AccountRole::Dispatcher, AccountRole::Support, AccountRole::Admin] {
        let answer = api.get(path, &t.key(role).await).await;
        let contact = json!({ "name": "CONTACT-TEXT", "phone": "+628123456789", "email": "ana@example.com" });
        assert_eq!((answer.status, &answer.body), (200, &contact), "{role:?}");
    }
    let support = t.key(AccountRole::Support).await;
    assert_eq!(api.get("/api/v1/orders/ORD-2/contact", &support).await.body, json!({}));
    assert_eq!(api.get("/api/v1/orders/ORD-3/contact", &support).await.error(), (404, "ORDER_NOT_FOUND"));
    assert_eq!(
        t.texts("SELECT concat_ws(' ', action, subject, actor) FROM audit_staff_actions ORDER BY id").await,
        [
            "CONTACT_VIEWED ORD-1 dispatcher:test-dispatcher",
            "CONTACT_VIEWED ORD-1 support:test-support",
            "CONTACT_VIEWED ORD-1 admin:test-admin",
            "CONTACT_VIEWED ORD-2 support:test-support",
        ]
    );
}

#[tokio::test]
async fn bad_contents_are_refused_by_http_and_sql() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let long = |length: usize| "x".repeat(length);
    let many: serde_json::Map<String, Value> = (0..51).map(|n| (format!("k{n}"), json!(""))).collect();
    let large: serde_json::Map<String, Value> = (0..10).map(|n| (format!("k{n}"), json!(long(450)))).collect();
    for (field, value) in [
        ("pickup", json!({ "latitude": 0, "longitude": 0, "address": long(301) })),
        ("pickup", json!({ "latitude": 0, "longitude": 0, "address": "a\u{1b}[2Jb" })),
        ("dropoff", json!({ "latitude": 91, "longitude": 0 })),
        ("dropoff", json!({ "latitude": 0, "longitude": 0, "address": " " })),
        ("dropoff", json!({ "latitude": 0 })),
        ("notes", json!(long(1001))),
        ("notes", json!("two\nlines")),
        ("notes", json!(7)),
        ("contact", json!({ "phone": "08123456789" })),
        ("contact", json!({ "email": "nobody" })),
        ("contact", json!({ "name": long(101) })),
        ("metadata", json!({ "k": 7 })),
        ("metadata", json!({ "k": null })),
        ("metadata", json!({ "": "v" })),
        ("metadata", json!({ (long(41)): "v" })),
        ("metadata", json!({ "k": long(501) })),
        ("metadata", json!(many)),
        ("metadata", json!(large)),
    ] {
        let mut ride = test_support::ride_with_id("ORD-1");
        ride[field] = value.clone();
        let answer = api.post("/api/v1/orders", &shop, ride).await;
        let named = answer.body["errors"][0]["field"].as_str().or(answer.body["errors"][0]["pointer"].as_str());
        assert!(
            answer.status == 422 && named.is_some_and(|named| named.contains(field)),
            "{field} {value}: {answer:?}"
        );
        let error = sqlx::query("SELECT dispatchq_create_order('ORD-1', 'RIDE', 0, 0, details => $1)")
            .bind(json!({ field: value }))
            .execute(&t.app.core.db)
            .await
            .unwrap_err();
        let code = error.as_database_error().unwrap().code().unwrap().into_owned();
        assert_eq!(code, "22023", "{field} {value}: {error}");
    }
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 0);
    assert_eq!(api.get("/api/v1/orders/ORD-1", &shop).await.status, 404);
}

#[tokio::test]
async fn order_created_in_sql_has_contents() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    sqlx::query("SELECT dispatchq_create_order('ORD-1', 'RIDE', -6.2088, 106.8456, owner => 'test', details => $1)")
        .bind(full_ride("ORD-1"))
        .execute(&t.app.core.db)
        .await
        .unwrap();
    let answer = api.get("/api/v1/orders/ORD-1", &t.key(AccountRole::Producer).await).await;
    assert_contents("the order", &answer, ALL_BUT_CONTACT);
    for unset in
        [json!({}), json!({ "pickup": null, "dropoff": null, "notes": null, "contact": null, "metadata": null })]
    {
        let id = format!("ORD-{}", unset.as_object().unwrap().len() + 10);
        sqlx::query("SELECT dispatchq_create_order($1, 'RIDE', 0, 0, details => $2)")
            .bind(&id)
            .bind(unset)
            .execute(&t.app.core.db)
            .await
            .unwrap();
        let answer = api.get(&format!("/api/v1/orders/{id}"), &t.key(AccountRole::Support).await).await;
        assert_eq!((answer.status, answer.body.get("notes")), (200, None), "{answer:?}");
    }
}

#[tokio::test]
async fn creation_with_a_key_repeats_its_contents() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let first = api.post_once("/api/v1/orders", &shop, "idem-1", full_ride("ORD-1")).await;
    let second = api.post_once("/api/v1/orders", &shop, "idem-1", full_ride("ORD-1")).await;
    assert_eq!((first.status, second.status, second.replayed), (201, 201, true));
    assert_eq!(first.body, second.body);
    assert_contents("the repeat", &second, ALL_BUT_CONTACT);
}

#[tokio::test]
async fn cleanup_removes_contents_of_old_closed_orders() {
    let t = TestApp::with(|config| config.retention.contact = secs(30 * 86_400)).await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    for order in ["CLOSED", "OPEN"] {
        assert_eq!(api.post("/api/v1/orders", &shop, full_ride(order)).await.status, 201);
    }
    t.sql("UPDATE orders SET lifetime_waived = true, status = 'PENDING', next_attempt_at = NULL WHERE id = 'OPEN'")
        .await;
    t.cancel("CLOSED").await.unwrap();
    let contents = async |order: &str| api.get(&format!("/api/v1/orders/{order}"), &shop).await;
    t.advance(secs(30 * 86_400 - 60)).await;
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_contents("before its time", &contents("CLOSED").await, ALL_BUT_CONTACT);
    t.advance(secs(120)).await;
    let counted = cleanup::run(&t.app.maintenance, CleanupMode::DryRun).await.unwrap();
    let removed = cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!((counted.details, removed.details), (1, 1));
    assert_contents("after its time", &contents("CLOSED").await, NONE);
    assert_contents("an open order", &contents("OPEN").await, ALL_BUT_CONTACT);
    let kept = t.texts("SELECT d::text FROM order_details d WHERE order_id = 'CLOSED'").await;
    assert!(!kept[0].contains("TEXT") && !kept[0].contains("812345") && !kept[0].contains("example.com"), "{kept:?}");
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().details, 0);
}

#[tokio::test]
async fn required_labels_are_shown_and_survive_an_erasure() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.sql("UPDATE drivers SET skills = '{van,wheelchair}'").await;
    let shop = t.key(AccountRole::Producer).await;
    let mut ride = test_support::ride_with_id("ORD-1");
    ride["requires"] = json!(["wheelchair", "van", "van"]);
    let labels = json!(["van", "wheelchair"]);
    let created = api.post("/api/v1/orders", &shop, ride).await;
    assert_eq!((created.status, &created.body["requires"]), (201, &labels), "{created:?}");
    t.run_due().await;
    let offers = api.get("/api/v1/drivers/D1/offers", &t.driver_key("D1").await).await;
    assert_eq!(offers.body["offers"][0]["requires"], labels);
    for path in ["orders/ORD-1", "orders?q=ORD-1"] {
        let answer = api.get(&format!("/api/v1/{path}"), &shop).await;
        let order = answer.body.pointer("/orders/0").unwrap_or(&answer.body);
        assert_eq!(order["requires"], labels, "{path}: {answer:?}");
    }
    let patch = async |requires: Value| {
        let body = json!({ "requires": requires }).to_string();
        api.send(Method::PATCH, "/api/v1/orders/ORD-1", &shop, "", body).await.body["requires"].clone()
    };
    assert_eq!(patch(json!(["plumber"])).await, json!(["plumber"]));
    assert_eq!(t.asked("ORD-1").await, "D1", "the offer stays");
    assert_eq!(
        t.count("SELECT version::bigint FROM offers WHERE order_id = 'ORD-1'").await,
        1,
        "and shows the new labels"
    );
    assert_eq!(patch(Value::Null).await, Value::Null);
    assert_eq!(patch(labels.clone()).await, labels);
    t.cancel("ORD-1").await.unwrap();
    t.sql("SELECT dispatchq_erase_details('ORD-1')").await;
    assert_eq!(api.get("/api/v1/orders/ORD-1", &shop).await.body["requires"], labels);
    let sql =
        "SELECT dispatchq_create_order('ORD-2', 'RIDE', 0, 0, details => '{\"requires\": [\"b\", \"a\", \"b\"]}')";
    t.sql(sql).await;
    assert_eq!(t.texts("SELECT requires::text FROM order_details WHERE order_id = 'ORD-2'").await, ["{a,b}"]);
}

/// Sets of labels that break a rule.
fn bad_labels() -> Vec<Value> {
    let many: Vec<String> = (0..17).map(|n| format!("s{n}")).collect();
    vec![
        json!(["Van"]),
        json!(["-van"]),
        json!(["a b"]),
        json!(["van", ""]),
        json!(["x".repeat(33)]),
        json!(["é"]),
        json!(["van\n"]),
        json!([7]),
        json!([null]),
        json!("van"),
        json!({ "van": true }),
        json!(many),
    ]
}

#[tokio::test]
async fn bad_labels_are_refused_at_every_input() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (shop, admin) = (t.key(AccountRole::Producer).await, t.key(AccountRole::Admin).await);
    t.drivers(&[("D1", 100.0)]).await;
    assert_eq!(api.post("/api/v1/orders", &shop, test_support::ride_with_id("ORD-0")).await.status, 201);
    let is_named = |answer: &Answer, field: &str| {
        answer.status == 422 && answer.body["errors"].to_string().contains(&format!("#/{field}"))
    };
    for labels in bad_labels() {
        let mut ride = test_support::ride_with_id("ORD-1");
        ride["requires"] = labels.clone();
        let answer = api.post("/api/v1/orders", &shop, ride).await;
        assert!(is_named(&answer, "requires"), "{labels}: {answer:?}");
        let patch = json!({ "requires": labels }).to_string();
        let answer = api.send(Method::PATCH, "/api/v1/orders/ORD-0", &shop, "", patch).await;
        assert!(is_named(&answer, "requires"), "{labels}: {answer:?}");
        let sql = sqlx::query("SELECT dispatchq_create_order('ORD-1', 'RIDE', 0, 0, details => $1)");
        let error = sql.bind(json!({ "requires": labels })).execute(&t.app.core.db).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().unwrap(), "22023", "{labels}: {error}");
        let driver = json!({ "id": "D2", "service_types": ["RIDE"], "latitude": 0, "longitude": 0, "skills": labels });
        let mut new = driver.clone();
        new["reason"] = json!("new");
        let answer = api.post("/api/v1/drivers", &admin, new).await;
        assert!(is_named(&answer, "skills"), "{labels}: {answer:?}");
        let change = json!({ "skills": labels, "reason": "new" }).to_string();
        let answer = api.send(Method::PATCH, "/api/v1/drivers/D1", &admin, "", change).await;
        assert!(is_named(&answer, "skills"), "{labels}: {answer:?}");
        let answer = api.send(Method::POST, "/api/v1/drivers/import", &admin, "", driver.to_string()).await;
        assert_eq!(answer.status, 422, "{labels}: {answer:?}");
    }
    for name in [json!(""), json!("x".repeat(81)), json!("a\nb"), json!(7)] {
        let change = json!({ "name": name, "reason": "new" }).to_string();
        let answer = api.send(Method::PATCH, "/api/v1/drivers/D1", &admin, "", change).await;
        assert!(is_named(&answer, "name"), "{name}: {answer:?}");
    }
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 1);
    assert_eq!(t.texts("SELECT concat_ws(' ', id, skills, name) FROM drivers").await, ["D1 {}"]);
}

#[tokio::test]
async fn operators_set_labels_and_names_of_drivers() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = t.key(AccountRole::Operator).await;
    let new = json!({ "id": "D1", "service_types": ["RIDE"], "latitude": 0, "longitude": 0, "reason": "new",
                      "skills": ["van", "a", "van"], "name": "Ana Putri" });
    let made = api.post("/api/v1/drivers", &operator, new).await;
    assert_eq!((&made.body["skills"], &made.body["name"]), (&json!(["a", "van"]), &json!("Ana Putri")), "{made:?}");
    let patch = async |change: Value| {
        let mut change = change;
        change["reason"] = json!("a test");
        api.send(Method::PATCH, "/api/v1/drivers/D1", &operator, "", change.to_string()).await.body
    };
    let changed = patch(json!({ "skills": ["plumber"] })).await;
    assert_eq!((&changed["skills"], &changed["name"]), (&json!(["plumber"]), &json!("Ana Putri")));
    let changed = patch(json!({ "name": null })).await;
    assert_eq!((&changed["skills"], changed.get("name")), (&json!(["plumber"]), None));
    assert_eq!(patch(json!({ "skills": null })).await["skills"], json!([]));
    let import = async |line: Value| {
        let answer = api.send(Method::POST, "/api/v1/drivers/import", &operator, "", line.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        t.texts("SELECT concat_ws(' ', id, skills, name) FROM drivers").await.remove(0)
    };
    let line = json!({ "id": "D1", "service_types": ["RIDE"], "latitude": 0, "longitude": 0 });
    let with = |member: &str, value: Value| {
        let mut line = line.clone();
        line[member] = value;
        line
    };
    assert_eq!(import(with("skills", json!(["van"]))).await, "D1 {van}");
    assert_eq!(import(with("name", json!("Ana"))).await, "D1 {van} Ana", "omitted members stay");
    assert_eq!(import(with("skills", json!([]))).await, "D1 {} Ana");
    let recorded = t.texts("SELECT new_value::text FROM audit_staff_actions").await.concat();
    assert!(recorded.contains("plumber") && !recorded.contains("Ana"), "{recorded}");
}
