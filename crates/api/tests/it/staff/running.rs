//! Queues, dead jobs, messages, drivers, keys and users over HTTP.

use reqwest::Method;
use serde_json::{Value, json};

use super::{because, recorded};
use accounts::api_keys::AccountRole;
use maintenance::recovery::reconciler;
use queue::{JobId, NewJob};
use test_support::{Answer, Api, TestApp, dead_letters::bury_due, secs};

struct Office {
    t: TestApp,
    api: Api,
    operator: String,
    admin: String,
}

impl Office {
    async fn open() -> Self {
        let t = TestApp::with(|config| config.plans.items_per_second = 2).await;
        let api = Api::start(&t.app).await;
        let (operator, admin) = (t.key(AccountRole::Operator).await, t.key(AccountRole::Admin).await);
        Self { t, api, operator, admin }
    }

    async fn get(&self, path: &str) -> Answer {
        self.api.get(path, &self.operator).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.api.post(path, &self.operator, body).await
    }

    async fn admin(&self, method: Method, path: &str, body: Value) -> Answer {
        self.api.send(method, path, &self.admin, "", body.to_string()).await
    }
}

#[tokio::test]
async fn queues_are_shown_paused_and_resumed_with_a_record() {
    let office = Office::open().await;
    office.t.order("ORD-1").await;
    let listed = office.get("/api/v1/admin/queues").await;
    let queue = &listed.body["queues"][0];
    assert_eq!(
        (&queue["queue"], &queue["due"], &queue["paused"]),
        (&json!("dispatch-queue"), &json!(1), &json!(false))
    );
    assert_eq!(office.get("/api/v1/admin/workers").await.body, json!({ "workers": [] }));
    let due = office.get("/api/v1/admin/jobs?queue=dispatch-queue&limit=1").await;
    assert_eq!((&due.body["jobs"][0]["id"], &due.body["next_offset"]), (&json!("dispatch:ORD-1:1"), &json!(1)));
    assert_eq!(office.get("/api/v1/admin/jobs/dispatch:ORD-1:1").await.text("state"), "due");
    assert_eq!(office.get("/api/v1/admin/jobs/dispatch:ORD-2:1").await.error(), (404, "JOB_NOT_FOUND"));

    let pause = "/api/v1/admin/queues/dispatch-queue/pause";
    assert_eq!(office.post(pause, because("the map is down")).await.body["changed"], true);
    assert_eq!(office.post(pause, because("again")).await.body["changed"], false);
    assert_eq!(office.t.run_due().await.len(), 0);
    assert_eq!(office.post("/api/v1/admin/queues/dispatch-queue/resume", because("it is back")).await.status, 200);
    assert_eq!(
        office.post("/api/v1/admin/queues/mail-queue/pause", because("why")).await.error(),
        (404, "QUEUE_NOT_FOUND")
    );
    assert_eq!(office.post(pause, json!({})).await.error(), (422, "INVALID"));
    assert_eq!(
        recorded(&office.t).await,
        [
            "QUEUE_PAUSED dispatch-queue operator:test-operator the map is down",
            "QUEUE_RESUMED dispatch-queue operator:test-operator it is back",
        ]
    );
}

