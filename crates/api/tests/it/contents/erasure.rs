//! After an erasure, no table, Redis key or log line has the contents of an order.

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::outputs::subscribe;
use accounts::api_keys::AccountRole;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use maintenance::periodic::cleanup::{self, CleanupMode};
use test_support::{
    LogLines, Receiver, TestApp, by,
    partnership::{Partnership, SERVICE, partner, silent},
    secs,
};

/// Returns an order whose contents all have a mark. The phone number and the coordinates are marks, too.
fn marked(order: &str, service_type: &str, mark: &str) -> Value {
    json!({
        "order_id": order, "service_type": service_type, "customer_id": "CUS-1",
        "pickup": { "latitude": -6.208_812_34, "longitude": 106.845_612_34, "address": format!("{mark}-PICKUP") },
        "dropoff": { "latitude": -6.208_812_34, "longitude": 106.845_612_34, "address": format!("{mark}-DROPOFF") },
        "notes": format!("{mark}-NOTES"), "metadata": { (format!("{mark}-KEY")): format!("{mark}-VALUE") },
        "contact": { "name": format!("{mark}-NAME"), "phone": "+628123456789", "email": format!("{mark}@example.com") },
    })
}

const MARKS: [&str; 3] = ["MARK", "8123456789", "6.2088123"];

/// Returns the tables and Redis keys with a mark.
async fn places_with_marks(t: &TestApp) -> Vec<String> {
    let tables = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND n.nspname = 'public' AND NOT c.relispartition ORDER BY 1";
    let mut found = Vec::new();
    for table in t.texts(tables).await {
        let rows: Option<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("SELECT string_agg(x::text, ' ') FROM \"{table}\" x")))
                .fetch_one(&t.app.core.db)
                .await
                .unwrap();
        let rows = rows.unwrap_or_default();
        found.extend(MARKS.iter().filter(|mark| rows.contains(**mark)).map(|mark| format!("{table}: {mark}")));
    }
    let _: String = t.redis(&["CONFIG", "SET", "rdbcompression", "no"]).await;
    for key in t.redis::<Vec<String>>(&["KEYS", "*"]).await {
        let dump: Vec<u8> = t.redis(&["DUMP", &key]).await;
        let has = |mark: &str| dump.windows(mark.len()).any(|part| part == mark.as_bytes()) || key.contains(mark);
        found.extend(MARKS.iter().filter(|mark| has(mark)).map(|mark| format!("{key}: {mark}")));
    }
    found
}

#[tokio::test]
async fn erased_contents_leave_no_trace() {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::DEBUG).with_writer(lines.clone()).init();
    for by_retention in [false, true] {
        let receiver = Receiver::start().await;
        let p = Partnership::with(silent(), |config| {
            partner(config).details = true;
            subscribe(config, &receiver);
            config.retention.contact = secs(2 * 86_400);
        })
        .await;
        p.drivers(&[("D1", 100.0)]).await;
        let shop = p.key(AccountRole::Producer).await;
        for (order, service_type) in [("RIDE-1", "RIDE"), ("TAXI-1", SERVICE)] {
            let new = marked(order, service_type, "MARK-A");
            assert_eq!(p.api.post_once("/api/v1/orders", &shop, order, new).await.status, 201);
        }
        // The taxi is changed while its booking is open, so the booking keeps the places of its request.
        p.lose_answers("1".parse().unwrap());
        p.run_due().await;
        for order in ["RIDE-1", "TAXI-1"] {
            let mut patch = marked(order, "RIDE", "MARK-B");
            patch
                .as_object_mut()
                .unwrap()
                .retain(|name, _| !["order_id", "service_type", "customer_id"].contains(&name.as_str()));
            let path = format!("/api/v1/orders/{order}");
            let patched = p.api.send(reqwest::Method::PATCH, &path, &shop, "", patch.to_string()).await;
            assert_eq!(patched.status, 200, "{patched:?}");
        }
        p.lose_answers("0".parse().unwrap());
        p.run_for(secs(60)).await;
        for order in ["RIDE-1", "TAXI-1"] {
            assert_eq!(p.api.post(&format!("/api/v1/orders/{order}/cancel"), &shop, json!({})).await.status, 200);
        }
        p.run_for(secs(60)).await;
        assert!(places_with_marks(&p).await.iter().any(|place| place.starts_with("order_details")));
        if by_retention {
            p.advance(secs(3 * 86_400)).await;
            p.add_days().await;
            cleanup::run(&p.app.maintenance, CleanupMode::Remove).await.unwrap();
        } else {
            let now = db::database_now(&p.app.core.db).await.unwrap();
            let erasure = ErasureRecord::new(ErasureSubject::Customer, "CUS-1", "a request", &by("cli:eve"), now);
            let done = privacy::erase_subject(&p.app.core, &erasure).await.unwrap();
            assert_eq!(done, ErasureOutcome::Done { orders: 2 });
        }
        let left = places_with_marks(&p).await;
        // The retention of the contact keeps the pickup location, which is part of the order.
        let is_expected = |place: &String| by_retention && place == "orders: 6.2088123";
        assert_eq!(left.into_iter().filter(|place| !is_expected(place)).collect::<Vec<_>>(), [""; 0]);
        for mark in MARKS {
            let logged = lines.with(mark);
            assert_eq!(logged, [""; 0], "{mark}");
        }
    }
}
