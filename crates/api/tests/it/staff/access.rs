//! Permission of each role on each staff route.

use reqwest::Method;
use serde_json::{Value, json};

use super::because;
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

const STAFF: &[AccountRole] =
    &[AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];
const DISPATCHERS: &[AccountRole] = &[AccountRole::Dispatcher, AccountRole::Operator];
const OPERATORS: &[AccountRole] = &[AccountRole::Operator];
const SUPPORT: &[AccountRole] = &[AccountRole::Support];
const PRODUCERS: &[AccountRole] = &[AccountRole::Producer];
/// Routes for admins only. An admin may use every route.
const ADMINS: &[AccountRole] = &[];

/// Returns method, path, body, and the roles that are permitted in addition to admin.
fn routes() -> Vec<(Method, &'static str, Value, &'static [AccountRole])> {
    let mut routes = Vec::new();
    for path in ["/api/v1/orders?status=PENDING&limit=5", "/api/v1/orders/ORD-1", "/api/v1/orders/ORD-1/timeline"] {
        routes.push((
            Method::GET,
            path,
            Value::Null,
            &[
                AccountRole::Producer,
                AccountRole::Viewer,
                AccountRole::Dispatcher,
                AccountRole::Support,
                AccountRole::Operator,
            ] as &[AccountRole],
        ));
    }
    for path in [
        "/api/v1/orders/ORD-1/explain",
        "/api/v1/orders/ORD-1/take",
        "/api/v1/refunds",
        "/api/v1/alerts",
        "/api/v1/drivers",
        "/api/v1/bindings",
        "/api/v1/provider-servers",
        "/api/v1/partners",
        "/api/v1/admin/plans",
        "/api/v1/admin/dispatcher/areas",
    ] {
        routes.push((Method::GET, path, Value::Null, STAFF));
    }
    for verb in ["hold", "resume", "redispatch", "release"] {
        let path: &'static str = match verb {
            "hold" => "/api/v1/orders/ORD-1/hold",
            "resume" => "/api/v1/orders/ORD-1/resume",
            "redispatch" => "/api/v1/orders/ORD-1/redispatch",
            _ => "/api/v1/orders/ORD-1/release",
        };
        routes.push((Method::POST, path, because("a test"), DISPATCHERS));
    }
    for path in ["/api/v1/orders/ORD-1/take", "/api/v1/orders/ORD-1/leave"] {
        routes.push((Method::POST, path, because("a test"), DISPATCHERS));
    }
    let assign = json!({ "driver_id": "D1", "reason": "a test" });
    routes.push((Method::POST, "/api/v1/orders/ORD-1/assign", assign, DISPATCHERS));
    routes.push((Method::POST, "/api/v1/orders/ORD-1/refund", json!({ "action": "start" }), SUPPORT));
    let acknowledgers: &[AccountRole] = &[AccountRole::Support, AccountRole::Dispatcher];
    routes.push((Method::POST, "/api/v1/alerts/1/ack", json!({ "note": "a test" }), acknowledgers));
    for path in [
        "/api/v1/admin/queues",
        "/api/v1/admin/workers",
        "/api/v1/admin/jobs?queue=dispatch-queue",
        "/api/v1/admin/jobs/dispatch:ORD-1:1",
        "/api/v1/admin/dead",
        "/api/v1/admin/dead/dispatch:ORD-1:1",
        "/api/v1/admin/outbox",
        "/api/v1/admin/outbox/1",
        "/api/v1/admin/audit?source=order",
    ] {
        routes.push((Method::GET, path, Value::Null, OPERATORS));
    }
    for path in [
        "/api/v1/admin/queues/dispatch-queue/pause",
        "/api/v1/admin/queues/dispatch-queue/resume",
        "/api/v1/admin/workers/5f1c0e7a9b3d2468/drain",
        "/api/v1/admin/workers/5f1c0e7a9b3d2468/resume",
        "/api/v1/admin/dead/dispatch:ORD-1:1/requeue",
        "/api/v1/admin/dead/dispatch:ORD-1:1/discard",
        "/api/v1/admin/jobs/dispatch:ORD-9:1/cancel",
        "/api/v1/admin/outbox/1/replay",
        "/api/v1/drivers/D9/disable",
        "/api/v1/drivers/D9/enable",
    ] {
        routes.push((Method::POST, path, because("a test"), OPERATORS));
    }
    let moved = json!({ "in_sec": 0, "reason": "a test" });
    routes.push((Method::POST, "/api/v1/admin/jobs/dispatch:ORD-9:1/reschedule", moved, OPERATORS));
    let share = json!({ "polling_percent": 50, "reason": "a test" });
    routes.push((Method::PATCH, "/api/v1/partners/bbd", share, OPERATORS));
    let plan = json!({ "filter": {}, "action": "requeue", "reason": "a test", "dry_run": true });
    routes.push((Method::POST, "/api/v1/admin/dead/actions", plan, OPERATORS));
    let driver =
        json!({ "id": "D9", "service_types": ["RIDE"], "latitude": 0.0, "longitude": 0.0, "reason": "a test" });
    routes.push((Method::POST, "/api/v1/drivers", driver, OPERATORS));
    routes.push((Method::PATCH, "/api/v1/drivers/D9", because("a test"), OPERATORS));
    for path in ["/api/v1/admin/keys", "/api/v1/admin/users", "/api/v1/admin/sessions"] {
        routes.push((Method::GET, path, Value::Null, ADMINS));
    }
    let endpoint = "/api/v1/webhook-endpoints/01937c3e-8f00-7000-8000-000000000001";
    let new = json!({ "url": "https://shop.example.com/", "reason": "a test" });
    routes.push((Method::GET, "/api/v1/webhook-endpoints", Value::Null, PRODUCERS));
    routes.push((Method::POST, "/api/v1/webhook-endpoints", new, PRODUCERS));
    for verb in ["test", "rotate", "pause", "resume", "replay", "deliveries"] {
        let path: &'static str = format!("{endpoint}/{verb}").leak();
        let body = if verb == "replay" { json!({ "after": "0-0", "reason": "a test" }) } else { because("a test") };
        match verb {
            "deliveries" => routes.push((Method::GET, path, Value::Null, PRODUCERS)),
            _ => routes.push((Method::POST, path, body, PRODUCERS)),
        }
    }
    let deletion: &'static str = format!("{endpoint}?reason=lost").leak();
    routes.push((Method::DELETE, deletion, Value::Null, PRODUCERS));
    let session = "/api/v1/admin/sessions/01937c3e-8f00-7000-8000-000000000001?reason=lost";
    routes.push((Method::DELETE, session, Value::Null, ADMINS));
    let key = json!({ "name": "eve", "role": "viewer", "reason": "a test" });
    routes.push((Method::POST, "/api/v1/admin/keys", key, ADMINS));
    let rotated = json!({ "name": "eve", "reason": "a test" });
    routes.push((Method::POST, "/api/v1/admin/keys/rotate", rotated, ADMINS));
    let user = json!({ "name": "Eve", "role": "support", "reason": "a test" });
    routes.push((Method::PUT, "/api/v1/admin/users/eve", user, ADMINS));
    for path in [
        "/api/v1/admin/keys/01937c3e-8f00-7000-8000-000000000001/revoke",
        "/api/v1/admin/users/eve/disable",
        "/api/v1/admin/users/eve/enable",
        "/api/v1/admin/users/eve/remove",
    ] {
        routes.push((Method::POST, path, because("a test"), ADMINS));
    }
    routes
}

