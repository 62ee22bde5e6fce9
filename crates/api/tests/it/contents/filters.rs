//! Lists of orders by their metadata.

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use accounts::api_keys::AccountRole;
use orders::search;
use test_support::{Api, TestApp};

async fn listed(api: &Api, key: &str, query: &str) -> Vec<String> {
    let answer = api.get(&format!("/api/v1/orders?{query}"), key).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    answer.body["orders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|order| order["order_id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn list_is_filtered_by_metadata() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    for (order, metadata) in [
        ("ORD-1", json!({ "crm_id": "7", "site": "north" })),
        ("ORD-2", json!({ "crm_id": "7", "site": "south" })),
        ("ORD-3", json!({ "crm_id": "8", "a b&c": "x=y" })),
    ] {
        let mut ride = test_support::ride_with_id(order);
        ride["metadata"] = metadata;
        assert_eq!(api.post("/api/v1/orders", &shop, ride).await.status, 201);
    }
    assert_eq!(api.post("/api/v1/orders", &shop, test_support::ride_with_id("ORD-4")).await.status, 201);
    t.cancel("ORD-1").await.unwrap();
    let support = t.key(AccountRole::Support).await;
    for key in [&shop, &support] {
        assert_eq!(listed(&api, key, "metadata[crm_id]=7").await, ["ORD-2", "ORD-1"], "also closed orders");
        assert_eq!(listed(&api, key, "metadata%5Bcrm_id%5D=7&metadata[site]=north").await, ["ORD-1"]);
        assert_eq!(listed(&api, key, "metadata[crm_id]=7&closed=false").await, ["ORD-2"]);
        assert_eq!(listed(&api, key, "metadata[crm_id]=7&metadata[site]=west").await, [""; 0]);
        assert_eq!(listed(&api, key, "metadata[a+b%26c]=x%3Dy").await, ["ORD-3"]);
    }
    let other = t.key_named("other", AccountRole::Producer, None).await;
    assert_eq!(listed(&api, &other, "metadata[crm_id]=7").await, [""; 0], "orders of another producer");
    let first = api.get("/api/v1/orders?metadata[crm_id]=7&limit=1", &shop).await.body;
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(listed(&api, &shop, &format!("metadata[crm_id]=7&limit=1&cursor={cursor}")).await, ["ORD-1"]);
    for wrong in
        ["metadata=7", "metadata[]=7", "metadata[a]=1&metadata[a]=2", "metadata[a]=%01", "metadata[a", "metadat[a]=1"]
    {
        let answer = api.get(&format!("/api/v1/orders?{wrong}"), &shop).await;
        assert_eq!(answer.error(), (422, "INVALID"), "{wrong}: {answer:?}");
    }
}

/// Many orders, each with its own value and one that all share.
const MANY: &str = "
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, status, lifetime_deadline, created_at, updated_at, closed_at, has_details)
    SELECT 'M' || n, 'RIDE', -6.2, 106.8, 'CANCELLED_BY_USER', t, t, t, t, true
    FROM (SELECT n, dispatchq_now() - n * interval '1 minute' AS t FROM generate_series(1, 20000) n) x;
    INSERT INTO order_details (order_id, metadata, created_at)
    SELECT id, jsonb_build_object('crm_id', id, 'site', 'north'), created_at FROM orders;
    ANALYZE orders; ANALYZE order_details";

#[tokio::test]
async fn metadata_filter_reads_its_index() {
    let t = TestApp::start().await;
    let mut db = PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::raw_sql(MANY).execute(&mut db).await.unwrap();
    sqlx::raw_sql("SET plan_cache_mode = force_custom_plan").execute(&mut db).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("PREPARE s AS {}", search::metadata_search()))).execute(&mut db).await.unwrap();
    let nothing = ["NULL"; 11].join(", ");
    let mut plan = async |metadata: &str| {
        let call = format!("EXPLAIN EXECUTE s (true, {nothing}, 50, NULL, '{metadata}')");
        let lines: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(call)).persistent(false).fetch_all(&mut db).await.unwrap();
        lines.join("\n")
    };
    let selective = plan(r#"{"crm_id": "M7"}"#).await;
    assert!(selective.contains("order_details_by_metadata") && !selective.contains("Seq Scan"), "{selective}");
    let common = plan(r#"{"site": "north"}"#).await;
    assert!(!common.contains("Seq Scan"), "{common}");
    let api = Api::start(&t.app).await;
    assert_eq!(listed(&api, &t.key(AccountRole::Support).await, "metadata[crm_id]=M7").await, ["M7"]);
}
