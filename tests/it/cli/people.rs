//! The commands for people: their names, keys and data.

use serde_json::{Value, json};

use crate::support::{Fleet, run_binary};
use model::plain_text;

/// Texts that copy to the clipboard, clear the line, forge a line, or reverse the text.
const EVIL: [&str; 5] = ["\u{1b}]52;c;cm0=\u{7}", "\u{9b}2K", "a\nORD-2  REFUNDED", "\u{202e}DIAP", "\r"];

// Fault S17
#[tokio::test]
async fn erasures_are_replayed_onto_a_restored_backup() {
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
    // The backup is taken here.
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

    // The backup is restored: it contains the people and no erasure.
    sql("TRUNCATE erasures; DELETE FROM orders; DELETE FROM order_events;
         ALTER TABLE backup.orders DROP COLUMN on_trip, DROP COLUMN searching, DROP COLUMN searching_fleet,
             DROP COLUMN needs_decision, DROP COLUMN owes_refund, DROP COLUMN closed_status;
         INSERT INTO orders SELECT * FROM backup.orders;
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

// Fault S8
#[tokio::test]
async fn the_command_line_is_named_as_what_it_is() {
    let fleet = Fleet::start().await;
    let create = ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8"];
    assert_eq!(fleet.run(&create).code, Some(0));
    assert_eq!(fleet.run(&["order", "cancel", "ORD-1"]).code, Some(0));
    let actors: Vec<String> = sqlx::query_scalar("SELECT DISTINCT actor FROM order_events WHERE key_id IS NULL")
        .fetch_all(&fleet.app.core.db)
        .await
        .unwrap();
    assert!(actors.len() == 1 && actors[0].starts_with("cli:"), "{actors:?}");
}

// Fault S9
// Rule F5: The command line creates a driver's key only for a driver that exists, as HTTP does.
// Rule F7: The command line applies the rule of HTTP to reasons.
// Rule F34: An import of drivers or users records what it added and changed.
// Rule F40: Revoking the keys of a name or a driver, and removing drivers or users, requires consent and a reason,
// which is recorded.
#[tokio::test]
async fn without_redis_keys_drivers_and_users_are_managed() {
    let fleet = Fleet::start().await;
    let dead = [("DISPATCHQ_REDIS__URL", "redis://127.0.0.1:1/")];
    let run = |args: &[&str]| {
        let printed = run_binary(fleet.dir(), args, &dead);
        assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
        printed.stdout
    };
    let json = |args: &[&str]| -> Value { serde_json::from_str(&run(args)).unwrap() };
    std::fs::write(fleet.dir().join("users.jsonl"), "{\"id\": \"anna\", \"name\": \"Anna\", \"role\": \"dispatcher\"}")
        .unwrap();
    run(&["user", "import", "users.jsonl"]);
    run(&["user", "disable", "anna"]);
    assert!(json(&["user", "list", "--json"])[0]["disabled_at"].is_string());
    run(&["user", "enable", "anna"]);
    let refuse = |args: &[&str], code: i32, said: &str| {
        let refused = run_binary(fleet.dir(), args, &dead);
        assert!(refused.code == Some(code) && refused.stderr.contains(said), "{args:?}: {refused:?}");
    };
    refuse(&["user", "remove", "anna", "--yes"], 2, "--reason");
    refuse(&["user", "remove", "anna", "--reason", "left"], 1, "no terminal for the confirmation");
    refuse(&["user", "remove", "anna", "--reason", "\u{200b}", "--yes"], 2, "a visible one");
    // 500 characters, which are more bytes.
    run(&["user", "remove", "anna", "--reason", &"ก".repeat(500), "--yes"]);
    assert_eq!(json(&["user", "list", "--json"]), json!([]));

    let driver = json!({ "id": "D1", "service_types": ["RIDE"], "latitude": -6.2, "longitude": 106.8 });
    std::fs::write(fleet.dir().join("drivers.jsonl"), driver.to_string()).unwrap();
    for reason in ["begins", "again"] {
        let printed = run_binary(fleet.dir(), &["driver", "import", "drivers.jsonl", "--reason", reason], &[]);
        assert_eq!(printed.code, Some(0), "{printed:?}");
    }
    let create = |driver| ["apikey", "create", "x", "--role", "driver", "--driver", driver];
    refuse(&create("No Such"), 2, "letters of a to z");
    refuse(&create("NOSUCH"), 1, "no driver 'NOSUCH'");
    run(&["apikey", "create", "phone", "--role", "driver", "--driver", "D1", "--expires-in", "90days"]);
    run(&["apikey", "rotate", "--name", "phone", "--overlap", "1h"]);
    let keys = json(&["apikey", "list", "--driver", "D1", "--json"]);
    assert!(keys[0]["superseded_at"].is_string() && keys[0]["expires_at"].is_string(), "{keys}");
    let dry = json(&["apikey", "revoke", "--driver", "D1", "--dry-run", "--json"]);
    assert_eq!(dry["revoked"].as_array().unwrap().len(), 2);
    refuse(&["apikey", "revoke", "--name", "phone", "--yes"], 1, "--reason is required");
    refuse(&["apikey", "revoke", "--name", "phone", "--reason", "lost"], 1, "no terminal for the confirmation");
    refuse(&["apikey", "revoke", "--driver", "D1", "--reason", "lost"], 1, "no terminal for the confirmation");
    let revoke = ["apikey", "revoke", "--name", "phone", "--reason", "lost phone", "--yes"];
    assert_eq!(run(&revoke).lines().count(), 2);
    let reasons =
        sqlx::query_scalar::<_, String>("SELECT DISTINCT reason FROM staff_actions WHERE action = 'KEY_REVOKED'");
    assert_eq!(reasons.fetch_all(&fleet.app.core.db).await.unwrap(), ["lost phone"]);
    assert_eq!(json(&["apikey", "list", "--json"]), json!([]));
    assert!(run(&["apikey", "list", "--all"]).contains("revoked"));
    refuse(&["apikey", "revoke", "--driver", "D1", "--reason", "left", "--yes"], 1, "no such live key");

    // The key of a disabled driver is refused. It would be accepted again after the driver is enabled.
    run(&["apikey", "create", "watch", "--role", "driver", "--driver", "D1"]);
    run(&["driver", "disable", "D1", "--reason", "lost"]);
    assert_eq!(run(&["apikey", "revoke", "--driver", "D1", "--reason", "lost phone", "--yes"]).lines().count(), 1);
    run(&["driver", "enable", "D1", "--reason", "found"]);
    refuse(&["apikey", "revoke", "--driver", "D1", "--reason", "left", "--yes"], 1, "no such live key");

    run(&["apikey", "create", "tablet", "--role", "driver", "--driver", "D1"]);
    refuse(&["driver", "remove", "D1", "--yes"], 2, "--reason");
    refuse(&["driver", "remove", "D1", "--reason", "left"], 1, "no terminal for the confirmation");
    assert!(run(&["driver", "remove", "D1", "--reason", "moved away", "--yes"]).contains("1 keys are revoked"));
    let recorded = sqlx::query_scalar::<_, String>(
        "SELECT concat_ws(' ', action, left(reason, 10), old_value ->> 'service_types', new_value ->> 'service_types')
         FROM staff_actions WHERE subject = 'D1' OR action IN ('USER_SAVED', 'USER_REMOVED') OR reason = 'moved away'
         ORDER BY id",
    );
    let wanted = [
        "USER_SAVED",
        "USER_REMOVED กกกกกกกกกก",
        "DRIVER_CREATED begins [\"RIDE\"]",
        "DRIVER_DISABLED lost",
        "DRIVER_ENABLED found",
        "KEY_REVOKED moved away",
        "DRIVER_REMOVED moved away [\"RIDE\"]",
    ];
    assert_eq!(recorded.fetch_all(&fleet.app.core.db).await.unwrap(), wanted, "what only moves is not recorded");
}

// Rule F23: The command line confirms with --take-over.
#[tokio::test]
async fn command_line_confirms_a_takeover() {
    let fleet = Fleet::start().await;
    sqlx::query("SELECT dispatchq_create_order('ORD-1', 'RIDE', -6.2, 106.8, owner => 'shop')")
        .execute(&fleet.app.core.db)
        .await
        .unwrap();
    let refused = fleet.run(&["apikey", "create", "shop", "--role", "producer"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("--take-over"), "{refused:?}");
    let made = fleet.run(&["apikey", "create", "shop", "--role", "producer", "--take-over"]);
    assert_eq!(made.code, Some(0), "{made:?}");
}

// Fault S4
#[tokio::test]
async fn what_is_stored_already_is_printed_escaped() {
    let fleet = Fleet::start().await;
    let create = ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8"];
    assert_eq!(fleet.run(&create).code, Some(0));
    // A partner or a program that writes SQL may have stored such a text.
    for (n, evil) in EVIL.iter().enumerate() {
        for statement in [
            "UPDATE order_events SET detail = $1, actor = $1",
            "UPDATE orders SET held_for_review = true, held_reason = $1, service_type = $1, job_id = $1",
            "INSERT INTO api_keys (id, name, sha256, role) SELECT gen_random_uuid(), $1, sha256($1::bytea), 'support'",
            "INSERT INTO users (id, name, role, channel) SELECT md5($1), $1, 'support', $1",
            "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by, ack_note)
             SELECT 'ORD-1', $1, '', '{}', now(), now(), $1, $1",
            "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, last_error,
                                 created_at)
             SELECT 'ORD-1', $1, $1, '', '{}', 'dead', now(), now(), $1, now()",
            "INSERT INTO admission_audit (actor, what, reason) SELECT $1, $1, $1",
        ] {
            sqlx::query(statement).bind(evil).execute(&fleet.app.core.db).await.unwrap();
        }
        let message = (n + 1).to_string();
        for args in [
            &["order", "show", "ORD-1"][..],
            &["order", "list"],
            &["order", "list", "--json"],
            &["order", "timeline", "ORD-1"],
            &["order", "timeline", "ORD-1", "--json"],
            &["order", "explain", "ORD-1"],
            &["apikey", "list"],
            &["apikey", "list", "--json"],
            &["user", "list"],
            &["alert", "list"],
            &["outbox", "list"],
            &["outbox", "show", &message],
            &["area", "changes"],
        ] {
            let printed = fleet.run(args);
            assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
            for line in printed.stdout.lines() {
                assert!(plain_text::is_plain(line), "{args:?}: {line:?}");
                assert!(!line.trim_start().starts_with("ORD-2"), "{args:?}: a forged line: {line:?}");
            }
        }
    }
}

// Fault S4
#[tokio::test]
async fn the_command_line_takes_no_such_text_either() {
    let fleet = Fleet::start().await;
    for args in [
        &["order", "cancel", "ORD-1", "--reason", EVIL[0]][..],
        &["order", "refund", "start", "ORD-1", "--note", EVIL[3]],
        &["alert", "ack", "1", "--note", EVIL[2]],
    ] {
        assert_eq!(fleet.run(args).code, Some(2), "{args:?}");
    }
    assert_eq!(fleet.run(&["apikey", "create", EVIL[0], "--role", "support"]).code, Some(1));
}
