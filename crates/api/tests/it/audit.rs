//! Every staff operation in the OpenAPI document writes an audit row with actor, reason, old value and new value.

use std::net::Ipv4Addr;

use provider_sim::{ProviderSim, ProviderSimOptions};
use reqwest::Method;
use serde_json::{Value, json};

use super::bindings::configure_bindings;
use accounts::{api_keys::AccountRole, sessions};
use bindings::servers;
use maintenance::recovery::reconciler;
use queue::{JobId, NewJob};
use settings::PartnerConfig;
use test_support::{Answer, Api, TestApp, dead_letters::bury_due, secs, worker_info};

const AUDIT: &str = "/api/v1/admin/audit?limit=500";
/// Operations without an audit row. An erasure has its own record, which names the person. The run of a plan is recorded
/// with the plan. The order's history has who created or changed it, without the values, which are personal data.
const UNRECORDED: [&str; 5] = [
    "/api/v1/admin/erasures",
    "/api/v1/admin/erasures/repeat",
    "/api/v1/admin/plans/{id}/perform",
    "/api/v1/orders",
    "/api/v1/orders/{id}",
];
const STAFF: [&str; 3] = ["dispatcher", "support", "operator"];

/// A staff operation that changes data.
struct StaffOperation {
    method: Method,
    /// Path as the document writes it.
    path: String,
    /// Example body.
    example: Value,
}

/// Returns the changing operations that a staff role, or only an admin, may call.
fn staff_operations() -> Vec<StaffOperation> {
    let document: Value = serde_json::from_str(&api::openapi::OPENAPI).unwrap();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let roles: Vec<&str> =
                operation["x-roles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let is_staffs = roles.iter().any(|role| STAFF.contains(role)) || roles == ["admin"];
            if is_staffs && !method.is_safe() && !UNRECORDED.contains(&path.trim_end_matches('/')) {
                let example = operation["requestBody"]["content"]["application/json"]["example"].clone();
                found.push(StaffOperation { method, path: path.clone(), example });
            }
        }
    }
    found
}

struct Office {
    t: TestApp,
    api: Api,
    admin: String,
    sim: ProviderSim,
}

impl Office {
    async fn open() -> Self {
        let t = TestApp::with(|config| {
            configure_bindings(config);
            config.http.driver_page = true;
            let partner = PartnerConfig { api_key: "key".to_owned(), ..PartnerConfig::with_url("http://127.0.0.1:1/") };
            config.partners.insert("bbd".into(), partner);
        })
        .await;
        let sim = ProviderSim::start(&ProviderSimOptions::default()).await.unwrap();
        sim.change_knobs(|knobs| knobs.otp_rate = "1".parse().unwrap()).unwrap();
        let (api, admin) = (Api::start(&t.app).await, t.key(AccountRole::Admin).await);
        let office = Self { t, api, admin, sim };
        office.create_server("S1").await;
        servers::publish_limits(&office.t.app.bindings).await.unwrap();
        office
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.api.send(method, path, &self.admin, "", body).await
    }

    /// Sends a request that prepares an operation and asserts that it succeeds.
    async fn prepare(&self, method: Method, path: &str, body: Value) -> Answer {
        let answer = self.ask(method.clone(), path, &body).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
        answer
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.prepare(Method::POST, path, body).await
    }

    async fn create_server(&self, id: &str) {
        let server = json!({ "id": id, "provider": "acme", "base_url": self.sim.server_url(id), "reason": "prepared" });
        self.post("/api/v1/provider-servers", server).await;
    }

    async fn create_binding(&self, id: &str) {
        self.post("/api/v1/bindings", json!({ "id": id, "server_id": "S1", "account_id": format!("A-{id}") })).await;
    }

    async fn verb(&self, id: &str, verb: &str) {
        self.post(&format!("/api/v1/bindings/{id}/{verb}"), Value::Null).await;
    }

    async fn plan(&self, binding: &str, why: &str) -> String {
        self.create_binding(binding).await;
        let filter = json!({ "account_id": format!("A-{binding}") });
        let plan = json!({ "filter": filter, "action": "start", "reason": why, "dry_run": true });
        let made = self.post("/api/v1/bindings/actions", plan).await;
        made.body["plan"]["id"].as_str().unwrap().to_owned()
    }

    /// Creates a RENT order without a driver. It waits for a dispatcher.
    async fn let_wait(&self, order: &str) {
        self.t.order_of(order, "RENT", "PAID").await;
        self.t.run_due().await;
    }

