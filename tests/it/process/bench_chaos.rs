//! A minute in which everything fails, one thing after another. That everything comes to rest, and that what clients were told
//! is in the tables, is judged; how quickly is not.

use serde_json::{Value, json};

use crate::support::{is_slow_profile, run_binary};

/// Creates 300 orders. On a machine whose processes stand still they have more time, for no offer of 2 s is accepted there; and
/// no more of them are created than it answers.
const SCENARIO: [&str; 6] = ["--minutes", "1", "--rate", "5", "--speed", "60"];
const SLOW_SCENARIO: [&str; 8] = ["--minutes", "5", "--rate", "1", "--speed", "15", "--producers", "4"];

#[test]
fn a_minute_of_faults_leaves_nothing_told_that_is_not_so() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = if is_slow_profile() { SLOW_SCENARIO.as_slice() } else { &SCENARIO };
    let args = [&["bench", "chaos", "--seed", "1", "--json"], scenario].concat();
    let printed = run_binary(dir.path(), &args, &[]);
    let json: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!(json["violations"], json!([]), "{json:#}");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let minutes: f64 = scenario[1].parse().unwrap();
    assert_eq!((&json["seed"], &json["minutes"]), (&1.into(), &minutes.into()));
    let faults = json["faults"].as_object().unwrap();
    assert!(faults.len() >= 4, "{faults:?}");
    assert!(faults.values().all(|of| of["count"].as_u64() > Some(0)), "{faults:?}");
    let done = |what: &str| json["requests"][what]["done"].as_u64().unwrap_or_default();
    assert!(done("create") > 100 && done("accept") > 0 && done("complete") > 0 && done("cancel") > 0, "{json:#}");
    let hung_up = json["hangups"].as_object().unwrap();
    assert!(hung_up.contains_key("create") && hung_up.contains_key("payment"), "{hung_up:?}");
    let outcomes = json["outcomes"].as_object().unwrap();
    assert_eq!(outcomes.values().filter_map(Value::as_u64).sum::<u64>(), json["orders"].as_u64().unwrap());
}
