//! Keys with a scope: what they read, what is hidden, and how a scope is set.

use api::OPENAPI;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use accounts::{
    api_keys::{self, AccountRole},
    key_admin,
};
use model::scope::Scope;
use test_support::{Answer, Api, TestApp, eventually, secs};

const STAFF: [AccountRole; 5] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator, AccountRole::Admin];
/// Scopes that contain the orders `SEEN-...`, and not `HIDDEN-...`.
const SCOPES: [&str; 3] =
    [r#"{"areas": ["SEEN-A"]}"#, r#"{"service_types": ["RENT", "RIDE"]}"#, r#"{"producers": ["SEEN-shop"]}"#];
/// Filters of lists that name hidden orders.
const FILTERS: [(&str, &[&str]); 3] = [
    ("/api/v1/orders", &["?q=HIDDEN-OPEN", "?q=HIDDEN-CUS", "?customer=HIDDEN-CUS", "?area=HIDDEN-A", "?closed=true"]),
    ("/api/v1/alerts", &["?order_id=HIDDEN-OPEN", "?open=true"]),
    ("/api/v1/refunds", &["?state=owed"]),
];

/// Creates two orders in each scope: one waits for a dispatcher, and one owes a refund. Both have an alert.
async fn lay_out() -> TestApp {
    let t = TestApp::with_seen_and_hidden_orders().await;
    t.sql(
        "UPDATE orders SET area_id = side || '-A', owner = side || '-shop', customer_id = side || '-CUS',
                service_type = CASE side WHEN 'HIDDEN' THEN 'DELIVERY' ELSE service_type END
         FROM (SELECT id AS order_id, split_part(id, '-', 1) AS side FROM orders) s WHERE s.order_id = orders.id",
    )
    .await;
    assert!(t.count("SELECT count(DISTINCT order_id) FROM alerts").await >= 3);
    t
}

/// Creates a key of this role with a scope.
async fn scoped_key(t: &TestApp, role: AccountRole, scope: &str) -> String {
    let key = t.key(role).await;
    let id = api_keys::find_key(&t.app.core.db, &key).await.unwrap().unwrap().id;
    t.sql(&format!("UPDATE api_keys SET scope = '{scope}' WHERE id = '{id}'")).await;
    key
}

/// Sends a request, and returns the status and the text of the answer without the address of the request.
async fn ask(api: &Api, method: &Method, path: &str, key: &str, body: &str) -> (u16, String) {
    let request = api.client.request(method.clone(), api.url(path)).bearer_auth(key);
    let answer = request.header("content-type", "application/json").body(body.to_owned()).send().await.unwrap();
    let status = answer.status().as_u16();
    let path = path.split('?').next().unwrap();
    (status, answer.text().await.unwrap().replace(path, ""))
}

/// Returns method, path, roles and example body of each operation that needs a key.
fn list_operations() -> Vec<(Method, String, Value, String)> {
    let document: Value = serde_json::from_str(&OPENAPI).unwrap();
    let paths = document["paths"].as_object().unwrap().clone();
    let operations = paths.into_iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().clone();
        methods.into_iter().map(move |(method, said)| {
            let content = said["requestBody"]["content"].as_object();
            let body = content.map(|kinds| kinds.values().next().unwrap()["example"].to_string()).unwrap_or_default();
            (method.to_uppercase().parse().unwrap(), path.clone(), said["x-roles"].clone(), body)
        })
    });
    operations.filter(|(.., roles, _)| roles.is_array()).collect()
}

/// Returns the paths of an operation with ids of hidden orders and alerts, and with filters that name them.
async fn hidden_paths(t: &TestApp, path: &str) -> Vec<String> {
    let alerts = t.texts("SELECT id::text FROM alerts WHERE order_id LIKE 'HIDDEN%'").await;
    let ids = ["HIDDEN-OPEN", "HIDDEN-OWED"].map(str::to_owned);
    let mut paths: Vec<String> = ids.iter().chain(&alerts).map(|id| path.replace("{id}", id)).collect();
    paths.dedup();
    let filters = FILTERS.iter().filter(|(list, _)| *list == path).flat_map(|(_, filters)| *filters);
    paths.extend(filters.map(|filter| format!("{path}{filter}")));
    paths.iter_mut().for_each(|path| {
        for (parameter, value) in [("{area_id}", "HIDDEN-A"), ("{job_id}", "timeout:HIDDEN-OPEN:1")] {
            *path = path.replace(parameter, value);
        }
    });
    paths
}