#[tokio::test]
async fn dead_jobs_are_requeued_singly_or_by_plan() {
    let office = Office::open().await;
    let t = &office.t;
    for order in ["ORD-1", "ORD-2", "ORD-3", "ORD-4"] {
        t.order(order).await;
    }
    assert_eq!(bury_due(&t.app, "no route to host").await, 4);
    t.advance(secs(4)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    let listed = office.get("/api/v1/admin/dead?error=route&limit=3").await;
    assert_eq!(listed.body["jobs"].as_array().unwrap().len(), 3);
    let rest = office.get(&format!("/api/v1/admin/dead?cursor={}", listed.text("next_cursor"))).await;
    assert_eq!((rest.body["jobs"].as_array().unwrap().len(), &rest.body["next_cursor"]), (1, &json!(null)));
    assert_eq!(office.get("/api/v1/admin/dead/dispatch:ORD-1:1").await.body["can_requeue"], true);

    let path = |order: &str, verb: &str| format!("/api/v1/admin/dead/dispatch:{order}:1/{verb}");
    let requeued = office.post(&path("ORD-1", "requeue"), because("it is back")).await;
    assert_eq!(requeued.body, json!({ "id": "dispatch:ORD-1:1", "result": "REQUEUED" }));
    assert_eq!(office.post(&path("ORD-1", "requeue"), because("it is back")).await.error(), (409, "NOT_DEAD"));
    t.cancel("ORD-2").await.unwrap();
    assert_eq!(office.post(&path("ORD-2", "requeue"), because("it is back")).await.error(), (409, "STAYS_DEAD"));

    let make = async |filter: Value, action: &str| -> Answer {
        let body = json!({ "filter": filter, "action": action, "reason": "it is back", "dry_run": true });
        office.post("/api/v1/admin/dead/actions", body).await
    };
    let made = make(json!({ "queue": "dispatch-queue", "error": "route" }), "requeue").await;
    assert_eq!((made.status, &made.body["plan"]["total"], &made.body["plan"]["left"]), (201, &json!(3), &json!(2)));
    assert_eq!(made.body["refusals"][0]["error_code"], "ORDER_CLOSED");
    assert!(t.snapshot("ORD-3").await.order.held_for_review, "a dry run changes nothing");
    let plan = format!("/api/v1/admin/plans/{}", made.body["plan"]["id"].as_str().unwrap());
    assert_eq!(office.post(&format!("{plan}/run"), json!({})).await.status, 200);
    t.run_due().await;
    let done = office.get(&plan).await;
    assert_eq!((&done.body["plan"]["state"], &done.body["plan"]["changed"]), (&json!("DONE"), &json!(2)));
    assert!(!t.snapshot("ORD-3").await.order.held_for_review);
    let noted = "SELECT count(*) FROM dead_letters WHERE resolved_by = 'operator:test-operator'
                 AND resolved_why LIKE 'plan %: it is back'";
    assert_eq!(t.count(noted).await, 2);

    let discard = make(json!({}), "discard").await;
    let plan = format!("/api/v1/admin/plans/{}", discard.body["plan"]["id"].as_str().unwrap());
    // The job is discarded before the plan reaches it.
    assert_eq!(office.post(&path("ORD-2", "discard"), because("its order is cancelled")).await.status, 200);
    assert_eq!(office.post(&format!("{plan}/run"), json!({})).await.status, 200);
    t.run_due().await;
    assert_eq!(office.get(&plan).await.body["plan"]["unchanged"], 1);
    assert_eq!(make(json!({ "queue": "mail-queue" }), "discard").await.error(), (404, "QUEUE_NOT_FOUND"));
    assert_eq!(make(json!({ "colour": "red" }), "discard").await.error(), (422, "INVALID"));
    t.assert_sound().await;
}

#[tokio::test]
async fn oversized_plan_is_refused_with_narrowing_advice() {
    let office = Office::open().await;
    let app = &office.t.app;
    let dispatch_of = |order: String| NewJob {
        queue: jobs::queues::DISPATCH,
        id: JobId::parse(format!("dispatch:{order}:1")).unwrap(),
        delay: secs(0),
        payload: None,
        slots: None,
    };
    let many: Vec<_> = (0..10_000).map(|n| dispatch_of(format!("GONE-{n}"))).collect();
    app.core.store.enqueue(&many).await.unwrap();
    assert_eq!(bury_due(app, "no route to host").await, many.len());
    app.core.store.enqueue(&[dispatch_of("LATE-1".to_owned())]).await.unwrap();
    assert_eq!(bury_due(app, "no such street").await, 1);
    let make = async |filter: Value| -> Answer {
        let body = json!({ "filter": filter, "action": "discard", "reason": "a test", "dry_run": true });
        office.post("/api/v1/admin/dead/actions", body).await
    };
    for filter in [json!({}), json!({ "queue": "dispatch-queue" })] {
        let refused = make(filter).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{refused:?}");
        let message = refused.text("message");
        assert!(message.contains("more than 10000") && message.contains("older_than_sec"), "{message}");
    }
    assert_eq!(office.t.count("SELECT count(*) FROM plans").await, 0, "nothing is stored");
    let narrower = make(json!({ "error": "street" })).await;
    assert_eq!((narrower.status, &narrower.body["plan"]["total"]), (201, &json!(1)), "{narrower:?}");
}

#[tokio::test]
async fn a_dead_message_is_sent_again_over_http() {
    let office = Office::open().await;
    let t = &office.t;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.cancel("ORD-1").await.unwrap();
    t.run_due().await;
    let listed = office.get("/api/v1/admin/outbox?order_id=ORD-1&state=delivered&limit=1").await;
    let id = listed.body["messages"][0]["id"].as_i64().unwrap_or_else(|| panic!("no message: {listed:?}"));
    let replay = format!("/api/v1/admin/outbox/{id}/replay");
    assert_eq!(office.post(&replay, because("again")).await.error(), (409, "MESSAGE_NOT_DEAD"));
    t.sql(&format!("UPDATE outbox SET state = 'dead', delivered_at = NULL WHERE id = {id}")).await;
    assert_eq!(office.post(&replay, because("it is back")).await.status, 200);
    t.run_due().await;
    let shown = office.get(&format!("/api/v1/admin/outbox/{id}")).await;
    assert_eq!(shown.body["message"]["state"], "delivered");
    let log = shown.body["log"].as_array().unwrap();
    assert!(log.iter().any(|line| line["actor"] == "operator:test-operator"), "{shown:?}");
    assert_eq!(office.get("/api/v1/admin/outbox/999999").await.error(), (404, "MESSAGE_NOT_FOUND"));
    assert_eq!(office.get("/api/v1/admin/outbox/x").await.error(), (404, "MESSAGE_NOT_FOUND"));
}

// Rule F4: A driver has at most 64 service types, all of them configured, over HTTP as in an import. A refusal names
// the wrong ones.
#[tokio::test]
async fn drivers_are_added_changed_and_disabled_with_a_record() {
    let office = Office::open().await;
    let new = |id: &str| json!({ "id": id, "service_types": ["RIDE"], "latitude": -6.2, "longitude": 106.8, "reason": "new contract" });
    for id in ["D-1", "D-2"] {
        assert_eq!(office.post("/api/v1/drivers", new(id)).await.status, 201);
    }
    assert_eq!(office.post("/api/v1/drivers", new("D-1")).await.error(), (409, "DRIVER_EXISTS"));
    let mut nowhere = new("D-3");
    nowhere["latitude"] = json!(91.0);
    assert_eq!(office.post("/api/v1/drivers", nowhere).await.error(), (422, "INVALID"));
    let patch = async |id: &str, body: Value| -> Answer {
        office.api.send(Method::PATCH, &format!("/api/v1/drivers/{id}"), &office.operator, "", body.to_string()).await
    };
    let change =
        json!({ "service_types": ["RIDE", "RENT", "RIDE"], "phone": "+628123456789", "reason": "a larger car" });
    assert_eq!(patch("D-1", change).await.body["service_types"], json!(["RIDE", "RENT"]));
    assert_eq!(office.t.texts("SELECT phone FROM drivers WHERE id = 'D-1'").await, ["+628123456789"]);
    assert_eq!(patch("D-1", json!({ "phone": null, "reason": "lost it" })).await.status, 200);
    assert_eq!(office.t.count("SELECT count(*) FROM drivers WHERE phone IS NULL").await, 2);
    let many = vec!["RIDE"; 65];
    let long = "R".repeat(40_000);
    for wrong in [json!([]), json!(["ride"]), json!(["RIDE", ""]), json!(["<b>x"]), json!([long]), json!(many)] {
        let mut driver = new("D-3");
        driver["service_types"] = wrong.clone();
        for answer in [
            office.post("/api/v1/drivers", driver).await,
            patch("D-1", json!({ "service_types": wrong, "reason": "none" })).await,
        ] {
            assert_eq!(answer.error(), (422, "INVALID"));
            assert_eq!(answer.body["errors"][0]["pointer"], "#/service_types", "{answer:?}");
            assert!(answer.text("message").len() < 300, "{answer:?}");
        }
    }
    assert_eq!(patch("D-1", json!({ "colour": "red", "reason": "none" })).await.error(), (422, "INVALID"));
    assert_eq!(patch("D-9", because("none")).await.error(), (404, "DRIVER_NOT_FOUND"));
    assert_eq!(office.post("/api/v1/drivers/D-2/disable", because("complaints")).await.status, 200);
    let list = async |query: &str| -> Vec<String> {
        let page = office.get(&format!("/api/v1/drivers?{query}")).await;
        page.body["drivers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|driver| driver["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(list("disabled=true").await, ["D-2"]);
    assert_eq!(list("service_type=RENT").await, ["D-1"]);
    assert_eq!(list("limit=1&cursor=D-1").await, ["D-2"]);
    assert_eq!(office.post("/api/v1/drivers/D-2/enable", because("cleared")).await.status, 200);
    assert_eq!(list("disabled=true").await, Vec::<String>::new());
    assert_eq!(
        recorded(&office.t).await,
        [
            "DRIVER_CREATED D-1 operator:test-operator new contract",
            "DRIVER_CREATED D-2 operator:test-operator new contract",
            "DRIVER_CHANGED D-1 operator:test-operator a larger car",
            "DRIVER_CHANGED D-1 operator:test-operator lost it",
            "DRIVER_DISABLED D-2 operator:test-operator complaints",
            "DRIVER_ENABLED D-2 operator:test-operator cleared",
        ]
    );
}

#[tokio::test]
async fn admins_give_out_keys_and_keep_users() {
    let office = Office::open().await;
    let keys = "/api/v1/admin/keys";
    let new = json!({ "name": "anna", "role": "viewer", "reason": "begins on Monday" });
    let made = office.admin(Method::POST, keys, new.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(office.api.get("/api/v1/orders", made.text("key")).await.status, 200);
    assert_eq!(office.admin(Method::POST, keys, new).await.error(), (409, "KEY_EXISTS"));
    let kept = format!("SELECT count(*) FROM idempotency_keys WHERE body::text LIKE '%{}%'", made.text("key"));
    assert_eq!(office.t.count(&kept).await, 0, "the key is stored nowhere");
    let rotated =
        office.admin(Method::POST, &format!("{keys}/rotate"), json!({ "name": "anna", "reason": "lost" })).await;
    assert_eq!(rotated.text("role"), "viewer");
    let of_driver = json!({ "name": "bob", "role": "driver", "reason": "new" });
    assert_eq!(office.admin(Method::POST, keys, of_driver).await.error(), (422, "INVALID"));
    let listed = office.admin(Method::GET, &format!("{keys}?role=viewer"), Value::Null).await;
    assert_eq!(listed.body["keys"].as_array().unwrap().len(), 2);
    assert!(listed.body["keys"][0]["sha256"].is_null() && listed.body["keys"][0]["key"].is_null());
    let revoke = format!("{keys}/{}/revoke", made.text("id"));
    assert_eq!(office.admin(Method::POST, &revoke, because("left")).await.body["revoked"]["name"], "anna");
    assert_eq!(office.admin(Method::POST, &revoke, because("left")).await.error(), (404, "KEY_NOT_FOUND"));

    let user = json!({ "name": "Bob", "role": "support", "reason": "new" });
    assert_eq!(office.admin(Method::PUT, "/api/v1/admin/users/bob", user).await.text("channel"), "log");
    let viewer = json!({ "name": "Eve", "role": "viewer", "reason": "new" });
    assert_eq!(office.admin(Method::PUT, "/api/v1/admin/users/eve", viewer).await.error(), (422, "INVALID"));
    let disable = "/api/v1/admin/users/bob/disable";
    assert_eq!(office.admin(Method::POST, disable, because("on leave")).await.status, 200);
    let users = office.admin(Method::GET, "/api/v1/admin/users", Value::Null).await;
    assert!(users.body["users"][0]["disabled_at"].is_string(), "{users:?}");
    assert_eq!(office.admin(Method::POST, "/api/v1/admin/users/bob/remove", because("left")).await.status, 200);
    assert_eq!(office.admin(Method::POST, disable, because("gone")).await.error(), (404, "USER_NOT_FOUND"));
    let actions: Vec<String> = recorded(&office.t).await;
    let words: Vec<&str> = actions.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(words, ["KEY_CREATED", "KEY_ROTATED", "KEY_REVOKED", "USER_SAVED", "USER_DISABLED", "USER_REMOVED"]);
}
