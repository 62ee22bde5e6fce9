//! Small runs of orders with a partner, in each scenario and as a replay, on real processes. The tests check that all
//! work comes to rest and that the history is clean. They ignore speed.

use serde_json::Value;

use crate::support::{is_slow_profile, run_binary};

/// Returns the output of a successful run.
fn json(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &[args, &["--json"]].concat(), &[]);
    assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
    serde_json::from_str(&printed.stdout).unwrap()
}

fn bench(scenario: &str) -> Value {
    bench_with(scenario, &[])
}

fn bench_with(scenario: &str, more: &[&str]) -> Value {
    // The partner is down for 3 s from the first quarter on. Orders are created before and after, so it is called
    // during the outage.
    let rate = if scenario == "outage" { "5" } else { "20" };
    let args = ["bench", "orders", "--scenario", scenario, "--orders", "40", "--rate", rate, "--speed", "200"];
    let json = json(&[&args[..], more].concat());
    let number = |path: &str| json.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {json}"));
    assert_eq!((json["scenario"].as_str(), json["orders"].as_u64()), (Some(scenario), Some(40)));
    assert_eq!(json["violations"], serde_json::json!([]));
    assert_eq!(json["limit_exceeded"], 0);
    let outcomes = json["outcomes"].as_object().unwrap();
    assert_eq!(outcomes.values().filter_map(Value::as_u64).sum::<u64>(), 40, "{json}");
    for share in ["/job_id_rate", "/via_callback_rate", "/manual_rate"] {
        assert!((0.0..=1.0).contains(&number(share)), "{share}: {json}");
    }
    for positive in [
        "/created_per_s",
        "/p95_time_to_job_id_s",
        "/partner_calls_per_s",
        "/lateness_ms/jobs",
        "/worker_rss_mb/first",
        "/worker_rss_mb/last",
        "/worker_rss_mb/max",
        "/machine/cores",
    ] {
        assert!(number(positive) > 0.0, "{positive}: {json}");
    }
    assert!(number("/partner_calls_saved") <= 1.0 && number("/polls_per_order") >= 0.0, "{json}");
    assert!(json["alerts"].is_object() && json["alert_delay_s"].get("p99").is_some(), "{json}");
    json
}

#[test]
fn orders_of_a_good_partner() {
    let json = bench_with("normal", &["--prometheus"]);
    assert!(json["partner"]["callbacks_sent"].as_u64() > Some(40), "{json}");
    assert!(json["traces"].is_null(), "{json}");
    // Prometheus has scraped all processes and reports its alerts. No process was down.
    assert_eq!(json["prometheus"]["memory_mib"].as_object().map(serde_json::Map::len), Some(3), "{json}");
    let fired = json["prometheus"]["alerts_fired_s"].as_object().unwrap_or_else(|| panic!("{json}"));
    assert!(!fired.contains_key("ProcessDown") && !fired.contains_key("NoWorkers"), "{json}");
}

#[test]
fn orders_of_own_drivers_of_whom_the_second_accepts() {
    let sampling = ["--trace-sampling", "1"];
    let json =
        json(&[&["bench", "orders", "--scenario", "fleet", "--orders", "20", "--rate", "10"][..], &sampling].concat());
    assert!(json["traces"]["requests"].as_u64() > Some(0) && json["traces"]["bytes"].as_u64() > Some(0), "{json}");
    assert_eq!(json["violations"], serde_json::json!([]));
    assert_eq!(
        (&json["outcomes"]["COMPLETED"], &json["driver_answers"]["completed"]),
        (&20.into(), &20.into()),
        "{json}"
    );
    assert!(json["offers"].as_u64() >= Some(40), "{json}");
    for asked in ["create", "accept", "pickup", "complete"] {
        // No request over HTTP takes less than a tenth of a millisecond.
        assert!(json["answer_ms"][asked]["p50"].as_f64() > Some(0.1), "{asked}: {json}");
    }
}

#[test]
fn orders_of_a_partner_that_never_calls_back() {
    let json = bench("no-callback");
    assert_eq!((&json["via_callback_rate"], &json["partner"]["callbacks_sent"]), (&0.0.into(), &0.into()), "{json}");
    assert!(json["job_id_rate"].as_f64() > Some(0.0), "{json}");
}

#[test]
fn orders_of_a_partner_that_is_slow() {
    let json = bench("slow");
    // Half of the job ids arrive after ten minutes or later.
    assert!(json["p95_time_to_job_id_s"].as_f64() > Some(600.0), "{json}");
}

#[test]
fn orders_of_a_partner_that_is_down_for_a_while() {
    // The partner cannot count refused connections as requests.
    let json = bench("outage");
    assert_eq!(json["bookings"].get("booked"), None, "{json}");
}

#[test]
fn rides_are_replayed_by_a_partner_while_workers_are_killed() {
    // At speed 400 an order lives for less time than a worker needs to start on a very slow machine.
    let speed = if is_slow_profile() { "60" } else { "400" };
    let args = ["replay", "--sample", "--limit", "60", "--strategy", "partner", "--speed", speed, "--kill-every", "2"];
    let json = json(&args);
    assert_eq!((json["strategy"].as_str(), json["orders"].as_u64()), (Some("partner"), Some(60)));
    assert!(json["kills"].as_u64() > Some(0) && json["partner"]["bookings"].as_u64() > Some(0), "{json}");
    let bookings = json["bookings"].as_object().unwrap();
    assert!(bookings.keys().all(|state| ["completed", "cancelled", "refused"].contains(&state.as_str())), "{json}");
    let dir = tempfile::tempdir().unwrap();
    let refused = run_binary(dir.path(), &["replay", "--strategy", "partner", "--drivers", "5"], &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("--strategy partner"), "{refused:?}");
}

#[test]
fn replay_with_checks_skips_refused_orders() {
    let dir = tempfile::tempdir().unwrap();
    let town = serde_json::json!([[[-42.0, 31.0], [-40.0, 31.0], [-40.0, 32.0], [-42.0, 32.0], [-42.0, 31.0]]]);
    let areas = serde_json::json!({ "type": "FeatureCollection", "features": [{
        "type": "Feature", "properties": { "area_id": "TOWN" }, "geometry": { "type": "Polygon", "coordinates": town } }] });
    let file = dir.path().join("areas.geojson");
    std::fs::write(&file, areas.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let limits = ["--limit", "20", "--speed", "4000", "--areas", file, "--max-waiting-orders", "0", "--check-first"];
    let json = json(&[["replay", "--sample"].as_slice(), limits.as_slice()].concat());
    let refused = serde_json::json!({ "check DISPATCHER_AREA_THRESHOLD_REACHED": 20 });
    assert_eq!((&json["orders"], &json["refused"]), (&0.into(), &refused), "{json}");
}