async fn walk(scope: &str) {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    let before = t.texts("SELECT id || ' ' || version FROM orders WHERE id LIKE 'HIDDEN%' ORDER BY id").await;
    let mut asked = 0;
    for role in STAFF {
        let key = scoped_key(&t, role, scope).await;
        for (method, path, _, body) in list_operations() {
            for path in hidden_paths(&t, &path).await {
                let (status, text) = ask(&api, &method, &path, &key, &body).await;
                assert!(status < 500, "{role:?} {method} {path} is answered {status}: {text}");
                assert!(!text.contains("HIDDEN"), "{role:?} {method} {path}: {text}");
                asked += 1;
            }
        }
    }
    assert!(asked > 1000, "{asked}");
    assert_eq!(t.texts("SELECT id || ' ' || version FROM orders WHERE id LIKE 'HIDDEN%' ORDER BY id").await, before);
}

#[tokio::test]
async fn scope_of_areas_hides_other_orders() {
    walk(SCOPES[0]).await;
}

#[tokio::test]
async fn scope_of_service_types_hides_other_orders() {
    walk(SCOPES[1]).await;
}

#[tokio::test]
async fn scope_of_producers_hides_other_orders() {
    walk(SCOPES[2]).await;
}

#[tokio::test]
async fn hidden_order_is_answered_like_a_missing_one() {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    let key = scoped_key(&t, AccountRole::Admin, SCOPES[1]).await;
    let mut hidden = 0;
    for (method, path, _, body) in list_operations().into_iter().filter(|(_, path, ..)| path.contains("orders/{id}")) {
        let send = async |id: &str| api.send(method.clone(), &path.replace("{id}", id), &key, "", body.clone()).await;
        let (one, other) = (send("HIDDEN-OPEN").await, send("MISSING").await);
        assert_eq!((one.status, one.without_request()), (other.status, other.without_request()), "{method} {path}");
        hidden += u16::from(one.error() == (404, "ORDER_NOT_FOUND"));
    }
    assert!(hidden >= 15, "{hidden}");
}

#[tokio::test]
async fn orders_of_the_scope_are_read_and_changed() {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    for scope in SCOPES {
        let key = scoped_key(&t, AccountRole::Dispatcher, scope).await;
        let listed = api.get("/api/v1/orders?closed=true", &key).await;
        let ids: Vec<_> = listed.body["orders"].as_array().unwrap().iter().map(|o| o["order_id"].clone()).collect();
        assert_eq!(ids, [json!("SEEN-OWED"), json!("SEEN-OPEN")], "{scope}: {listed:?}");
        let refunds = api.get("/api/v1/refunds", &key).await;
        assert_eq!(refunds.body["refunds"][0]["order_id"], "SEEN-OWED", "{scope}");
        let alerts = api.get("/api/v1/alerts", &key).await;
        assert!(!alerts.body["alerts"].as_array().unwrap().is_empty(), "{scope}");
        for part in ["", "/explain", "/timeline", "/take", "/contact"] {
            assert_eq!(api.get(&format!("/api/v1/orders/SEEN-OPEN{part}"), &key).await.status, 200, "{scope} {part}");
        }
    }
    let key = scoped_key(&t, AccountRole::Dispatcher, SCOPES[0]).await;
    let because = json!({ "reason": "a test" });
    assert_eq!(api.post("/api/v1/orders/SEEN-OPEN/hold", &key, because.clone()).await.status, 200);
    assert_eq!(api.post("/api/v1/orders/SEEN-OPEN/cancel", &key, because).await.status, 200);
}

#[tokio::test]
async fn operations_without_scope_are_refused() {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    let key = scoped_key(&t, AccountRole::Admin, SCOPES[0]).await;
    for path in ["/api/v1/drivers", "/api/v1/bindings", "/api/v1/events", "/api/v1/admin/keys", "/api/v1/admin/audit"] {
        assert_eq!(api.get(path, &key).await.error(), (403, "OUT_OF_SCOPE"), "{path}");
    }
    let made = json!({ "name": "x", "role": "viewer", "reason": "a test" });
    assert_eq!(api.post("/api/v1/admin/keys", &key, made).await.error(), (403, "OUT_OF_SCOPE"));
}

/// Reads with the rights of a scope, without the filter of the application.
#[tokio::test]
async fn postgres_shows_only_rows_of_the_scope() {
    let t = lay_out().await;
    t.sql("UPDATE orders SET partner = split_part(lower(id), '-', 1)").await;
    let scopes =
        SCOPES.into_iter().chain([r#"{"partners": ["seen"]}"#, r#"{"areas": ["SEEN-A"], "partners": ["seen"]}"#]);
    for scope in scopes {
        let scope: Scope = serde_json::from_str(scope).unwrap();
        let app = t.app.clone().scoped(&scope);
        for db in [&app.core.db, &app.core.read_only, &app.core.pages] {
            for (column, table) in
                [("id", "orders"), ("order_id", "order_events"), ("order_id", "outbox"), ("order_id", "alerts")]
            {
                let ids: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!("SELECT {column} FROM {table}")))
                    .fetch_all(db)
                    .await
                    .unwrap();
                assert!(!ids.is_empty(), "{table}: {scope:?}");
                assert!(ids.iter().all(|id| id.starts_with("SEEN")), "{table}: {scope:?}: {ids:?}");
            }
        }
        // The same connections read everything for other callers.
        let all: i64 =
            sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&t.app.core.read_only).await.unwrap();
        assert_eq!(all, 4);
    }
}

