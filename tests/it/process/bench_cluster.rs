//! A short run of orders on a Redis Cluster whose nodes fail and whose shards change. The test ignores the lateness of
//! jobs.

use serde_json::{Value, json};

use crate::support::{is_slow_profile, run_binary};

/// Phases, named after the change of the cluster: failovers, moved slots.
const PHASES_OF_ONE_SHARD: [&str; 5] = ["one_shard", "failover", "killed_master", "moved_slot", "flushed_master"];
const OTHER_PHASES: [&str; 9] = [
    "resharded_to_4",
    "four_shards",
    "unreachable_master",
    "failover_of_4",
    "resharded_to_16",
    "sixteen_shards",
    "flushed_master_of_16",
    "moved_slots_of_16",
    "resharded_back_to_4",
];

/// An order lives for half a minute. A very slow machine gets more time and fewer orders.
const SCENARIO: [&str; 6] = ["--rate", "4", "--seconds", "42", "--speed", "60"];
const SLOW_SCENARIO: [&str; 6] = ["--rate", "1", "--seconds", "42", "--speed", "15"];

fn run_bench(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &[&["bench", "cluster", "--json"], args].concat(), &[]);
    let json: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!(json["violations"], json!([]), "{json:#}");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    for fault in ["lost", "doubled", "early"] {
        assert_eq!(json[fault], 0, "{fault}: {json:#}");
    }
    assert!(json["process_per_cpu_s"].as_f64() > Some(0.0), "{json:#}");
    assert!(json["lateness_ms"]["max"].as_f64() >= json["lateness_ms"]["p50"].as_f64(), "{json:#}");
    json
}

#[test]
fn orders_go_on_while_cluster_nodes_fail() {
    let json = run_bench(if is_slow_profile() { &SLOW_SCENARIO } else { &SCENARIO });
    let phases = json["phases"].as_array().unwrap();
    let names = |list: &[Value]| list.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let left_out = names(json["left_out"].as_array().unwrap());
    let played: Vec<Value> = phases.iter().map(|phase| phase["name"].clone()).collect();
    let all = [&PHASES_OF_ONE_SHARD[..], &OTHER_PHASES].concat();
    assert_eq!([names(&played), left_out.clone()].concat(), all, "each was played, or is said to be left out");
    let expected = if left_out.is_empty() { (16, 3, 5) } else { (1, 2, 1) };
    let told = ["shards", "failovers", "migrated_slots"].map(|name| json[name].as_u64().unwrap());
    assert_eq!((told[0], told[1], told[2]), expected, "{json:#}");
    // Each phase created orders, and jobs ran.
    assert!(phases.iter().all(|phase| phase["orders"].as_u64() > Some(0)), "{phases:#?}");
    let jobs: u64 = phases.iter().filter_map(|phase| phase["lateness_ms"]["jobs"].as_u64()).sum();
    assert_eq!((json["lateness_ms"]["jobs"].as_u64(), jobs > 0), (Some(jobs), true), "{json:#}");
    for phase in phases {
        assert_eq!(phase["step_s"].is_null(), phase["at_rest"] == true, "{phase:#}");
        assert_eq!(phase["meanwhile_ms"].is_null(), phase["name"] != "unreachable_master", "{phase:#}");
    }
    let done = |what: &str| json["requests"][what]["done"].as_u64().unwrap_or_default();
    assert!(done("create") > 0 && done("accept") > 0 && done("complete") > 0, "{json:#}");
    let outcomes = json["outcomes"].as_object().unwrap();
    assert_eq!(outcomes.values().filter_map(Value::as_u64).sum::<u64>(), json["orders"].as_u64().unwrap());
}
