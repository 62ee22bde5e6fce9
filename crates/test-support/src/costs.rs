//! Counts the Postgres statements of many concurrent orders.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::json;
use servers::PostgresServer;
use tokio::task::JoinSet;

use crate::{Api, TestApp, eventually, http_client};
use accounts::api_keys::AccountRole;

/// Number of orders that [`create_orders`] creates.
pub const ORDERS: usize = 100;
/// Maximum statements per order over its whole life. `MOST_WRITES` counts only transactions that write.
const MOST_ROUND_TRIPS: f64 = 12.0;
const MOST_WRITES: f64 = 4.0;

/// Restarts this server with `pg_stat_statements`.
pub async fn count_statements(postgres: &mut PostgresServer) {
    postgres.restart_for_counting().await.unwrap();
}

/// Next transaction id. Each transaction that writes takes one.
const NEXT_XID: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";

/// Asserts that the statements since `first_xid`, when the counters were reset, stay within the limits. Prints them by
/// name.
pub async fn assert_shared(t: &TestApp, first_xid: i64) {
    let writes = t.count(NEXT_XID).await - first_xid;
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "SELECT split_part(query, E'\\n', 1), sum(calls)::bigint
         FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
         WHERE (query LIKE '-- %' OR query IN ('BEGIN', 'COMMIT')) AND query NOT LIKE '-- takes writes%'
         GROUP BY 1 ORDER BY 2 DESC, 1",
    )
    .fetch_all(&t.app.core.db)
    .await
    .unwrap();
    let per_order = |calls: i64| f64::from(u32::try_from(calls).unwrap()) / f64::from(u32::try_from(ORDERS).unwrap());
    let mut table = String::new();
    for (name, calls) in &rows {
        let _ = writeln!(table, "{:>8.2} {name}", per_order(*calls));
    }
    let (all, writes) = (per_order(rows.iter().map(|(_, calls)| calls).sum()), per_order(writes));
    let loads = "SELECT coalesce(sum(rows), 0)::bigint FROM pg_stat_statements s
                 JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
                 WHERE query LIKE '-- load order%'";
    let loads = per_order(t.count(loads).await);
    println!("{table}per order: {all:.2} round trips, {writes:.2} write transactions, loaded {loads:.2} times");
    assert!(all <= MOST_ROUND_TRIPS, "{all} round trips");
    assert!(writes <= MOST_WRITES, "{writes} write transactions");
}

/// Returns the number of waiting timers of each kind.
pub async fn timer_kinds(t: &TestApp) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for timer in t.timers().await.into_keys() {
        let kind = timer.split(':').next().unwrap_or_default().to_owned();
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

/// Waits until no timer is left. A timer of an order that has ended would cost one more load of the order.
pub async fn assert_no_timer_left(t: &TestApp) {
    eventually("no timer is left", || async { timer_kinds(t).await.is_empty() }).await;
}

/// Creates [`ORDERS`] orders concurrently, as a producer does, each `degrees_apart` north of the previous one. Returns
/// the transaction id at which counting starts.
pub async fn create_orders(t: &TestApp, api: &Api, service_type: &str, degrees_apart: f64) -> i64 {
    let key = t.key(AccountRole::Producer).await;
    t.count("SELECT count(*) FROM pg_stat_statements_reset()").await;
    let first_xid = t.count(NEXT_XID).await;
    let client = http_client();
    let mut creations = JoinSet::new();
    for (n, latitude) in latitudes(degrees_apart) {
        let order = format!("ORD-{n}");
        let body = json!({ "order_id": order, "service_type": service_type, "payment_status": "PAID",
                           "pickup": { "latitude": latitude, "longitude": 106.8456 } });
        let request = client.post(api.url("/api/v1/orders")).bearer_auth(&key).header("idempotency-key", order);
        creations.spawn(request.json(&body).send());
    }
    for answer in creations.join_all().await {
        assert_eq!(answer.unwrap().status(), 201);
    }
    first_xid
}

/// Returns the latitudes of the orders, each `degrees_apart` north of the previous one.
pub fn latitudes(degrees_apart: f64) -> impl Iterator<Item = (usize, f64)> {
    (0..ORDERS).scan(-8.0, move |latitude, n| {
        *latitude += degrees_apart;
        Some((n, *latitude))
    })
}