#[tokio::test]
async fn scoped_transaction_reads_no_other_table() {
    let t = lay_out().await;
    let app = t.app.clone().scoped(&serde_json::from_str(SCOPES[0]).unwrap());
    for table in
        ["api_keys", "users", "order_feed", "dead_letters", "plans", "staff_actions", "console_sessions", "bindings"]
    {
        let read = sqlx::query(AssertSqlSafe(format!("SELECT 1 FROM {table}"))).fetch_all(&app.core.db).await;
        assert!(read.unwrap_err().to_string().contains("permission denied"), "{table}");
    }
    let phone = sqlx::query("SELECT phone FROM drivers").fetch_all(&app.core.db).await;
    assert!(phone.unwrap_err().to_string().contains("permission denied"));
    let written = sqlx::query("UPDATE orders SET round = 2").execute(&app.core.db).await;
    assert!(written.is_err());
}

async fn set_scope(t: &TestApp, api: &Api, key: &str, scope: Value) -> Answer {
    let admin = t.key_named("boss", AccountRole::Admin, None).await;
    let id = api_keys::find_key(&t.app.core.db, key).await.unwrap().unwrap().id;
    let body = json!({ "scope": scope, "reason": "a test" }).to_string();
    api.send(Method::PUT, &format!("/api/v1/admin/keys/{id}/scope"), &admin, "", body).await
}

#[tokio::test]
async fn new_scope_limits_other_processes_within_a_second() {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    let elsewhere = Api::start(&t.reconfigured(|_| {})).await;
    let key = t.key(AccountRole::Viewer).await;
    assert_eq!(elsewhere.get("/api/v1/orders/HIDDEN-OPEN", &key).await.status, 200);
    let set = set_scope(&t, &api, &key, json!({ "service_types": ["RIDE"] })).await;
    assert_eq!(set.body["scope"], json!({ "service_types": ["RIDE"] }), "{set:?}");
    eventually("the scope hides the order", async || {
        elsewhere.get("/api/v1/orders/HIDDEN-OPEN", &key).await.status == 404
    })
    .await;
    let record = "SELECT new_value::text FROM staff_actions WHERE action = 'KEY_SCOPE_SET'";
    assert_eq!(t.texts(record).await, [r#"{"scope": {"service_types": ["RIDE"]}}"#]);
}

#[tokio::test]
async fn replaced_key_keeps_the_scope() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key_named("anna", AccountRole::Viewer, None).await;
    set_scope(&t, &api, &key, json!({ "service_types": ["RIDE"] })).await;
    let (row, _) = key_admin::rotate_key(&t.app.core.db, "anna", secs(60), None).await.unwrap();
    assert_eq!(json!(row.scope), json!({ "service_types": ["RIDE"] }));
}

#[tokio::test]
async fn unknown_name_in_scope_is_refused() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Viewer).await;
    for (scope, member, name) in [
        (json!({ "service_types": ["NOPE"] }), "service_types", "NOPE"),
        (json!({ "partners": ["unknown"] }), "partners", "unknown"),
        (json!({ "producers": ["unknown"] }), "producers", "unknown"),
        (json!({ "areas": [] }), "areas", "1 to 100"),
    ] {
        let refused = set_scope(&t, &api, &key, scope).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{member}");
        assert_eq!(refused.body["errors"][0]["pointer"], format!("#/scope/{member}"));
        assert!(refused.text("message").contains(name), "{refused:?}");
    }
}

#[tokio::test]
async fn producer_key_gets_no_scope() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let admin = t.key(AccountRole::Admin).await;
    let new = json!({ "name": "shop", "role": "producer", "scope": { "service_types": ["RIDE"] }, "reason": "a test" });
    assert_eq!(api.post("/api/v1/admin/keys", &admin, new).await.error(), (422, "INVALID"));
    let key = t.key(AccountRole::Producer).await;
    let set = set_scope(&t, &api, &key, json!({ "service_types": ["RIDE"] })).await;
    assert_eq!(set.error(), (404, "KEY_NOT_FOUND"));
}
