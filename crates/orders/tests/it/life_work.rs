//! Limits of what one order of the own fleet costs in Postgres, with one order at a time. Its first offer gets no answer,
//! its second offer is accepted, and the driver picks up and completes.
//!
//! The counts do not depend on time, so a change that adds a statement, a row version or an index entry fails the test.
//! A change that saves some lowers the limits. docs/BENCHMARKS.md has the counts of many orders at once.

use std::fmt::Write as _;

use accounts::api_keys::AccountRole;
use model::{
    actor::Actor,
    decide::actions,
    ids::{DriverId, OfferId},
};
use orders::accept;
use serde_json::json;
use servers::WorkCounts;
use test_support::{Api, Receiver, TestApp, eventually, http_client, id, secs, update_order};

/// Number of counted orders. One order before them is not counted.
const COUNTED: u64 = 8;
const ATTEMPT_SECS: u64 = 30;

/// Maximum row versions, minimum HOT updates and maximum index entries of one order.
const TABLES: [(&str, u64, u64, u64); 9] = [
    ("orders", 6, 3, 19),
    ("order_events", 7, 0, 7),
    ("order_feed", 6, 0, 13),
    ("offers", 4, 0, 9),
    ("rankings", 2, 0, 4),
    ("outbox", 4, 0, 16),
    ("outbox_attempts", 2, 0, 2),
    ("idempotency_keys", 1, 0, 2),
    ("drivers", 1, 1, 0),
];
/// Maximum calls per order.
const STATEMENTS: [(&str, u64); 5] =
    [("create orders", 1), ("candidates", 2), ("drivers nearby", 2), ("write change", 5), ("record delivery", 2)];
/// Maximum commits per order: those of the creation, the changes and the deliveries, and one of the test's clock.
const MOST_COMMITS: u64 = 1 + 5 + 2 + 1;
/// Maximum WAL per order without full pages, in bytes.
const MOST_WAL: u64 = 14_000;

/// Serves the order `number` from its creation to its end.
async fn serve_order(t: &TestApp, api: &Api, key: &str, number: u64) {
    let order = format!("ORD-{number}");
    let body = json!({ "order_id": order, "service_type": "RIDE", "payment_status": "PAID",
                       "pickup": { "latitude": -6.2088, "longitude": 106.8456 } });
    let request = http_client().post(api.url("/api/v1/orders")).bearer_auth(key).header("idempotency-key", &order);
    assert_eq!(request.json(&body).send().await.unwrap().status(), 201);
    t.run_due().await;
    wait_for_deliveries(t).await;
    t.advance(secs(ATTEMPT_SECS)).await;
    t.run_due().await;
    wait_for_deliveries(t).await;
    let (offer, driver): (OfferId, DriverId) =
        sqlx::query_as("SELECT id, driver_id FROM offers WHERE state = 'offered'")
            .fetch_one(&t.app.core.db)
            .await
            .unwrap();
    let (order, by) = (id(&order), Actor::for_driver(&driver));
    accept::accept_offer(&t.app.orders, &order, &driver, offer, &by).await.unwrap();
    update_order(&t.app.orders, &order, |s| actions::record_pickup(s, &driver)).await.unwrap();
    update_order(&t.app.orders, &order, |s| actions::complete_trip(s, &driver)).await.unwrap();
}

async fn wait_for_deliveries(t: &TestApp) {
    let pending = "SELECT count(*) FROM outbox WHERE state = 'pending'";
    eventually("no message waits", || async { t.count(pending).await == 0 }).await;
}

/// Returns one line per table and statement.
fn describe(work: &WorkCounts) -> String {
    let mut lines = format!("{COUNTED} orders, {} commits, {} bytes of WAL\n", work.commits, work.wal_bytes);
    for (name, counts) in &work.tables {
        let _ = writeln!(lines, "{name}: {} row versions, {counts:?}", counts.row_versions());
    }
    for (name, counts) in &work.statements {
        let _ = writeln!(lines, "{name}: {} calls", counts.calls);
    }
    lines
}

#[tokio::test]
async fn order_stays_within_its_budget() {
    let receiver = Receiver::start().await;
    let mut t = TestApp::with(|config| {
        receiver.configure(config);
        config.dispatch.attempt = secs(ATTEMPT_SECS);
    })
    .await;
    t.postgres.restart_for_counting().await.unwrap();
    t.app.orders.first_tries.start();
    let (api, key) = (Api::start(&t.app).await, t.key(AccountRole::Producer).await);
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    // The first order prepares the statements.
    serve_order(&t, &api, &key, 0).await;
    let start = t.postgres.start_count().await.unwrap();
    for number in 1..=COUNTED {
        serve_order(&t, &api, &key, number).await;
    }
    let work = t.postgres.count_work(&start).await.unwrap();
    let counts = describe(&work);
    println!("{counts}");
    for (table, rows, hot, entries) in TABLES {
        let counted = work.tables[table];
        assert!(counted.row_versions() <= rows * COUNTED, "rows of {table}: {counts}");
        assert!(counted.hot_updates >= hot * COUNTED, "HOT updates of {table}: {counts}");
        assert!(counted.index_entries <= entries * COUNTED, "index entries of {table}: {counts}");
    }
    for (statement, most) in STATEMENTS {
        assert!(work.statements[statement].calls <= most * COUNTED, "{statement}: {counts}");
    }
    // Less than one more per order may be periodic, or belong to the API key.
    assert!(work.commits < (MOST_COMMITS + 1) * COUNTED && work.wal_bytes <= MOST_WAL * COUNTED, "{counts}");
    let is_listed = |table: &str| TABLES.iter().any(|(listed, ..)| *listed == table);
    let more = work.tables.iter().filter(|(table, counted)| !is_listed(table) && counted.row_versions() >= COUNTED);
    assert_eq!(more.count(), 0, "another table: {counts}");
    let is_listed = |name: &str| STATEMENTS.iter().any(|(listed, _)| *listed == name);
    let more = work.statements.iter().filter(|(name, counted)| !is_listed(name) && counted.calls >= COUNTED);
    assert_eq!(more.count(), 0, "another statement: {counts}");
    t.assert_sound().await;
}
