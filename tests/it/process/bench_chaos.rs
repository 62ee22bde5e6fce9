//! A minute in which everything fails, one thing after another. That everything comes to rest, and that what clients were told
//! is in the tables, is judged; how quickly is not.

use serde_json::{Value, json};

use crate::support::run_binary;

#[test]
fn a_minute_of_faults_leaves_nothing_told_that_is_not_so() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "chaos", "--minutes", "1", "--rate", "5", "--seed", "1", "--json"];
    let printed = run_binary(dir.path(), &args, &[]);
    let json: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!(json["violations"], json!([]), "{json:#}");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert_eq!((&json["seed"], &json["minutes"]), (&1.into(), &1.0.into()));
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
