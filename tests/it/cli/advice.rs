//! `area advise` with ride files: proposes thresholds from one month and tests them on another, for the zones of one
//! area.

use std::fmt::Write;

use serde_json::{Value, json};

use super::json;
use crate::support::Fleet;

/// Returns the rides of four weeks: `per_hour` rides from zone 1 at eight each morning, and one ride per minute from
/// zone 2 at nine.
fn rides(month: u32, per_hour: usize) -> String {
    let mut text = "pickup_datetime,pickup_location_id,payment_type,total_amount\n".to_owned();
    for day in 1..=28 {
        for n in 0..per_hour {
            let at = n * 3_600 / per_hour;
            writeln!(text, "2019-{month:02}-{day:02} 08:{:02}:{:02},1,1,5", at / 60, at % 60).unwrap();
        }
        for minute in 0..60 {
            writeln!(text, "2019-{month:02}-{day:02} 09:{minute:02}:00,2,1,5").unwrap();
        }
    }
    text
}

fn square(west: f64) -> Value {
    let (east, south, north) = (west + 0.1, -6.3, -6.1);
    let ring = [[west, south], [east, south], [east, north], [west, north], [west, south]];
    json!({ "type": "Polygon", "coordinates": [ring] })
}

fn features(features: &[Value]) -> String {
    json!({ "type": "FeatureCollection", "features": features }).to_string()
}

#[tokio::test]
async fn proposed_thresholds_are_tested_on_another_month() {
    let fleet = Fleet::start().await;
    let area = json!({ "type": "Feature", "properties": { "area_id": "PORT" }, "geometry": square(106.8) });
    let zone =
        |id: u32, west: f64| json!({ "type": "Feature", "properties": { "LocationID": id }, "geometry": square(west) });
    for (name, text) in [
        ("areas.geojson", features(&[area])),
        ("zones.geojson", features(&[zone(1, 106.8), zone(2, 107.8)])),
        ("march.csv", rides(3, 60)),
        ("january.csv", rides(1, 120)),
    ] {
        std::fs::write(fleet.dir().join(name), text).unwrap();
    }
    let imported = fleet.run(&["area", "import", "areas.geojson"]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let advise =
        ["area", "advise", "PORT", "--service-type", "RIDE", "--rides", "march.csv", "--back-test", "january.csv"];
    let of_port = [advise.as_slice(), &["--zones", "zones.geojson"]].concat();

    let advice = json(&fleet, &[of_port.as_slice(), &["--json"]].concat());
    let schedule = advice["schedule"].as_str().unwrap();
    // Sixty per hour are ten within the promised ten minutes.
    assert!(schedule.contains("MON,TUE,WED,THU,FRI 08:00-09:00=10"), "{schedule}");
    // January has twice as many rides. Of twenty within ten minutes, ten have room.
    let refused = json!({ "advised": { "requests": 28 * 120, "refused": 28 * 60 },
                          "usual": { "requests": 28 * 120, "refused": 0 } });
    assert_eq!((&advice["back_test"]["refused"], &advice["back_test"]["usual_threshold"]), (&refused, &json!(100)));
    let printed = fleet.run(&of_port);
    assert!(printed.stdout.contains("the advice would have refused 1680 of 3360 (50.0 %)"), "{printed:?}");
    assert!(printed.stdout.contains("100 at all times would have refused 0 of 3360 (0.0 %)"), "{printed:?}");

    // Without zones all rides count for one place.
    let of_all = json(&fleet, &[advise.as_slice(), &["--json"]].concat());
    assert_eq!(of_all["back_test"]["refused"]["usual"]["requests"], 28 * 180);
    assert!(of_all["schedule"].as_str().unwrap().contains("08:00-10:00=10"), "{of_all}");
    assert_eq!(fleet.count("SELECT count(*) FROM area_limits").await, 0, "nothing was set");
}
