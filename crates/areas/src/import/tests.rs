//! Tests of the contents of area files, and of the errors that name the position of a problem.

use serde_json::json;

use super::*;

const MOST_CORNERS: usize = 10_000;
const MOST_RINGS: usize = 500;

fn feature(properties: Value, geometry: Value) -> Value {
    json!({ "type": "Feature", "properties": properties, "geometry": geometry })
}

fn of(features: Vec<Value>) -> Result<Vec<ImportedArea>, ImportError> {
    parse(&json!({ "type": "FeatureCollection", "features": features }).to_string())
}

fn square() -> Value {
    json!({ "type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]] })
}

#[test]
fn polygons_and_geohashes_are_read() {
    let areas = of(vec![
        feature(json!({ "area_id": "CGK-T3", "name": "Terminal 3", "priority": 10 }), square()),
        feature(json!({ "area_id": "JKT", "geohashes": ["QQGU", "qqgv"] }), Value::Null),
    ])
    .unwrap();
    let [airport, city] = &areas[..] else { panic!("{areas:?}") };
    assert_eq!((airport.area.name.as_str(), airport.area.priority), ("Terminal 3", 10));
    assert_eq!(airport.geometry.as_ref().unwrap()["type"], "Polygon");
    assert_eq!((city.area.name.as_str(), &city.geometry), ("JKT", &None));
    assert_eq!(city.area.geohashes, ["qqgu", "qqgv"]);
}

#[test]
fn import_error_names_feature_and_problem() {
    let bow = json!({ "type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]] });
    let far = json!({ "type": "Polygon", "coordinates": [[[0, 0], [200, 0], [200, 1], [0, 1], [0, 0]]] });
    let point = json!({ "type": "Point", "coordinates": [0, 0] });
    for (features, said) in [
        (vec![], "no feature"),
        (vec![feature(json!({}), square())], "feature 1: area_id is missing"),
        (vec![feature(json!({ "area_id": "a b" }), square())], "'a b'"),
        (vec![feature(json!({ "area_id": "A" }), Value::Null)], "neither a geometry nor geohashes"),
        (vec![feature(json!({ "area_id": "A" }), point)], "Point"),
        (vec![feature(json!({ "area_id": "A" }), bow)], "not valid"),
        (vec![feature(json!({ "area_id": "A" }), far)], "not a longitude and latitude"),
        (vec![feature(json!({ "area_id": "A", "priority": "high" }), square())], "priority"),
        (vec![feature(json!({ "area_id": "A", "geohashes": ["ail"] }), Value::Null)], "not a geohash"),
        (vec![feature(json!({ "area_id": "A", "service_type": "RIDE" }), square())], "list of texts"),
        (vec![feature(json!({ "area_id": "A", "service_type": [""] }), square())], "service_type '' must be"),
        (vec![feature(json!({ "area_id": "A", "time_zone": "Asia/Batavia" }), square())], "not an IANA time zone"),
        (
            vec![feature(json!({ "area_id": "A" }), square()), feature(json!({ "area_id": "A" }), square())],
            "comes twice",
        ),
    ] {
        let error = format!("{:#}", of(features).unwrap_err());
        assert!(error.contains(said), "{said}: {error}");
    }
    assert!(parse("{}").is_err());
}

/// Returns a regular polygon around (0, 0).
fn wheel(corners: usize) -> Value {
    let mut ring: Vec<[f64; 2]> = (0..corners - 1)
        .map(|n| (n as f64 / (corners - 1) as f64 * std::f64::consts::TAU).sin_cos())
        .map(|(sin, cos)| [cos, sin])
        .collect();
    ring.push(ring[0]);
    json!({ "type": "Polygon", "coordinates": [ring] })
}

// Fault S5
#[test]
fn import_refuses_too_much_geometry() {
    let at = |n: usize, geometry: Value| feature(json!({ "area_id": format!("A{n}") }), geometry);
    let holes: Vec<Value> = (0..=MOST_RINGS).map(|_| json!([[0, 0], [1, 0], [1, 1], [0, 0]])).collect();
    for (features, said) in [
        (vec![at(1, wheel(MOST_CORNERS + 1))], "corners"),
        (vec![at(1, json!({ "type": "Polygon", "coordinates": holes }))], "parts and holes"),
        ((0..=MOST_FEATURES).map(|n| at(n, square())).collect(), "features"),
        ((0..21).map(|n| at(n, wheel(MOST_CORNERS))).collect(), "simplify"),
    ] {
        let error = format!("{:#}", of(features).unwrap_err());
        assert!(error.contains(said), "{said}: {error}");
    }
    assert_eq!(of(vec![at(1, wheel(200))]).unwrap().len(), 1);
}

fn read(properties: Value) -> Result<AreaFile, ImportError> {
    let file = json!({ "type": "FeatureCollection", "features": [feature(properties, square())] });
    parse_file(&file.to_string(), |service_type| {
        (*service_type != "RIDE").then(|| format!("unknown service_type '{service_type}'"))
    })
}

// Rule F2: An import names the member whose type, length or value breaks a rule. The rules are those of the limits API.
#[test]
fn import_names_member_of_wrong_type() {
    let long: String = "x".repeat(201);
    for (properties, path, said) in [
        (json!({ "area_id": 7 }), "area_id", "area_id must be a text, not a number"),
        (json!({ "area_id": ["A"] }), "area_id", "area_id must be a text, not a list"),
        (json!({ "area_id": null }), "area_id", "area_id is missing"),
        (json!({ "area_id": "" }), "area_id", "must have 1 to 64"),
        (json!({ "area_id": "A\u{200b}" }), "area_id", "must have 1 to 64"),
        (json!({ "area_id": "A", "name": "\u{200b}\u{2060}" }), "name", "name must not be empty"),
        (json!({ "area_id": "A", "name": 7 }), "name", "name must be a text, not a number"),
        (json!({ "area_id": "A", "name": " " }), "name", "name must not be empty"),
        (json!({ "area_id": "A", "name": long }), "name", "at most 200 characters"),
        (json!({ "area_id": "A", "name": "a\nb" }), "name", "control character"),
        (json!({ "area_id": "A", "priority": "1" }), "priority", "-2147483648 to 2147483647, not a text"),
        (json!({ "area_id": "A", "priority": 1.5 }), "priority", "not 1.5"),
        (json!({ "area_id": "A", "priority": 2_147_483_648_i64 }), "priority", "not 2147483648"),
        (json!({ "area_id": "A", "service_type": ["ride"] }), "service_type/0", "unknown service_type 'ride'"),
        (json!({ "area_id": "A", "service_type": ["RIDE", 7] }), "service_type/1", "but contains a number"),
        (json!({ "area_id": "A", "service_type": {} }), "service_type", "must be a list of texts, not an object"),
        (json!({ "area_id": "A", "service_type": vec!["RIDE"; 65] }), "service_type", "65 entries; the maximum is 64"),
        (json!({ "area_id": "A", "geohashes": "qqgu" }), "geohashes", "must be a list of texts, not a text"),
        (json!({ "area_id": "A", "geohashes": ["qqgu", "ail"] }), "geohashes/1", "'ail' is not a geohash"),
        (json!({ "area_id": "A", "geohashes": vec!["q"; 10_001] }), "geohashes", "the maximum is 10000"),
        (json!({ "area_id": "A", "time_zone": 7 }), "time_zone", "time_zone must be a text, not a number"),
    ] {
        let error = read(properties.clone()).unwrap_err();
        assert!(error.to_string().contains(said), "{properties}: {error}");
        assert_eq!(error.path(), format!("features/0/properties/{path}"), "{properties}");
    }
}

// Rule F2: An import refuses a member that appears twice, both on the command line and over HTTP.
#[test]
fn import_refuses_doubled_members() {
    let file = r#"{"type":"FeatureCollection","features":[{"type":"Feature","geometry":null,
        "properties":{"area_id":"A","geohashes":["qqgu"],"name":"a","name":"b"}}]}"#;
    let error = parse(file).unwrap_err();
    assert_eq!((error.path(), error.to_string().contains("name is given twice")), ("features/0/properties/name", true));
    assert!(parse("{").unwrap_err().to_string().contains("this is not GeoJSON"));
}

// Rule F2: An import accepts 1.0 as a whole number, removes duplicates, closes rings, and names ignored members.
#[test]
fn import_normalises_what_it_keeps() {
    let mut file = json!({ "type": "FeatureCollection", "crs": {}, "features": [feature(
        json!({ "area_id": "A", "priority": 1.0, "geohashes": ["qqgu", "QQGU", "qqgv"], "service_type": ["RIDE", "RIDE"],
                "service_types": ["RENT"], "timezone": "Asia/Jakarta", "geohash": "qqgu" }),
        json!({ "type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]] }),
    )] });
    file["features"][0]["color"] = json!("red");
    let AreaFile { areas, ignored } = parse_file(&format!("\u{feff}{file}"), |_| None).unwrap();
    let [ImportedArea { area, geometry }] = &areas[..] else { panic!("{areas:?}") };
    assert_eq!((area.priority, area.geohashes.join(",").as_str()), (1, "qqgu,qqgv"));
    assert_eq!(area.service_types, ["RIDE"]);
    let ring = geometry.as_ref().unwrap()["coordinates"][0].as_array().unwrap();
    assert_eq!((ring.len(), ring.first()), (5, ring.last()));
    assert_eq!(ignored.into_iter().collect::<Vec<_>>(), ["color", "crs", "geohash", "service_types", "timezone"]);
}

// Rule F3: An import refuses an edge of more than 180 degrees of longitude and suggests where to cut it.
#[test]
fn import_refuses_edge_across_the_meridian() {
    let polygon = |ring: Value| json!({ "type": "Polygon", "coordinates": [ring] });
    let across = polygon(json!([[179, -17], [-179, -17], [-179, -16], [179, -16], [179, -17]]));
    let error = of(vec![feature(json!({ "area_id": "FIJI" }), across)]).unwrap_err();
    assert!(error.to_string().contains("area FIJI: its edge from 179, -17 to -179, -17 spans 358°"), "{error}");
    assert!(error.to_string().contains("cut it at 180°"), "{error}");
    assert_eq!(error.path(), "features/0/geometry");
    // The closing edge counts too, also in holes and in other parts.
    let open = polygon(json!([[-179, -17], [0, -17], [179, -17], [179, -16]]));
    let second = json!({ "type": "MultiPolygon", "coordinates": [
        [[[0, 0], [1, 0], [1, 1], [0, 0]]], [[[179, 5], [-179, 5], [-179, 6], [179, 5]]],
    ] });
    let beyond = polygon(json!([[179, -14], [181, -14], [181, -13], [179, -13], [179, -14]]));
    for shape in [open, second, beyond] {
        let error = of(vec![feature(json!({ "area_id": "FIJI" }), shape)]).unwrap_err().to_string();
        assert!(error.contains("180°"), "{error}");
    }
    let cut = json!({ "type": "MultiPolygon", "coordinates": [
        [[[179, -17], [180, -17], [180, -16], [179, -16], [179, -17]]],
        [[[-180, -17], [-179, -17], [-179, -16], [-180, -16], [-180, -17]]],
    ] });
    assert_eq!(of(vec![feature(json!({ "area_id": "FIJI" }), cut)]).unwrap().len(), 1);
    let half = polygon(json!([[-90, 0], [90, 0], [90, 1], [-90, 1], [-90, 0]]));
    assert_eq!(of(vec![feature(json!({ "area_id": "HALF" }), half)]).unwrap().len(), 1);
    // A ring may be wider than 180 degrees if each of its edges spans less.
    let wide = polygon(json!([[-179, -17], [0, -17], [179, -17], [179, -16], [0, -16]]));
    assert_eq!(of(vec![feature(json!({ "area_id": "WIDE" }), wide)]).unwrap().len(), 1);
}

// Rule F48: A file at the limits, 20 areas of 10,000 corners, is checked with a bounded number of comparisons.
#[test]
fn file_at_the_limits_is_checked_within_its_budget() {
    let areas = (0..20).map(|n| feature(json!({ "area_id": format!("A{n}") }), wheel(MOST_CORNERS)));
    let file = json!({ "type": "FeatureCollection", "features": areas.collect::<Vec<_>>() }).to_string();
    let GeoJson::FeatureCollection(collection) = file.parse().unwrap() else { panic!("no collection") };
    let mut budget = shape::Budget::default();
    for feature in &collection.features {
        budget.count_corners(feature).unwrap();
        shape::checked(feature.geometry.as_ref().unwrap(), &mut budget).unwrap();
    }
    assert!(budget.work() < model::area::borders::MOST_WORK / 50, "{budget:?}");
}
