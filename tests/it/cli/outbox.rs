//! The commands about messages, alerts and subscriptions.

use axum::http::StatusCode;
use crate::support::{Fleet, Receiver, TestApp, by, secs};
use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter, OutboxMessage},
};
use maintenance::recovery::reconciler;
use model::messages::OutboxState;
use queue::store::JobState;

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

// USES crates/notify/tests/it/steps.rs
use std::{collections::BTreeSet, net::IpAddr, sync::Arc};
use axum::http::StatusCode;
use model::{messages::ProducerEvent, order::OrderStep};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use crate::support::{Api, Receiver, TestApp, by, eventually, run_binary, secs};
use accounts::api_keys::AccountRole;
use foundation::outbound;
use maintenance::recovery::reconciler;
use model::decide::money;
use queue::Outcome;
use settings::{Config, ProducerConfig};

#[test]
fn a_subscription_that_could_leak_or_be_forged_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let check = |url: &str, more: &str| {
        let text = format!("[producers.shop]\nurl = \"{url}\"\nevents = [\"order.created\"]\n{more}\n");
        std::fs::write(dir.path().join("config.toml"), text).unwrap();
        run_binary(dir.path(), &["config", "check"], &[])
    };
    let signed = format!("secret = \"{SECRET}\"");
    let private = format!("{signed}\nallow_private = true");
    for (url, more, said) in [
        ("http://shop.example.com/", &signed, "must be https"),
        ("http://10.0.0.5/", &private, "must be https"),
        ("https://10.0.0.5/", &signed, "allow_private"),
        ("https://[fd00::1]/", &signed, "allow_private"),
        ("https://169.254.169.254/", &signed, "allow_private"),
        ("http://localhost:8080/", &signed, "allow_private"),
        ("https://shop.example.com/", &String::new(), "secret is missing"),
    ] {
        let refused = check(url, more);
        assert_eq!(refused.code, Some(1), "{url}: {refused:?}");
        assert!(refused.stderr.contains("producers.shop") && refused.stderr.contains(said), "{url}: {refused:?}");
    }
    for (url, more) in
        [("https://shop.example.com/", &signed), ("https://10.0.0.5/", &private), ("http://127.0.0.1:8080/", &private)]
    {
        assert_eq!(check(url, more).code, Some(0), "{url}");
    }
    let mut config = Config::defaults();
    subscribe(&mut config, "shop", "https://shop.example.com/HIDDEN-PATH".to_owned(), &OrderStep::ALL);
    let shown = format!("{} {:?}", serde_json::to_string(&config.without_secrets()).unwrap(), config.producers);
    assert!(!shown.contains(SECRET) && !shown.contains("HIDDEN-PATH"), "{shown}");
}

// USES crates/notify/tests/it/delivery.rs
use std::sync::Arc;
use axum::http::StatusCode;
use jobs::SendNotification;
use standardwebhooks::Webhook;
use tokio::task::JoinSet;
use crate::support::{Fleet, Receiver, TestApp, eventually, id, lasting_transaction, secs};
use model::order::OfferState;
use queue::{LeasedJob, NewJob, Outcome};
use settings::{ChannelConfig, WebhookConfig};

#[tokio::test]
async fn s16_replay_of_dead_messages_needs_consent() {
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
