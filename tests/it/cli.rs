//! Output of the command line.

mod advice;
mod arguments;
mod bindings;
mod both_ways;
mod bulk;
mod contents;
mod days;
mod first_use;
mod operator;
mod outbox;
mod people;
mod proof;
mod remote;

use std::path::Path;

use dispatchq::cli;
use serde_json::Value;

use crate::support::{Fleet, run_binary};

/// Returns the help of a command and of all its subcommands.
fn help(command: &clap::Command, path: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let args: Vec<_> = path.iter().copied().chain(["--help"]).collect();
    let printed = run_binary(dir.path(), &args, &[]);
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{path:?}");
    let mut text = format!("$ dispatchq {}\n{}", args.join(" "), printed.stdout);
    for below in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let path: Vec<_> = path.iter().copied().chain([below.get_name()]).collect();
        text += &format!("\n{}", help(below, &path));
    }
    text
}

/// After an intended change run `INSTA_UPDATE=always cargo test --test it help` and check the difference.
#[test]
fn help_is_as_it_was() {
    let cli = cli::command();
    let dir = tempfile::tempdir().unwrap();
    insta::assert_snapshot!("help", run_binary(dir.path(), &["--help"], &[]).stdout);
    for command in cli.get_subcommands().filter(|c| c.get_name() != "help") {
        let name = command.get_name();
        insta::assert_snapshot!(format!("help_{name}"), help(command, &[name]));
    }
}

#[test]
fn version_names_commit_and_schema() {
    let migrations = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations")).unwrap();
    let numbers = migrations.filter_map(|entry| entry.unwrap().file_name().to_str()?.get(..4)?.parse::<u32>().ok());
    let text = format!(
        "dispatchq {} \\(commit (unknown|[0-9a-f]{{12}}), schema {}\\)\n",
        env!("CARGO_PKG_VERSION"),
        numbers.max().unwrap()
    );
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &["--version"], &[]);
    assert!(regex_lite::Regex::new(&format!("^{text}$")).unwrap().is_match(&printed.stdout), "{text}: {printed:?}");
}

/// Commands that work only on this machine, with their requirements.
const LOCAL: [&[&str]; 15] = [
    &["migrate"],
    &["config", "show"],
    &["config", "check"],
    &["doctor"],
    &["health"],
    &["export", "--day", "2026-03-01", "--format", "csv"],
    &["dev"],
    &["run"],
    &["serve"],
    &["work"],
    &["replay"],
    &["partner-sim"],
    &["provider-sim"],
    &["completions", "bash"],
    &["man", "pages"],
];

#[test]
fn local_commands_have_no_options_of_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = ["--api", "http://127.0.0.1:1"];
    for command in LOCAL {
        let help = run_binary(dir.path(), &[command, &["--help"]].concat(), &[]);
        assert!(help.code == Some(0) && !help.stdout.contains("--api <URL>"), "{command:?}: {help:?}");
        for (options, named) in [(&nowhere[..], "--api"), (&["--key-file", "x"], "--key-file")] {
            for args in [[command, options].concat(), [options, command].concat()] {
                let refused = run_binary(dir.path(), &args, &[]);
                let text = format!("dispatchq {} has no {named}", command[0]);
                assert!(refused.code == Some(2) && refused.stderr.contains(&text), "{args:?}: {refused:?}");
            }
        }
    }
    let bench = run_binary(dir.path(), &["bench", "--help"], &[]);
    assert!(!bench.stdout.contains("--api <URL>"), "{bench:?}");
    let order = run_binary(dir.path(), &["order", "list", "--help"], &[]);
    assert!(order.stdout.contains("--api <URL>"), "{order:?}");
}

