//! The commands for messages, alerts and subscriptions.

use crate::support::Fleet;

#[tokio::test]
async fn the_command_line_lists_acknowledges_and_replays() {
    let fleet = Fleet::start().await;
    assert_eq!(fleet.run(&["reconcile", "run"]).code, Some(0));
    let create = ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8"];
    assert_eq!(fleet.run(&[&create[..], &["--payment-status", "PAID"]].concat()).code, Some(0));
    assert_eq!(fleet.run(&["order", "cancel", "ORD-1", "--yes"]).code, Some(0));

    let json = |args: &[&str]| -> serde_json::Value {
        let printed = fleet.run(args);
        assert_eq!(printed.code, Some(0), "{printed:?}");
        serde_json::from_str(&printed.stdout).unwrap()
    };
    let open = json(&["alert", "list", "--open", "--json"]);
    assert_eq!((&open[0]["kind"], &open[0]["order_id"]), (&"MANUAL_REFUND_REQUIRED".into(), &"ORD-1".into()));
    assert!(fleet.run(&["alert", "list"]).stdout.contains("MANUAL_REFUND_REQUIRED"));
    assert_eq!(fleet.run(&["alert", "ack", "1"]).code, Some(1), "a reason must be given");
    let acked = fleet.run(&["alert", "ack", "--order", "ORD-1", "--reason", "refunded", "--yes"]);
    assert!(acked.stdout.starts_with("Alert 1 (MANUAL_REFUND_REQUIRED of ORD-1) is acknowledged by cli:"), "{acked:?}");
    assert_eq!(json(&["alert", "list", "--open", "--json"]), serde_json::json!([]));
    let nothing = fleet.run(&["alert", "ack", "99", "--note", "x"]);
    assert!(nothing.code == Some(1) && nothing.stderr.contains("dispatchq alert list"), "{nothing:?}");

    let none = fleet.run(&["outbox", "replay", "--all"]);
    assert!(none.code == Some(1) && none.stderr.contains("outbox list --state dead"), "{none:?}");
    assert_eq!(fleet.run(&["outbox", "replay"]).code, Some(2));
    sqlx::query("UPDATE outbox SET state = 'dead', last_error = 'the receiver answered 404'")
        .execute(&fleet.app.core.db)
        .await
        .unwrap();
    assert!(fleet.run(&["doctor"]).stdout.contains("outbox list --state dead"));
    assert_eq!(json(&["outbox", "list", "--state", "dead", "--channel", "log", "--json"])[0]["order_id"], "ORD-1");
    assert!(fleet.run(&["outbox", "replay", "--channel", "log", "--dry-run"]).stdout.contains("404"));
    let unsure = fleet.run(&["outbox", "replay", "--channel", "log"]);
    assert!(unsure.code == Some(1) && unsure.stderr.contains("--dry-run"), "{unsure:?}");
    let sure = fleet.run(&["outbox", "replay", "--channel", "log", "--reason", "it is back", "--yes"]);
    assert_eq!(sure.stdout, "1 messages are sent again.\n");
    assert_eq!(json(&["outbox", "list", "--json"])[0]["state"], "pending");
    assert_eq!(json(&["outbox", "show", "1", "--json"])["log"][0]["what"], "REPLAY");
    assert!(fleet.run(&["outbox", "show", "1"]).stdout.contains("REPLAY"));
}

// Fault S16
#[tokio::test]
async fn replay_of_dead_messages_needs_consent() {
    let fleet = Fleet::start().await;
    sqlx::query(
        "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
         SELECT 'ORD-' || n % 2, 'ORDER_CANCELLED', 'log', n::text, '{}', 'dead', dispatchq_now(), dispatchq_now(),
                dispatchq_now() FROM generate_series(1, 1200) n",
    )
    .execute(&fleet.app.core.db)
    .await
    .unwrap();
    let would = fleet.run(&["outbox", "replay", "--all", "--dry-run"]);
    assert!(would.stdout.contains("1200 messages would be sent again"), "{would:?}");
    let unsure = fleet.run(&["outbox", "replay", "--all"]);
    assert!(unsure.code == Some(1) && unsure.stderr.contains("--yes"), "{unsure:?}");
    let another = fleet.run(&["outbox", "replay", "1", "2", "--order", "ORD-9", "--reason", "it is back"]);
    assert!(another.code == Some(1) && another.stderr.contains("no such message is dead"), "{another:?}");
    let sure = fleet.run(&["outbox", "replay", "--order", "ORD-1", "--reason", "it is back", "--yes"]);
    assert_eq!(sure.stdout, "600 messages are sent again.\n", "{sure:?}");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox WHERE state = 'dead'")
        .fetch_one(&fleet.app.core.db)
        .await
        .unwrap();
    assert_eq!(left, 600);
}