#[tokio::test]
async fn each_role_may_do_what_is_its_own() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let driver = t.driver_key("D1").await;
    for role in [
        AccountRole::Viewer,
        AccountRole::Producer,
        AccountRole::Driver,
        AccountRole::Dispatcher,
        AccountRole::Support,
        AccountRole::Operator,
        AccountRole::Admin,
    ] {
        let key = if role == AccountRole::Driver { driver.clone() } else { t.key(role).await };
        let before = t.dump().await;
        for (method, path, body, roles) in routes() {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let answer = api.send(method.clone(), path, &key, "", body).await;
            let of_a_driver =
                role == AccountRole::Driver && method == Method::GET && path.starts_with("/api/v1/orders/");
            if of_a_driver && !path.ends_with("explain") && !path.ends_with("take") {
                assert_eq!(answer.error(), (404, "ORDER_NOT_FOUND"), "{path}");
                continue;
            }
            let may = role == AccountRole::Admin || roles.contains(&role);
            assert_eq!(answer.error().1 != "FORBIDDEN", may, "{role:?}: {method} {path}: {answer:?}");
            assert!(answer.status < 500, "{role:?}: {method} {path}: {answer:?}");
            if role == AccountRole::Viewer && may {
                assert_eq!(answer.status, 200, "{path}: {answer:?}");
            }
        }
        if [AccountRole::Viewer, AccountRole::Driver].contains(&role) {
            assert_eq!(t.dump().await, before, "{role:?} changes nothing");
            let by_others = "SELECT count(*) FROM staff_actions WHERE actor NOT LIKE 'producer:%'";
            assert_eq!(t.count(by_others).await, 0);
        }
    }
}

#[tokio::test]
async fn what_a_viewer_reads_with_takes_no_writes() {
    let t = TestApp::start().await;
    let viewing = t.app.clone().reading();
    let written = sqlx::query("UPDATE orders SET version = version").execute(&viewing.core.db).await.unwrap_err();
    let code = written.as_database_error().and_then(sqlx::error::DatabaseError::code);
    assert_eq!(code.as_deref(), Some("25006"), "{written}");
    assert!(sqlx::query("UPDATE orders SET version = version").execute(&t.app.core.db).await.is_ok());
}
