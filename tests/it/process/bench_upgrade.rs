//! A short upgrade, rollback and second upgrade under load. Both versions are this binary; `make upgrade-test` uses the
//! previous version.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use serde_json::{Value, json};

use crate::support::{is_slow_profile, run_binary};

const BINARY: &str = env!("CARGO_BIN_EXE_dispatchq");
const PHASES: [&str; 8] = [
    "old",
    "migrated",
    "side_by_side",
    "upgraded",
    "rolling_back",
    "rolled_back",
    "side_by_side_again",
    "upgraded_again",
];

#[test]
fn orders_go_on_through_upgrade_and_rollback() {
    let dir = tempfile::tempdir().unwrap();
    let rate = if is_slow_profile() { "1" } else { "4" };
    let args = ["bench", "upgrade", "--old", BINARY, "--rate", rate, "--seconds", "32", "--json"];
    let printed = run_binary(dir.path(), &args, &[]);
    let json: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!(json["violations"], json!([]), "{json:#}");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let phases = json["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!(names, PHASES);
    assert!(phases.iter().all(|phase| phase["orders"].as_u64() > Some(0)), "{phases:#?}");
    // Workers ran in each phase.
    assert!(phases.iter().all(|phase| phase["p99_ms"].is_number()), "{phases:#?}");
    let done = |what: &str| json["requests"][what]["done"].as_u64().unwrap_or_default();
    assert!(done("create") > 0 && done("accept") > 0 && done("complete") > 0, "{json:#}");
    let outcomes = json["outcomes"].as_object().unwrap();
    assert_eq!(outcomes.values().filter_map(Value::as_u64).sum::<u64>(), json["orders"].as_u64().unwrap());
}

#[test]
fn broken_old_version_is_reported_with_log() {
    let dir = tempfile::tempdir().unwrap();
    let upgrade = |old: &str| run_binary(dir.path(), &["bench", "upgrade", "--old", old, "--rate", "1"], &[]);
    let missing = upgrade("nowhere/dispatchq");
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("nowhere/dispatchq"), "{missing:?}");
    let old = dir.path().join("old");
    fs::write(&old, "#!/bin/sh\necho \"cannot $1\"\nexit 3\n").unwrap();
    fs::set_permissions(&old, Permissions::from_mode(0o755)).unwrap();
    let failing = upgrade(old.to_str().unwrap());
    assert_eq!(failing.code, Some(1), "{failing:?}");
    assert!(failing.stderr.contains("cannot migrate"), "{failing:?}");
}
