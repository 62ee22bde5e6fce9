//! One minute of faults, one after another, and half a minute with a pooler before Postgres. The test checks that all
//! work comes to rest and that the tables match the answers to clients. It ignores speed.

use serde_json::{Value, json};

use crate::support::{is_slow_profile, run_binary};

/// Creates 300 orders. A very slow machine gets more time, because it accepts no offer within 2 s, and a lower rate
/// that it can answer.
const SCENARIO: [&str; 6] = ["--minutes", "1", "--rate", "5", "--speed", "60"];
const SLOW_SCENARIO: [&str; 8] = ["--minutes", "5", "--rate", "1", "--speed", "15", "--producers", "4"];

/// PgBouncer answers itself while Postgres is down and reconnects only every 15 s, so no fault here stops Postgres. The
/// faults last half a minute, and longer on a slow machine.
const POOLED_FAULTS: [&str; 3] =
    ["--pooler", "--faults", "kill-worker,kill-serve,stop-worker,flush,terminate,half-open,latency"];
const POOLED_SCENARIO: [&str; 6] = ["--minutes", "0.5", "--rate", "5", "--speed", "60"];
const SLOW_POOLED_SCENARIO: [&str; 8] = ["--minutes", "2", "--rate", "1", "--speed", "15", "--producers", "4"];

fn run_chaos(scenario: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let args = [&["bench", "chaos", "--seed", "1", "--json"], scenario].concat();
    let printed = run_binary(dir.path(), &args, &[]);
    let json: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!(json["violations"], json!([]), "{json:#}");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let faults = json["faults"].as_object().unwrap();
    assert!(faults.len() >= 3, "{faults:?}");
    assert!(faults.values().all(|of| of["count"].as_u64() > Some(0)), "{faults:?}");
    let outcomes = json["outcomes"].as_object().unwrap();
    assert_eq!(outcomes.values().filter_map(Value::as_u64).sum::<u64>(), json["orders"].as_u64().unwrap());
    json
}

/// Returns the number of successful requests of this kind.
fn done(json: &Value, what: &str) -> u64 {
    json["requests"][what]["done"].as_u64().unwrap_or_default()
}

#[test]
fn a_minute_of_faults_leaves_nothing_told_that_is_not_so() {
    let scenario = if is_slow_profile() { SLOW_SCENARIO.as_slice() } else { &SCENARIO };
    let json = run_chaos(scenario);
    let minutes: f64 = scenario[1].parse().unwrap();
    assert_eq!((&json["seed"], &json["minutes"], &json["pooler"]), (&1.into(), &minutes.into(), &false.into()));
    assert!(json["faults"].as_object().unwrap().len() >= 4, "{json:#}");
    for (what, least) in [("create", 100), ("accept", 0), ("complete", 0), ("cancel", 0)] {
        assert!(done(&json, what) > least, "{what}: {json:#}");
    }
    let hung_up = json["hangups"].as_object().unwrap();
    assert!(hung_up.contains_key("create") && hung_up.contains_key("payment"), "{hung_up:?}");
}

#[test]
fn chaos_behind_a_pooler_keeps_every_answer() {
    let scenario = if is_slow_profile() { SLOW_POOLED_SCENARIO.as_slice() } else { &POOLED_SCENARIO };
    let json = run_chaos(&[scenario, &POOLED_FAULTS].concat());
    assert_eq!(json["pooler"], true, "{json:#}");
    for what in ["create", "accept", "complete"] {
        assert!(done(&json, what) > 0, "{what}: {json:#}");
    }
}