    async fn owe_refund(&self, order: &str) {
        self.t.order_of(order, "RIDE", "PAID").await;
        self.t.cancel(order).await.unwrap();
    }

    async fn assign(&self, order: &str, driver: &str) {
        self.create_driver(driver).await;
        self.t.order(order).await;
        self.post(&format!("/api/v1/orders/{order}/assign"), json!({ "driver_id": driver, "reason": "prepared" }))
            .await;
    }

    async fn bury(&self, order: &str) {
        self.t.order(order).await;
        bury_due(&self.t.app, "no route to host").await;
        self.t.advance(secs(4)).await;
        reconciler::reconcile_once(&self.t.app.maintenance).await.unwrap().unwrap();
    }

    async fn import_area(&self, area: &str) {
        self.prepare(Method::PUT, "/api/v1/admin/dispatcher/areas", collection(area)).await;
    }

    async fn create_driver(&self, driver: &str) {
        let body = json!({ "id": driver, "service_types": ["RIDE"], "latitude": -6.2, "longitude": 106.8,
                           "reason": "prepared" });
        self.post("/api/v1/drivers", body).await;
    }

    async fn create_key(&self, name: &str) -> String {
        let made =
            self.post("/api/v1/admin/keys", json!({ "name": name, "role": "viewer", "reason": "prepared" })).await;
        made.text("id").to_owned()
    }

    async fn save_user(&self, user: &str) {
        let body = json!({ "name": "Eve", "role": "support", "reason": "prepared" });
        self.prepare(Method::PUT, &format!("/api/v1/admin/users/{user}"), body).await;
    }

