//! `dispatchq binding` and `dispatchq server`, with a worker and real calls to a provider.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use provider_sim::{ProviderSim, ProviderSimOptions};
use serde_json::{Value, json};

use super::json;
use crate::support::{Fleet, eventually, run_binary_with_input};

const SETTINGS: &str = "[providers.acme]\napi_key = \"provider-sim-key\"\nhosts = [\"127.0.0.1\"]\nallow_private = true\n\
    [bindings]\notp_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n";

/// Starts a fleet without workers, a provider, and its server S1.
async fn open() -> (Fleet, ProviderSim) {
    let fleet = Fleet::with("1h", SETTINGS).await;
    let sim = ProviderSim::start(&ProviderSimOptions::default()).await.unwrap();
    assert_eq!(fleet.run(&["reconcile", "run"]).code, Some(0));
    let made = fleet.run(&["server", "set", "S1", "--provider", "acme", "--url", &sim.server_url("S1")]);
    assert!(made.stdout.starts_with("S1 is enabled: acme at http://"), "{made:?}");
    (fleet, sim)
}

#[tokio::test]
async fn servers_are_set_and_listed() {
    let (fleet, sim) = open().await;
    let unknown = fleet.run(&["server", "set", "S2", "--max-concurrent", "3"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("create it: dispatchq server set S2"), "{unknown:?}");
    let nothing = fleet.run(&["server", "set", "S1"]);
    assert!(nothing.code == Some(1) && nothing.stderr.contains("specify a setting"), "{nothing:?}");
    let nowhere = fleet.run(&["server", "set", "S2", "--provider", "nowhere", "--url", &sim.server_url("S2")]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("known are acme"), "{nowhere:?}");

    let changed = json(&fleet, &["server", "set", "S1", "--max-concurrent", "4", "--enabled", "false", "--json"]);
    assert_eq!((&changed["max_concurrent"], &changed["enabled"]), (&json!(4), &json!(false)));
    let listed = json(&fleet, &["server", "list", "--json"]);
    assert_eq!((&listed[0]["id"], &listed[0]["in_use"], &listed[0]["waiting"]), (&json!("S1"), &json!(0), &json!(0)));
    let table = fleet.run(&["server", "list"]).stdout;
    assert!(table.contains("0 of 4") && table.contains(&sim.server_url("S1")), "{table}");

    assert_eq!(fleet.run(&["server", "limit"]).stdout, "At most 50 calls may be open, as configured.\n");
    assert_eq!(fleet.run(&["server", "limit", "60"]).stdout, "At most 60 calls may be open, set by an operator.\n");
    assert_eq!(json(&fleet, &["server", "limit", "--json"])["max_concurrent_calls"], 60);
    let default = fleet.run(&["server", "limit", "--default"]);
    assert_eq!(default.stdout, "At most 50 calls may be open, as configured.\n");
    assert_eq!(fleet.run(&["server", "limit", "0"]).code, Some(2));
}

#[tokio::test]
async fn bindings_are_changed_one_by_one_and_many_at_once() {
    let (fleet, _sim) = open().await;
    let bad = fleet.run(&["binding", "create", "B-1", "--server", "S1", "--account", "A-1", "--set", "max_failurs=5"]);
    assert!(bad.code == Some(1) && bad.stderr.contains("settings are interval_ms, "), "{bad:?}");
    let homeless = fleet.run(&["binding", "create", "B-1", "--server", "S9", "--account", "A-1"]);
    assert!(homeless.code == Some(1) && homeless.stderr.contains("dispatchq server set S9"), "{homeless:?}");
    for id in ["B-1", "B-2", "B-3"] {
        let create =
            ["binding", "create", id, "--server", "S1", "--account", "A-1", "--set", "max_failures=5", "--json"];
        assert_eq!(json(&fleet, &create)["config"]["max_failures"], 5);
    }
    let said = |args: &[&str]| {
        let printed = fleet.run(&[&["binding"], args].concat());
        assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
        printed.stdout
    };
    assert_eq!(said(&["start", "B-1"]), "B-1 is now RUNNING.\n");
    assert_eq!(said(&["start", "B-1"]), "B-1 is RUNNING already.\n");
    assert_eq!(json(&fleet, &["binding", "show", "B-1", "--json"])["state"], "RUNNING");
    assert!(said(&["show", "B-1"]).contains("RUNNING"));

    // The state stays the same: no worker runs, and a dry run changes nothing.
    assert_eq!(said(&["start", "--server", "S1", "--dry-run"]), "2 bindings would be started.\n1 binding unchanged.\n");
    let unasked = fleet.run(&["binding", "start", "--all"]);
    assert!(unasked.code == Some(1) && unasked.stderr.contains("--dry-run, then add --yes"), "{unasked:?}");
    assert_eq!(json(&fleet, &["binding", "list", "--state", "running", "--json"]).as_array().unwrap().len(), 1);
    assert_eq!(said(&["start", "--state", "STOPPED", "--yes"]), "2 bindings started.\n");
    assert_eq!(said(&["pause", "B-2", "B-3"]), "B-2 is now PAUSED.\nB-3 is now PAUSED.\n");
    let refused = fleet.run(&["binding", "start", "--all", "--yes"]);
    assert_eq!(refused.code, Some(1));
    assert_eq!(refused.stdout, "0 bindings started.\n1 binding unchanged.\n");
    assert_eq!(refused.stderr.lines().filter(|line| line.contains("is PAUSED")).count(), 2, "{refused:?}");
    assert!(refused.stderr.contains("B-3: the binding is PAUSED: resume it"), "{refused:?}");
    let resumed = json(&fleet, &["binding", "resume", "--state", "PAUSED", "--yes", "--json"]);
    assert_eq!((&resumed["changed"], &resumed["refused"]), (&json!(["B-2", "B-3"]), &json!([])));
    assert_eq!(said(&["list", "--state", "PAUSED"]), "No such bindings. Create one: dispatchq binding create --help\n");

    let running = fleet.run(&["binding", "delete", "B-1"]);
    assert!(running.code == Some(1) && running.stderr.contains("stop it"), "{running:?}");
    assert_eq!(said(&["stop", "--all", "--yes"]), "3 bindings stopped.\n");
    assert_eq!(said(&["delete", "B-1"]), "B-1 is deleted.\n");
    assert_eq!(said(&["delete", "B-1"]), "B-1 is deleted already.\n");
    assert_eq!(said(&["start", "--state", "PAUSED", "--yes"]), "No such bindings.\n");
    let nowhere = fleet.run(&["binding", "start", "--server", "S9", "--yes"]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("dispatchq server set S9"), "{nowhere:?}");
    let none = fleet.run(&["binding", "start", "B-9"]);
    assert!(none.code == Some(1) && none.stderr.contains("dispatchq binding list"), "{none:?}");
    assert_eq!(fleet.run(&["binding", "start"]).code, Some(2));
    assert_eq!(fleet.run(&["binding", "start", "B-1", "--all"]).code, Some(2));
}

#[tokio::test]
async fn binding_takes_its_otp_from_standard_input() {
    let (fleet, sim) = open().await;
    sim.change_knobs(|knobs| knobs.otp_rate = "1".parse().unwrap()).unwrap();
    let create = ["binding", "create", "B-1", "--server", "S1", "--account", "A-1", "--json"];
    json(&fleet, &create);
    fleet.run(&["binding", "start", "B-1"]);
    let explained = fleet.run(&["binding", "explain", "B-1"]).stdout;
    for words in ["B-1 is RUNNING, IDLE.", "cycle:B-1:1  starts the next cycle", "no worker serves binding-queue"] {
        assert!(explained.contains(words), "no '{words}' in: {explained}");
    }

    let _worker = fleet.running_worker("w1").await;
    fleet.reach(1, "SELECT count(*) FROM bindings WHERE phase = 'WAITING_OTP'").await;
    let explained = json(&fleet, &["binding", "explain", "B-1", "--json"]);
    assert_eq!(explained["to_do"][0]["command"], "dispatchq binding otp B-1 --trx B-1.1");
    assert_eq!((&explained["claim"], &explained["next"]["job"]), (&Value::Null, &json!("otp:B-1:1")));
    assert_eq!(explained["events"][0]["kind"], "otp_wanted");

    let otp = ["binding", "otp", "B-1", "--trx", "B-1.1"];
    let empty = run_binary_with_input(fleet.dir(), &otp, "\n");
    assert!(empty.code == Some(1) && empty.stderr.contains("no OTP on standard input"), "{empty:?}");
    let foreign = ["binding", "otp", "B-1", "--trx", "B-2.1"];
    assert_eq!(run_binary_with_input(fleet.dir(), &foreign, "123456\n").code, Some(1));
    let stored = run_binary_with_input(fleet.dir(), &otp, "123456\n");
    assert_eq!((stored.code, stored.stdout.as_str()), (Some(0), "The OTP for B-1.1 is stored.\n"), "{stored:?}");
    fleet.reach(1, "SELECT count(*) FROM transactions WHERE status = 'SUKSES'").await;

    fleet.run(&["binding", "stop", "B-1"]);
    eventually("it stands", || async { json(&fleet, &["binding", "show", "B-1", "--json"])["state"] == "STOPPED" })
        .await;
    let done = json(&fleet, &["binding", "transactions", "B-1", "--status", "sukses", "--json"]);
    assert_eq!(done[0]["trx_id"], "B-1.1");
    let shown = json(&fleet, &["binding", "transactions", "B-1", "--cycle", "1", "--json"]);
    let actions: Vec<_> = shown["calls"].as_array().unwrap().iter().map(|call| call["action"].clone()).collect();
    assert_eq!(actions, ["start", "otp"]);
    let table = fleet.run(&["binding", "transactions", "B-1", "--cycle", "1"]).stdout;
    assert!(table.starts_with("B-1.1 on S1 for A-1: SUKSES\n") && !table.contains("123456"), "{table}");
    let explained = fleet.run(&["binding", "explain", "B-1"]).stdout;
    assert!(explained.contains("STOPPED (manual_stop)") && explained.contains("dispatchq binding start B-1"));
}

/// The caller has an API key and no server password.
#[tokio::test]
async fn binding_is_managed_over_the_api() {
    let (fleet, sim) = open().await;
    sim.change_knobs(|knobs| knobs.otp_rate = "1".parse().unwrap()).unwrap();
    let (_api, url) = fleet.api().await;
    let dir = tempfile::tempdir().unwrap();
    let key = fleet.run(&["apikey", "create", "ops", "--role", "operator"]).stdout;
    fs::write(dir.path().join("key"), key).unwrap();
    fs::set_permissions(dir.path().join("key"), Permissions::from_mode(0o600)).unwrap();
    let over_api = |args: &[&str]| {
        let args = [&["--api", &url, "--key-file", "key", "binding"], args].concat();
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |args: &[&str], input: &str| {
        let args = over_api(args);
        run_binary_with_input(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>(), input)
    };
    let apart = "interval_ms=[60000,60000]";
    let create =
        ["create", "B-1", "--server", "S1", "--account", "A-1", "--set", "max_failures=5", "--set", apart, "--json"];
    let made: Value = serde_json::from_str(&run(&create, "").stdout).unwrap();
    assert_eq!((&made["state"], &made["config"]["max_failures"]), (&json!("STOPPED"), &json!(5)));
    assert!(run(&create, "").stderr.contains("(409 BINDING_EXISTS)"));
    assert_eq!(run(&["start", "B-1"], "").code, Some(0));

    let _worker = fleet.running_worker("w1").await;
    fleet.reach(1, "SELECT count(*) FROM bindings WHERE phase = 'WAITING_OTP'").await;
    // The worker may still write after its commit, and only one of the two commands may see it.
    eventually("both say the same", || async {
        let explained = run(&["explain", "B-1"], "").stdout;
        assert!(explained.contains("dispatchq binding otp B-1 --trx B-1.1"), "{explained}");
        explained == fleet.run(&["binding", "explain", "B-1"]).stdout
    })
    .await;
    let otp = ["otp", "B-1", "--trx", "B-1.1"];
    assert!(run(&otp, "\n").stderr.contains("no OTP on standard input"));
    let stored = run(&otp, "123456\n");
    assert_eq!((stored.code, stored.stdout.as_str()), (Some(0), "The OTP for B-1.1 is stored.\n"), "{stored:?}");
    fleet.reach(1, "SELECT count(*) FROM transactions WHERE status = 'SUKSES'").await;

    assert_eq!(run(&["stop", "B-1"], "").code, Some(0));
    fleet.reach(1, "SELECT count(*) FROM bindings WHERE state = 'STOPPED' AND phase = 'IDLE'").await;
    for args in
        [&["--cycle", "1"][..], &["--cycle", "1", "--json"], &["--status", "sukses"], &["--limit", "1", "--json"]]
    {
        let args = [&["transactions", "B-1"], args].concat();
        let local = fleet.run(&[&["binding"], &args[..]].concat());
        assert!(local.code == Some(0) && local.stdout.contains("B-1.1"), "{local:?}");
        assert_eq!(run(&args, "").stdout, local.stdout, "{args:?}");
    }
    let explained: Value = serde_json::from_str(&run(&["explain", "B-1", "--json"], "").stdout).unwrap();
    let events = explained["events"].as_array().unwrap();
    let handed_in = events.iter().find(|event| event["kind"] == "otp_submitted").unwrap();
    assert_eq!(handed_in["detail"], Value::Null, "no digest leaves the tables");
    assert_eq!(json(&fleet, &["binding", "explain", "B-1", "--json"])["events"], explained["events"]);
    assert!(run(&["explain", "B-2"], "").stderr.contains("(404 BINDING_NOT_FOUND)"));

    // The list leaves out a row of another version. An error message names the row.
    fleet.count("WITH new AS (UPDATE bindings SET config = config || '{\"of_tomorrow\": 1}' RETURNING id) SELECT count(*) FROM new").await;
    for listed in [run(&["list", "--json"], ""), fleet.run(&["binding", "list", "--json"])] {
        assert_eq!((listed.code, listed.stdout.as_str()), (Some(0), "[]\n"), "{listed:?}");
        assert!(listed.stderr.starts_with("B-1 cannot be read by this version: "), "{listed:?}");
    }
    fleet
        .count(
            "WITH new AS (UPDATE bindings SET config = config - 'of_tomorrow' RETURNING id) SELECT count(*) FROM new",
        )
        .await;
    assert_eq!(run(&["delete", "B-1"], "").stdout, "B-1 is deleted.\n");
}

#[tokio::test]
async fn a_dry_run_is_stored_and_run_by_its_id() {
    let (fleet, _sim) = open().await;
    let create = |id: &str| {
        let made = fleet.run(&["binding", "create", id, "--server", "S1", "--account", "A-1"]);
        assert_eq!(made.code, Some(0), "{made:?}");
    };
    create("B-1");
    create("B-2");
    let planned = json(&fleet, &["binding", "start", "--all", "--dry-run", "--reason", "they have money", "--json"]);
    assert_eq!((&planned["state"], &planned["changed"]), (&json!("PLANNED"), &json!(["B-1", "B-2"])));
    let id = planned["plan"].as_str().unwrap();
    create("B-3");
    let shown = json(&fleet, &["plan", "show", id, "--items", "--json"]);
    assert_eq!((&shown["plan"]["reason"], &shown["plan"]["total"]), (&json!("they have money"), &json!(2)));
    assert_eq!(shown["items"][0]["subject_id"], "B-1");
    let ran = json(&fleet, &["plan", "run", id, "--json"]);
    assert_eq!((&ran["plan"]["state"], &ran["plan"]["changed"]), (&json!("DONE"), &json!(2)));
    assert_eq!(json(&fleet, &["binding", "show", "B-3", "--json"])["state"], "STOPPED");
    let again = fleet.run(&["plan", "run", id]);
    assert!(again.code == Some(1) && again.stderr.contains("a plan runs once"), "{again:?}");
    let table = fleet.run(&["plan", "show", id, "--items", "--state", "changed"]).stdout;
    assert!(table.contains("start bindings") && table.contains("B-2"), "{table}");

    let hinted = fleet.run(&["binding", "stop", "--all", "--dry-run"]);
    assert_eq!(hinted.stdout, "2 bindings would be stopped.\n1 binding unchanged.\n");
    assert!(hinted.stderr.contains("dispatchq plan run "), "{hinted:?}");
    let other = json(&fleet, &["plan", "list", "--state", "planned", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let cancelled = fleet.run(&["plan", "cancel", &other]);
    assert_eq!(cancelled.stdout, format!("{other} is cancelled; 2 items were not performed.\n"));
    let too_late = fleet.run(&["plan", "run", &other]);
    assert!(too_late.code == Some(1) && too_late.stderr.contains("was cancelled by cli:"), "{too_late:?}");
    let unasked = fleet.run(&["binding", "stop", "--all"]);
    assert!(unasked.code == Some(1) && unasked.stderr.contains("--dry-run, then add --yes"), "{unasked:?}");
    assert_eq!(
        json(&fleet, &["plan", "list", "--state", "planned", "--json"]),
        json!([]),
        "without consent none is left"
    );
    assert_eq!(fleet.run(&["binding", "stop", "B-1", "--reason", "x"]).code, Some(2));
    let none = fleet.run(&["plan", "show", "01937c3e-8f00-7000-8000-000000000001"]);
    assert!(none.code == Some(1) && none.stderr.contains("dispatchq plan list"), "{none:?}");
}

#[tokio::test]
async fn alerts_about_bindings_are_listed_and_acknowledged() {
    let (fleet, _sim) = open().await;
    let raise = "WITH raised AS (
                     INSERT INTO alerts (order_id, binding_id, kind, dedupe_key, payload, raised_at)
                     SELECT '__binding__', 'B-7', 'TRANSACTION_UNRESOLVED', 'B-7.1', '{\"trx_id\": \"B-7.1\"}', dispatchq_now()
                     RETURNING id)
                 SELECT id FROM raised";
    let id = fleet.count(raise).await.to_string();
    let listed = json(&fleet, &["alert", "list", "--binding", "B-7", "--json"]);
    assert_eq!((&listed[0]["binding_id"], listed[0].get("order_id")), (&json!("B-7"), None), "{listed}");
    let table = fleet.run(&["alert", "list"]).stdout;
    assert!(table.contains("B-7") && table.contains("TRANSACTION_UNRESOLVED"), "{table}");
    for none in [["--binding", "B-8"], ["--order", "__binding__"]] {
        assert_eq!(json(&fleet, &["alert", "list", none[0], none[1], "--json"]), json!([]));
    }
    let all = fleet.run(&["alert", "ack", "--order", "__binding__", "--reason", "x", "--yes"]);
    assert!(all.code == Some(1) && all.stderr.contains("no such alert"), "{all:?}");
    let acked = fleet.run(&["alert", "ack", &id, "--reason", "their desk says it failed"]).stdout;
    assert!(acked.starts_with(&format!("Alert {id} (TRANSACTION_UNRESOLVED of B-7) is acknowledged by ")), "{acked}");
    assert_eq!(json(&fleet, &["alert", "list", "--open", "--json"]), json!([]));
    assert_eq!(fleet.run(&["alert", "list", "--binding", "B-7", "--order", "O-1"]).code, Some(2));
}
