//! `dispatchq check status`, and the warning of `migrate`.

use serde_json::Value;

use crate::support::Fleet;
use maintenance::proof::slice;

/// Returns a fleet with one open violation, about an order whose only event was deleted.
async fn with_violation() -> Fleet {
    let fleet = Fleet::with("1h", "").await;
    fleet.postgres.run_statement("SELECT dispatchq_create_order('ORD-1', 'RIDE', -6.2, 106.8)").await.unwrap();
    fleet.postgres.run_statement("DELETE FROM order_events").await.unwrap();
    slice::run(&fleet.app.maintenance).await.unwrap();
    fleet
}

#[tokio::test]
async fn check_status_names_each_violation() {
    let fleet = with_violation().await;
    let printed = fleet.run(&["check", "status"]);
    assert_eq!(printed.code, Some(1), "{printed:?}");
    assert!(printed.stdout.starts_with("Proven until event 1, "), "{printed:?}");
    assert!(printed.stdout.contains("Open violations: 1."), "{printed:?}");
    assert!(printed.stdout.contains("VIOLATION  unbroken_chain: ORD-1: is DISPATCHING"), "{printed:?}");
    let json: Value = serde_json::from_str(&fleet.run(&["check", "status", "--json"]).stdout).unwrap();
    assert_eq!(json["violations"][0]["order_id"], "ORD-1");
}

#[tokio::test]
async fn migrate_warns_about_open_violations() {
    let fleet = with_violation().await;
    let settings =
        [("DISPATCHQ_DATABASE__URL", fleet.postgres.url()), ("DISPATCHQ_DATABASE__POOLER", "false".to_owned())];
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let printed = crate::support::run_binary(fleet.dir(), &["migrate"], &settings);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.stderr.contains("the history has 1 open violations"), "{printed:?}");
}