    /// Prepares the data of an operation. Returns its path with ids, and its body. An operation that is not listed here
    /// uses the example of the document.
    async fn stage(&self, operation: &StaffOperation, why: &str) -> (String, Value) {
        let because = json!({ "reason": why });
        let with = |field: &str, value: Value| {
            let mut body = because.clone();
            body[field] = value;
            body
        };
        let t = &self.t;
        let name = format!("{} {}", operation.method, operation.path.trim_start_matches("/api/v1"));
        let at = |id: &str| {
            let (before, rest) = operation.path.split_once('{').unwrap();
            format!("{before}{id}{}", rest.split_once('}').unwrap().1)
        };
        match name.as_str() {
            "PUT /admin/keys/{id}/scope" => {
                let key = self.create_key("scoped").await;
                (at(&key), with("scope", json!({ "service_types": ["RIDE"] })))
            }
            "POST /orders/{id}/cancel" => {
                t.order("CANCEL").await;
                (at("CANCEL"), because)
            }
            "POST /orders/{id}/refund" => {
                self.owe_refund("REFUND").await;
                (at("REFUND"), json!({ "action": "start", "note": why }))
            }
            "POST /orders/{id}/assign" => {
                self.create_driver("D-ASSIGN").await;
                t.order("ASSIGN").await;
                (at("ASSIGN"), with("driver_id", json!("D-ASSIGN")))
            }
            "POST /orders/{id}/release" => {
                self.assign("RELEASE", "D-RELEASE").await;
                (at("RELEASE"), because)
            }
            "POST /orders/{id}/redispatch" => {
                self.let_wait("REDISPATCH").await;
                (at("REDISPATCH"), because)
            }
            "POST /orders/{id}/hold" => {
                t.order("HOLD").await;
                (at("HOLD"), because)
            }
            "POST /orders/{id}/resume" => {
                t.order("RESUME").await;
                self.post("/api/v1/orders/RESUME/hold", json!({ "reason": "prepared" })).await;
                (at("RESUME"), because)
            }
            "POST /orders/{id}/take" => {
                self.let_wait("TAKE").await;
                (at("TAKE"), because)
            }
            "POST /orders/{id}/leave" => {
                self.let_wait("LEAVE").await;
                self.post("/api/v1/orders/LEAVE/take", Value::Null).await;
                (at("LEAVE"), because)
            }
            "POST /alerts/{id}/ack" => {
                self.owe_refund("ALERT").await;
                let alert = t.count("SELECT id FROM alerts WHERE order_id = 'ALERT' AND acked_at IS NULL").await;
                (at(&alert.to_string()), json!({ "note": why }))
            }
            "POST /drivers" => {
                let place = json!({ "id": "D-NEW", "service_types": ["RIDE"], "latitude": -6.2, "longitude": 106.8 });
                (operation.path.clone(), merged(place, &because))
            }
            "POST /drivers/import" => {
                let place =
                    json!({ "id": "D-IMPORT", "service_types": ["RIDE"], "latitude": -6.2, "longitude": 106.8 });
                (format!("{}?reason={why}", operation.path), place)
            }
            "POST /drivers/{id}/remove" => {
                self.create_driver("D-REMOVE").await;
                (at("D-REMOVE"), because)
            }
            "POST /admin/users/import" => (
                format!("{}?reason={why}", operation.path),
                json!({ "id": "imported", "name": "Ann", "role": "support" }),
            ),
            "PATCH /drivers/{id}" => {
                self.create_driver("D-PATCH").await;
                (at("D-PATCH"), with("service_types", json!(["DELIVERY"])))
            }
            "POST /drivers/{id}/sign-in-links" => {
                self.create_driver("D-LINK").await;
                (at("D-LINK"), because)
            }
            "POST /drivers/{id}/disable" => {
                self.create_driver("D-DISABLE").await;
                (at("D-DISABLE"), because)
            }
            "POST /drivers/{id}/enable" => {
                self.create_driver("D-ENABLE").await;
                self.post("/api/v1/drivers/D-ENABLE/disable", json!({ "reason": "prepared" })).await;
                (at("D-ENABLE"), because)
            }
            "PUT /admin/dispatcher/areas" => (format!("{}?reason={why}", operation.path), collection("IMPORTED")),
            "PUT /admin/dispatcher/areas/{area_id}/threshold" => {
                self.import_area("LIMITED").await;
                (at("LIMITED"), merged(json!({ "service_type": "RIDE", "max_waiting_orders": 7 }), &because))
            }
            "DELETE /admin/dispatcher/areas/{area_id}/threshold" => {
                self.import_area("RESET").await;
                let limit = json!({ "service_type": "RIDE", "max_waiting_orders": 7 });
                self.prepare(Method::PUT, &at("RESET"), limit).await;
                (format!("{}?service_type=RIDE&reason={why}", at("RESET")), Value::Null)
            }
            "DELETE /admin/dispatcher/areas/{area_id}" => {
                self.import_area("GONE").await;
                (format!("{}?reason={why}", at("GONE")), Value::Null)
            }
            "POST /admin/dispatcher/areas/{area_id}/override" => {
                self.import_area("FORCED").await;
                (at("FORCED"), with("status", json!("FORCE_BUSY")))
            }
            "PUT /admin/dispatcher/flag" => (operation.path.clone(), with("enabled", json!(true))),
            "POST /provider-servers" => {
                let server = json!({ "id": "S-NEW", "provider": "acme", "base_url": self.sim.server_url("S-NEW") });
                (operation.path.clone(), merged(server, &because))
            }
            "PATCH /provider-servers/{id}" => {
                self.create_server("S-PATCH").await;
                (at("S-PATCH"), with("base_url", json!(self.sim.server_url("S-OTHER"))))
            }
            "PUT /provider-call-limit" => (operation.path.clone(), with("max_concurrent_calls", json!(40))),
            "POST /bindings" => {
                let binding = json!({ "id": "B-NEW", "server_id": "S1", "account_id": "A-NEW" });
                (operation.path.clone(), merged(binding, &because))
            }
            "PATCH /bindings/{id}" => {
                self.create_binding("B-PATCH").await;
                (at("B-PATCH"), with("config", json!({ "max_failures": 9 })))
            }
            "DELETE /bindings/{id}" => {
                self.create_binding("B-GONE").await;
                (format!("{}?reason={why}", at("B-GONE")), Value::Null)
            }
            "POST /bindings/{id}/start" => {
                self.create_binding("B-START").await;
                (at("B-START"), because)
            }
            "POST /bindings/{id}/pause" => {
                self.create_binding("B-PAUSE").await;
                self.verb("B-PAUSE", "start").await;
                (at("B-PAUSE"), because)
            }
            "POST /bindings/{id}/resume" => {
                self.create_binding("B-RESUME").await;
                self.verb("B-RESUME", "start").await;
                self.verb("B-RESUME", "pause").await;
                (at("B-RESUME"), because)
            }
            "POST /bindings/{id}/stop" => {
                self.create_binding("B-STOP").await;
                self.verb("B-STOP", "start").await;
                (at("B-STOP"), json!({ "note": why }))
            }
            "POST /bindings/{id}/otp" => {
                self.create_binding("B-OTP").await;
                self.verb("B-OTP", "start").await;
                t.run_due().await;
                (at("B-OTP"), merged(json!({ "trx_id": "B-OTP.1", "otp": "987654" }), &because))
            }
            "POST /bindings/actions" => {
                self.create_binding("B-MANY").await;
                let plan = json!({ "filter": { "account_id": "A-B-MANY" }, "action": "start", "dry_run": true });
                (operation.path.clone(), merged(plan, &because))
            }
            "POST /admin/plans/{id}/run" => (at(&self.plan("B-RUN", why).await), json!({})),
            "POST /admin/plans/{id}/cancel" => (at(&self.plan("B-CANCEL", why).await), json!({})),
            "POST /admin/queues/{queue}/pause" => (at("jobid-poll-queue"), because),
            "POST /admin/queues/{queue}/resume" => {
                self.post("/api/v1/admin/queues/lifetime-cancel-queue/pause", json!({ "reason": "prepared" })).await;
                (at("lifetime-cancel-queue"), because)
            }
            "POST /admin/workers/{id}/drain" => {
                self.t.send_heartbeat("00000000000000a1", "w1", Some(&worker_info(&jobs::queues::ALL))).await;
                (at("00000000000000a1"), because)
            }
            "POST /admin/workers/{id}/resume" => {
                self.t.send_heartbeat("00000000000000a2", "w2", Some(&worker_info(&jobs::queues::ALL))).await;
                self.post("/api/v1/admin/workers/00000000000000a2/drain", json!({ "reason": "prepared" })).await;
                (at("00000000000000a2"), because)
            }
            "PATCH /partners/{partner}" => (at("bbd"), with("polling_percent", json!(50))),
            "POST /admin/jobs/{job_id}/cancel" => {
                let left_behind = NewJob {
                    queue: jobs::queues::DISPATCH,
                    id: JobId::parse("dispatch:LEFT-BEHIND:1").unwrap(),
                    delay: secs(60),
                    payload: None,
                    slots: None,
                };
                t.app.core.store.enqueue(&[left_behind]).await.unwrap();
                (at("dispatch:LEFT-BEHIND:1"), because)
            }
            "POST /admin/jobs/{job_id}/reschedule" => {
                t.order("RESCHEDULE").await;
                (at("dispatch:RESCHEDULE:1"), with("in_sec", json!(0)))
            }
            "POST /admin/dead/{job_id}/requeue" => {
                self.bury("REQUEUE").await;
                (at("dispatch:REQUEUE:1"), because)
            }
            "POST /admin/dead/{job_id}/discard" => {
                self.bury("DISCARD").await;
                t.cancel("DISCARD").await.unwrap();
                (at("dispatch:DISCARD:1"), because)
            }
            "POST /admin/dead/actions" => {
                self.bury("DEAD").await;
                let plan = json!({ "filter": {}, "action": "discard", "dry_run": true });
                (operation.path.clone(), merged(plan, &because))
            }
            "POST /admin/cleanup" => (operation.path.clone(), with("dry_run", json!(false))),
            "POST /admin/shards/drain" => {
                reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
                (operation.path.clone(), because)
            }
            "POST /admin/outbox/{id}/replay" => {
                self.owe_refund("REPLAY").await;
                t.run_due().await;
                let message = t.count("SELECT min(id) FROM outbox WHERE order_id = 'REPLAY'").await;
                t.sql(&format!("UPDATE outbox SET state = 'dead', delivered_at = NULL WHERE id = {message}")).await;
                (at(&message.to_string()), because)
            }
            "POST /admin/keys" => {
                let key = json!({ "name": "new-key", "role": "viewer" });
                (operation.path.clone(), merged(key, &because))
            }
            "POST /admin/keys/rotate" => {
                self.create_key("rotated").await;
                (operation.path.clone(), with("name", json!("rotated")))
            }
            "POST /admin/keys/{id}/revoke" => (at(&self.create_key("revoked").await), because),
            "PUT /admin/users/{id}" => (at("new"), merged(json!({ "name": "New", "role": "support" }), &because)),
            "POST /admin/users/{id}/disable" => {
                self.save_user("disabled").await;
                (at("disabled"), because)
            }
            "POST /admin/users/{id}/enable" => {
                self.save_user("enabled").await;
                self.post("/api/v1/admin/users/enabled/disable", json!({ "reason": "prepared" })).await;
                (at("enabled"), because)
            }
            "POST /admin/users/{id}/remove" => {
                self.save_user("removed").await;
                (at("removed"), because)
            }
            "DELETE /admin/sessions/{id}" => {
                let owner = t.app.accounts.keys.find_owner(&t.app.core.db, &self.admin).await.unwrap().unwrap();
                sessions::open_session(&t.app.core.db, &owner, Ipv4Addr::LOCALHOST.into()).await.unwrap();
                let session = &t.texts("SELECT id::text FROM console_sessions WHERE ended_at IS NULL").await[0];
                (format!("{}?reason={why}", at(session)), Value::Null)
            }
            _ => (operation.path.clone(), merged(operation.example.clone(), &because)),
        }
    }