/// Runs a command that must succeed and print exactly one JSON value.
fn json(fleet: &Fleet, args: &[&str]) -> Value {
    let printed = fleet.run(args);
    assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
    serde_json::from_str(&printed.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", printed.stdout))
}

#[tokio::test]
async fn every_read_command_speaks_json() {
    let fleet = Fleet::start().await;
    let lines = "{\"id\": \"D-1\", \"service_types\": [\"RIDE\"], \"latitude\": -6.2, \"longitude\": 106.8}\n";
    std::fs::write(fleet.dir().join("drivers.jsonl"), lines).unwrap();
    assert_eq!(fleet.run(&["driver", "import", "drivers.jsonl"]).stdout, "1 drivers imported.\n");
    std::fs::write(fleet.dir().join("users.jsonl"), "{\"id\": \"anna\", \"name\": \"Anna\", \"role\": \"dispatcher\"}")
        .unwrap();
    assert_eq!(fleet.run(&["user", "import", "users.jsonl"]).stdout, "1 users imported.\n");

    let put_back = json(&fleet, &["reconcile", "run", "--json"]);
    assert_eq!(put_back["rebuild"], true);
    let key = json(&fleet, &["apikey", "create", "shop", "--role", "producer", "--json"]);
    assert!(key["key"].as_str().unwrap().starts_with("dq_"));
    let create =
        ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "-6.2", "--lng", "106.8", "--json"];
    assert_eq!(json(&fleet, &create)["status"], "DISPATCHING");

    assert_eq!(json(&fleet, &["order", "show", "ORD-1", "--json"])["order_id"], "ORD-1");
    assert_eq!(json(&fleet, &["order", "list", "--open", "--json"])[0]["order_id"], "ORD-1");
    assert_eq!(json(&fleet, &["order", "timeline", "ORD-1", "--json"])[0]["reason"], "ORDER_CREATED");
    assert_eq!(json(&fleet, &["apikey", "list", "--json"])[0]["name"], "shop");
    assert_eq!(json(&fleet, &["driver", "list", "--json"])[0]["id"], "D-1");
    assert_eq!(json(&fleet, &["user", "list", "--json"])[0]["role"], "dispatcher");
    assert_eq!(json(&fleet, &["queue", "list", "--json"]).as_array().unwrap().len(), jobs::queues::ALL.len());
    assert_eq!(json(&fleet, &["job", "list", "dispatch-queue", "--json"])[0]["id"], "dispatch:ORD-1:1");
    assert_eq!(json(&fleet, &["job", "show", "lifetime:ORD-1", "--json"])["state"], "due");
    assert_eq!(json(&fleet, &["check", "history", "--json"])["violations"], Value::Array(Vec::new()));
    assert_eq!(json(&fleet, &["reconcile", "run", "--dry-run", "--json"])["missing"], Value::Array(Vec::new()));
    assert_eq!(json(&fleet, &["queue", "stats", "--json"])["lateness"]["count"], 0);
    let shards = json(&fleet, &["shards", "list", "--json"]);
    assert_eq!((shards["generation"].as_u64(), shards["shards"].as_u64()), (Some(1), Some(1)));
    assert_eq!((shards["settled"].as_bool(), shards["each"].as_array().unwrap().len()), (Some(true), 1));
    let only = &shards["each"][0];
    assert_eq!(
        (only["shard"].as_u64(), only["dead"].as_u64(), only["epoch"].as_bool()),
        (Some(0), Some(0), Some(true))
    );
    assert!(only["due"].as_u64() >= Some(1) && only["leased"] == 0, "{only}");
    assert_eq!(json(&fleet, &["worker", "list", "--json"]), Value::Array(Vec::new()));
    assert_eq!(json(&fleet, &["cleanup", "run", "--dry-run", "--json"])["orders"], 0);
    assert_eq!(json(&fleet, &["config", "show", "--json"])["dispatch"]["attempt"], "1s");
    let findings = json(&fleet, &["doctor", "--json"]);
    assert!(findings.as_array().unwrap().iter().all(|f| f["verdict"] != "fail"), "{findings}");

    assert_eq!(fleet.run(&["order", "assign", "ORD-1", "--driver", "D-1"]).stdout, "ORD-1 is DRIVER_ASSIGNED.\n");
    assert_eq!(fleet.run(&["order", "cancel", "ORD-1"]).stdout, "ORD-1 is CANCELLED_BY_USER.\n");
    assert_eq!(fleet.run(&["order", "cancel", "ORD-1"]).stdout, "ORD-1 is CANCELLED_BY_USER.\n");
    assert_eq!(fleet.run(&["order", "redispatch", "ORD-1"]).code, Some(1));
    assert_eq!(fleet.run(&["check", "history"]).code, Some(0));
}

#[tokio::test]
async fn secrets_are_not_printed() {
    let fleet = Fleet::start().await;
    let settings = [
        ("DISPATCHQ_REDIS__URL", "redis://:hunter2@127.0.0.1:1"),
        ("DISPATCHQ_DATABASE__URL", "postgres://u:hunter2@h/d"),
    ];
    for args in [&["config", "show"][..], &["config", "show", "--json"], &["doctor"], &["work"]] {
        let printed = run_binary(fleet.dir(), args, &settings);
        assert!(!format!("{printed:?}").contains("hunter2"), "{args:?}: {printed:?}");
    }
}

#[tokio::test]
async fn a_broken_history_ends_the_check_with_1() {
    let fleet = Fleet::start().await;
    fleet.run(&["reconcile", "run"]);
    fleet.run(&["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "0", "--lng", "0"]);
    sqlx::query("DELETE FROM order_events").execute(&fleet.app.core.db).await.unwrap();
    let printed = fleet.run(&["check", "history"]);
    assert_eq!(printed.code, Some(1));
    assert!(printed.stdout.contains("VIOLATION  unbroken_chain: ORD-1"), "{printed:?}");
}
