//! Rides replayed through areas that fill up. All counters of admission results must agree, or the replay fails.

use std::{fmt::Write, path::Path};

use serde_json::{Value, json};

use crate::support::{is_slow_profile, run_binary};

const RIDES: usize = 80;
const THRESHOLD: u64 = 5;

/// Writes rides that alternate between two zones, one every seven seconds.
fn write_rides(dir: &Path) -> [String; 2] {
    let mut rides = "pickup_datetime,pickup_location_id,payment_type,total_amount\n".to_owned();
    for n in 0..RIDES {
        let at = n * 7;
        writeln!(rides, "2019-03-01 08:{:02}:{:02},{},{},5", at / 60, at % 60, n % 2 + 1, n % 4 / 2 + 1).unwrap();
    }
    let zone = |id: usize, west: f64| {
        let (east, south, north) = (west + 0.01, 31.0, 31.01);
        let square = json!([[[west, south], [east, south], [east, north], [west, north], [west, south]]]);
        json!({ "type": "Feature", "properties": { "LocationID": id },
                "geometry": { "type": "Polygon", "coordinates": square } })
    };
    let zones = json!({ "type": "FeatureCollection", "features": [zone(1, -40.0), zone(2, -39.9)] });
    ["rides.csv", "zones.geojson"].map(|name| {
        let path = dir.join(name);
        let text = if name == "rides.csv" { rides.clone() } else { zones.to_string() };
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

/// Replays the rides with drivers who accept none, so that each order waits for its whole lifetime. Returns the output.
fn replay(admission: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let [rides, zones] = write_rides(dir.path());
    let threshold = THRESHOLD.to_string();
    let mut args = vec!["replay", "--rides", &rides, "--zones", &zones, "--areas", &zones];
    args.extend(["--check-first", "--admission", admission, "--max-waiting-orders", &threshold, "--loyal-rate", "0.5"]);
    args.extend(["--accept-rate", "0", "--drivers", "2", "--speed", "60", "--json"]);
    let printed = run_binary(dir.path(), &args, &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let json: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(json["violations"], json!([]));
    let summary = &json["admission"];
    assert_eq!((&summary["mode"], &summary["threshold"]), (&json!(admission), &json!(THRESHOLD)));
    assert_eq!((&summary["unanswered"], &summary["left_out"]), (&json!(0), &json!([])));
    let parties: Vec<_> = summary["counted_by"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(parties, ["client", "counts", "metrics", "orders", "report", "shadow_refusals", "snapshots"]);
    // On a very slow machine a value may change during each scrape.
    assert!(is_slow_profile() || summary["moments_compared"].as_u64() > Some(0), "{summary}");
    json
}

/// Returns the sum over both zones that one counter has under a name.
fn total(json: &Value, by: &str, line: &str) -> u64 {
    let areas = json["admission"]["counted_by"][by].as_object().unwrap();
    assert!(areas.keys().all(|area| ["ZONE-1", "ZONE-2"].contains(&area.as_str())), "{areas:?}");
    areas.values().filter_map(|lines| lines[line].as_u64()).sum()
}

#[test]
fn a_day_of_enforced_thresholds_is_counted_alike_by_all() {
    let json = replay("enforced");
    let refused: u64 = json["refused"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(json["orders"].as_u64().unwrap() + refused, RIDES as u64, "{json}");
    for by in ["client", "counts", "metrics"] {
        assert_eq!(total(&json, by, "checks_refused") + total(&json, by, "creations_refused"), refused, "{by}: {json}");
        assert!(total(&json, by, "creations_bypassed") > 0, "{by}: {json}");
        assert_eq!(total(&json, by, "creations_in_shadow"), 0, "{by}: {json}");
    }
    for by in ["counts", "report", "snapshots"] {
        assert_eq!(total(&json, by, "refused"), refused, "{by}: {json}");
    }
    assert_eq!(total(&json, "orders", "creations_bypassed"), total(&json, "client", "creations_bypassed"));
    // Loyal customers have room for a fifth more.
    let most = json["admission"]["counted_by"]["client"]["ZONE-1"]["most_waiting"].as_u64().unwrap();
    assert!((THRESHOLD..=THRESHOLD + 1).contains(&most), "{json}");
}

#[test]
fn shadow_replay_counts_refusals_without_refusing() {
    let json = replay("shadow");
    assert_eq!((json["orders"].as_u64(), &json["refused"]), (Some(RIDES as u64), &json!({})));
    let created = total(&json, "client", "creations_in_shadow");
    assert!(created > 0, "{json}");
    for by in ["counts", "metrics", "orders", "shadow_refusals"] {
        assert_eq!(total(&json, by, "creations_in_shadow"), created, "{by}: {json}");
    }
    let checks = total(&json, "metrics", "checks_in_shadow");
    for by in ["counts", "report", "snapshots"] {
        assert_eq!((total(&json, by, "in_shadow"), total(&json, by, "refused")), (created + checks, 0), "{by}: {json}");
    }
    assert!(
        json["admission"]["counted_by"]["client"]["ZONE-1"]["most_waiting"].as_u64() > Some(THRESHOLD + 1),
        "{json}"
    );
}
