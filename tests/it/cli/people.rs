//! The commands about people, their names, keys and data.

use std::collections::BTreeSet;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use crate::support::{workspace, create_key, ride_with_id, Api, Fleet, TestApp, by, eventually, lasting_transaction, secs};
use accounts::api_keys::AccountRole;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use maintenance::periodic::cleanup::{self, CleanupMode};
use model::{
    actor::{Actor, ActorRole},
    decide::actions,
};
use orders::fleet::drivers;

#[tokio::test]
async fn s17_erasures_are_replayed_onto_a_restored_backup() {
    let fleet = Fleet::start().await;
    let app = &fleet.app;
    let sql = async |text: &'static str| {
        sqlx::raw_sql(text).execute(&app.core.db).await.unwrap();
    };
    let run = |args: &[&str]| {
        let printed = fleet.run(args);
        assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
        printed.stdout
    };
    let create = ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8"];
    run(&create);
    run(&["order", "cancel", "ORD-1"]);
    sql("UPDATE orders SET customer_id = 'MARK-C'; UPDATE order_events SET detail = 'MARK';
         UPDATE outbox SET state = 'delivered'; UPDATE alerts SET acked_at = now(), acked_by = 'x', next_escalation_at = NULL;
         INSERT INTO drivers (id, service_types, lat, lng) VALUES ('MARK-D', '{RIDE}', 1, 1);
         UPDATE orders SET former_drivers = '{MARK-D}'")
    .await;
    // The backup is taken now.
    sql("CREATE SCHEMA backup; CREATE TABLE backup.orders AS TABLE orders; CREATE TABLE backup.events AS TABLE order_events;
         CREATE TABLE backup.drivers AS TABLE drivers")
    .await;
    let erase = |subject: &'static str, id: &'static str| ["privacy", "erase", subject, id, "--reason", "asked to"];
    assert!(run(&[&erase("--customer", "MARK-C")[..], &["--dry-run"]].concat()).contains("1 orders of"));
    let unsure = fleet.run(&erase("--customer", "MARK-C"));
    assert_eq!(unsure.code, Some(1), "it was not confirmed: {unsure:?}");
    run(&[&erase("--customer", "MARK-C")[..], &["--yes"]].concat());
    run(&[&erase("--driver", "MARK-D")[..], &["--yes", "--json"]].concat());
    let ledger = run(&["privacy", "list", "--json"]);
    std::fs::write(fleet.dir().join("erasures.json"), &ledger).unwrap();
    let marks = async || {
        fleet
            .count(
                "SELECT (SELECT count(*) FROM orders x WHERE x::text LIKE '%MARK%')
                      + (SELECT count(*) FROM order_events x WHERE x::text LIKE '%MARK%')
                      + (SELECT count(*) FROM drivers x WHERE x::text LIKE '%MARK%')",
            )
            .await
    };
    assert_eq!(marks().await, 0);
    let pseudonym: String =
        sqlx::query_scalar("SELECT former_drivers[1] FROM orders").fetch_one(&app.core.db).await.unwrap();

    // The backup is restored: it knows the people, and of no erasure.
    sql("TRUNCATE erasures; DELETE FROM orders; DELETE FROM order_events; INSERT INTO orders SELECT * FROM backup.orders;
         INSERT INTO order_events SELECT * FROM backup.events; INSERT INTO drivers SELECT * FROM backup.drivers;
         DROP SCHEMA backup CASCADE")
    .await;
    assert!(marks().await > 0);
    run(&["privacy", "replay", "erasures.json", "--dry-run"]);
    assert!(marks().await > 0);
    run(&["privacy", "replay", "erasures.json", "--yes"]);
    assert_eq!(marks().await, 0);
    let again: String =
        sqlx::query_scalar("SELECT former_drivers[1] FROM orders").fetch_one(&app.core.db).await.unwrap();
    assert_eq!(again, pseudonym, "the same on every copy");
    let replayed: Value = serde_json::from_str(&run(&["privacy", "list", "--json"])).unwrap();
    assert_eq!(replayed.as_array().unwrap().len(), 2);
    run(&["privacy", "replay", "--yes"]);
    assert_eq!(run(&["check", "history"]).lines().filter(|line| !line.starts_with("ok")).count(), 0);
}
