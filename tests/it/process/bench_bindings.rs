//! Small binding benchmarks with a checking provider, on real processes. The tests require that no fault is found; they
//! ignore speed.

use serde_json::Value;

use crate::support::run_binary;

/// Returns the output of a clean run.
fn json(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &[&["bench", "bindings"][..], args, &["--json"]].concat(), &[]);
    assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
    let json: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(json["violations"], serde_json::json!([]));
    for judged in ["over_admissions", "overlaps"] {
        assert_eq!(json[judged], 0, "{judged}: {json}");
    }
    for judged in ["late_refused", "gaps", "/judge/calls", "/judge/max_open", "/machine/cores"] {
        let judged = json.pointer(judged).unwrap_or(&json[judged]);
        assert!(judged.is_u64(), "{judged}: {json}");
    }
    for figure in ["/lateness_ms/p50", "/lateness_ms/p99", "/busiest_process/processors", "/machine_busy_share"] {
        assert!(json.pointer(figure).is_some_and(Value::is_number), "{figure}: {json}");
    }
    json
}

fn assert_kinds(json: &Value, figure: &str) {
    for kind in ["workers", "api", "redis", "postgres", "provider_sim", "bench"] {
        assert!(json[figure][kind].is_number(), "{figure} {kind}: {json}");
    }
}

fn assert_cycles(json: &Value) {
    for figure in
        ["cycles_per_s", "bound_per_s", "demand_per_s", "share", "claim_ms", "mean_wait_ms", "stops", "kills", "waits"]
    {
        assert!(json[figure].is_number(), "{figure}: {json}");
    }
    // The value is null if no cycle waited.
    assert!(json.get("longest_wait_over_mean").is_some(), "{json}");
    for figure in ["p50", "p99"] {
        assert!(json["stop_latency_ms"][figure].is_number(), "{figure}: {json}");
    }
    assert!(json["bound_per_s"].as_f64() <= json["demand_per_s"].as_f64(), "{json}");
    assert!(json["judge"]["calls"].as_u64() >= json["cycles"].as_u64(), "{json}");
    assert_kinds(json, "cpu_ms_per_cycle");
}

#[test]
fn a_few_bindings_run_while_workers_are_killed() {
    let args = ["--bindings", "8", "--servers", "4", "--workers", "2", "--seconds", "5", "--kill-every", "2"];
    let json = json(&args);
    assert_eq!((&json["bindings"], &json["interval_ms"]), (&8.into(), &serde_json::json!([300, 800])));
    assert_eq!(json["interval_from"], "end");
    assert_cycles(&json);
}

#[test]
fn a_few_bindings_run_at_a_fixed_pace() {
    let json = json(&["--bindings", "4", "--servers", "4", "--workers", "1", "--seconds", "2", "--every", "400"]);
    assert_eq!((&json["interval_ms"], &json["kills"]), (&serde_json::json!([400, 400]), &0.into()));
    assert_eq!((&json["interval_from"], &json["demand_per_s"]), (&"begin".into(), &10.0.into()));
    assert_cycles(&json);
}

#[test]
fn a_few_bindings_idle_and_some_of_them_fall_due() {
    let json = json(&["--idle", "200", "--servers", "4", "--workers", "1", "--seconds", "2"]);
    assert_eq!((&json["idle"], &json["due"], &json["waits"]), (&200.into(), &4.into(), &4.into()), "{json}");
    assert!(json["postgres_bytes_per_binding"].as_f64() > Some(0.0), "{json}");
    assert!(json["redis_bytes_per_binding"].is_number(), "{json}");
    assert_kinds(&json, "cpu_ms_per_s");
}

#[test]
fn nonsense_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    for bad in [&["--bindings", "0"], &["--every", "0"]] {
        let printed = run_binary(dir.path(), &[&["bench", "bindings"][..], &bad[..]].concat(), &[]);
        assert_eq!(printed.code, Some(2), "{bad:?}: {printed:?}");
    }
}