    async fn entries(&self) -> Vec<Value> {
        self.api.get(AUDIT, &self.admin).await.body["entries"].as_array().unwrap().clone()
    }
}

fn merged(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Returns a collection with one area, far from all others.
fn collection(area: &str) -> Value {
    let ring = json!([[10.0, 10.0], [10.1, 10.0], [10.1, 10.1], [10.0, 10.1], [10.0, 10.0]]);
    json!({ "type": "FeatureCollection", "features": [{
        "type": "Feature", "properties": { "area_id": area, "name": area },
        "geometry": { "type": "Polygon", "coordinates": [ring] },
    }] })
}

// Rule F34: Each operation by staff writes an audit row with reason, old value and new value.
#[tokio::test]
async fn every_staff_operation_leaves_an_audit_row() {
    let office = Office::open().await;
    let mut operations = staff_operations();
    // Last: another number of shards moves the queue of this test.
    operations.sort_by_key(|operation| operation.path.starts_with("/api/v1/admin/shards"));
    assert!(operations.len() > 40, "the document was read: {}", operations.len());
    let mut missing = Vec::new();
    for (n, operation) in operations.iter().enumerate() {
        let why = format!("because-{n}-of-it");
        let (path, body) = office.stage(operation, &why).await;
        let before = office.entries().await;
        let answer = office.ask(operation.method.clone(), &path, &body).await;
        let name = format!("{} {path}", operation.method);
        assert!((200..300).contains(&answer.status), "{name}: {answer:?}");
        let added: Vec<Value> = office.entries().await.into_iter().filter(|entry| !before.contains(entry)).collect();
        let is_complete = |entry: &Value| {
            let gives_reason = entry["reason"].as_str().is_some_and(|reason| reason.contains(&why));
            gives_reason && entry["actor"] == "admin:test-admin" && entry["old"] != entry["new"]
        };
        if !added.iter().any(is_complete) {
            missing.push(format!("{name}: {added:?}"));
        }
    }
    assert!(missing.is_empty(), "without a row of the audit:\n{}", missing.join("\n"));
}

// Rule F33: The audit trail has the old and the new address of a provider's server.
#[tokio::test]
async fn audit_holds_old_and_new_server_address() {
    let office = Office::open().await;
    let moved = json!({ "base_url": office.sim.server_url("S9"), "reason": "S1 moves" });
    office.prepare(Method::PATCH, "/api/v1/provider-servers/S1", moved.clone()).await;
    let changed = |entries: Vec<Value>| -> Vec<Value> {
        entries.into_iter().filter(|entry| entry["action"] == "SERVER_CHANGED").collect()
    };
    let rows = changed(office.entries().await);
    assert_eq!(
        (&rows[0]["old"]["base_url"], &rows[0]["new"]["base_url"], rows[0]["reason"].as_str()),
        (&json!(office.sim.server_url("S1")), &moved["base_url"], Some("S1 moves"))
    );
    // Repeating the request changes nothing.
    office.prepare(Method::PATCH, "/api/v1/provider-servers/S1", moved).await;
    assert_eq!(changed(office.entries().await).len(), 1);
    for (method, path, body) in [
        (Method::POST, "/api/v1/provider-servers", json!({ "id": "S2", "provider": "acme", "base_url": "x" })),
        (Method::PATCH, "/api/v1/provider-servers/S1", json!({ "max_concurrent": 3 })),
        (Method::PUT, "/api/v1/provider-call-limit", json!({ "max_concurrent_calls": 3 })),
        (Method::PUT, "/api/v1/provider-call-limit", json!({ "max_concurrent_calls": 3, "reason": " " })),
    ] {
        let answer = office.ask(method, path, &body).await;
        assert_eq!(answer.error(), (422, "INVALID"), "{path} {body}: {answer:?}");
        assert!(answer.text("message").contains("reason"), "{answer:?}");
    }
}
