//! Areas as GeoJSON: a FeatureCollection of polygons, each with `area_id` and perhaps `name`, `priority`, `geohashes`,
//! `service_type` and `time_zone` among its properties. A feature without geometry needs geohashes.

use std::{collections::HashSet, fmt};

use geo::{Area as _, MultiPolygon, Validation};
use geojson::{Feature, GeoJson, Geometry, GeometryValue, JsonObject};
use model::{admission::schedule::AreaTimeZone, area::Area, ids::ServiceType, plain_text};
use serde_json::Value;

/// More areas of one file are a mistake.
const MOST_FEATURES: usize = 2_000;
/// Corners of one area, and of all in one file. Whether a border crosses itself is asked of each pair of its edges.
const MOST_CORNERS: usize = 10_000;
const MOST_CORNERS_IN_ALL: usize = 200_000;
/// Parts and holes of one area.
const MOST_RINGS: usize = 500;
const MOST_SERVICE_TYPES: usize = 64;

/// What is wrong with a file of areas, and where in it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ImportError(String);

impl ImportError {
    fn at(self, place: impl fmt::Display) -> Self {
        Self(format!("{place}: {self}"))
    }
}

/// Returns an [`ImportError`] with this text.
macro_rules! refuse {
    ($($text:tt)*) => {
        return Err(ImportError(format!($($text)*)))
    };
}

/// An area that was read, with its geometry as GeoJSON, as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedArea {
    pub area: Area,
    pub geometry: Option<Value>,
}

/// All of them, or what is wrong with the first that is.
pub fn parse(text: &str) -> Result<Vec<ImportedArea>, ImportError> {
    let json: GeoJson = text.parse().map_err(|error| ImportError(format!("this is no GeoJSON: {error}")))?;
    let GeoJson::FeatureCollection(collection) = json else { refuse!("a FeatureCollection is needed") };
    let count = collection.features.len();
    if count > MOST_FEATURES {
        refuse!("it holds {count} features; {MOST_FEATURES} is the most");
    }
    // All are counted before the first is checked.
    let mut corners = 0;
    for (n, feature) in collection.features.iter().enumerate() {
        let counted = feature.geometry.as_ref().map(corners_of).transpose();
        corners += counted.map_err(|error| error.at(format_args!("feature {}", n + 1)))?.unwrap_or_default();
    }
    if corners > MOST_CORNERS_IN_ALL {
        refuse!("it holds {corners} corners; {MOST_CORNERS_IN_ALL} is the most: simplify it");
    }
    let mut ids = HashSet::new();
    let mut areas: Vec<ImportedArea> = Vec::new();
    for (n, feature) in collection.features.into_iter().enumerate() {
        let imported = read_feature(feature).map_err(|error| error.at(format_args!("feature {}", n + 1)))?;
        let id = &imported.area.id;
        if !ids.insert(id.clone()) {
            refuse!("feature {}: area_id {id} comes twice", n + 1);
        }
        areas.push(imported);
    }
    if areas.is_empty() {
        refuse!("it holds no feature");
    }
    Ok(areas)
}

fn read_feature(feature: Feature) -> Result<ImportedArea, ImportError> {
    let properties = feature.properties.unwrap_or_default();
    let text = |name: &str| properties.get(name).and_then(Value::as_str);
    let id =
        text("area_id").ok_or_else(|| ImportError("area_id is missing among its properties".to_owned()))?.to_owned();
    let fits = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !fits {
        refuse!("area_id '{id}' must be 1 to 64 letters, digits, '_' or '-'");
    }
    let place = || format!("area {id}");
    let priority = match properties.get("priority") {
        None | Some(Value::Null) => 0,
        Some(value) => {
            let priority = value.as_i64().and_then(|p| i32::try_from(p).ok());
            priority.ok_or_else(|| ImportError("priority must be a whole number".to_owned()).at(place()))?
        }
    };
    let geohashes = read_geohashes(&properties).map_err(|error| error.at(place()))?;
    let service_types = read_service_types(&properties).map_err(|error| error.at(place()))?;
    let time_zone = read_time_zone(&properties).map_err(|error| error.at(place()))?;
    let polygons = feature.geometry.as_ref().map(checked_polygons).transpose().map_err(|error| error.at(place()))?;
    if polygons.is_none() && geohashes.is_empty() {
        refuse!("{}: it has neither a geometry nor geohashes", place());
    }
    let geometry = feature
        .geometry
        .as_ref()
        .map(serde_json::to_value)
        .transpose()
        .map_err(|error| ImportError(error.to_string()).at(place()))?;
    let name = text("name").unwrap_or(&id).to_owned();
    if let Some(problem) = plain_text::find_problem(&name, 200) {
        refuse!("{}: name {problem}", place());
    }
    let area = Area { id: id.into(), name, priority, polygons, geohashes, service_types, time_zone };
    Ok(ImportedArea { area, geometry })
}

fn read_geohashes(properties: &JsonObject) -> Result<Vec<String>, ImportError> {
    let Some(value) = properties.get("geohashes").filter(|v| !v.is_null()) else { return Ok(Vec::new()) };
    let no_list = || ImportError("geohashes must be a list of texts".to_owned());
    let list = value.as_array().ok_or_else(no_list)?;
    let mut geohashes = Vec::new();
    for item in list {
        let prefix = item.as_str().ok_or_else(no_list)?.to_ascii_lowercase();
        let known = (1..=9).contains(&prefix.len()) && geohash::decode(&prefix).is_ok();
        if !known {
            refuse!("'{prefix}' is no geohash of 1 to 9 characters");
        }
        geohashes.push(prefix);
    }
    Ok(geohashes)
}

/// The service types an area is for, under the name of the requirement. None: all.
fn read_service_types(properties: &JsonObject) -> Result<Vec<ServiceType>, ImportError> {
    let Some(value) = properties.get("service_type").filter(|v| !v.is_null()) else { return Ok(Vec::new()) };
    let names: Option<Vec<&str>> = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let Some(names) = names else { refuse!("service_type must be a list of texts") };
    if names.len() > MOST_SERVICE_TYPES {
        refuse!("service_type names {} service types; {MOST_SERVICE_TYPES} is the most", names.len());
    }
    let fits = |name: &&str| (1..=64).contains(&name.len()) && name.bytes().all(|b| (b'!'..=b'~').contains(&b));
    if let Some(name) = names.iter().find(|name| !fits(name)) {
        refuse!("service_type '{name}' must be 1 to 64 printable characters");
    }
    Ok(names.into_iter().map(ServiceType::from).collect())
}

fn read_time_zone(properties: &JsonObject) -> Result<Option<AreaTimeZone>, ImportError> {
    let Some(value) = properties.get("time_zone").filter(|v| !v.is_null()) else { return Ok(None) };
    let Some(name) = value.as_str() else { refuse!("time_zone must be a text such as Asia/Jakarta") };
    name.parse::<AreaTimeZone>().map(Some).map_err(|error| ImportError(error.to_string()))
}

/// Corners of an area, if they are not too many.
fn corners_of(geometry: &Geometry) -> Result<usize, ImportError> {
    let rings = match &geometry.value {
        GeometryValue::Polygon { coordinates } => coordinates.iter().collect::<Vec<_>>(),
        GeometryValue::MultiPolygon { coordinates } => coordinates.iter().flatten().collect(),
        _ => Vec::new(),
    };
    if rings.len() > MOST_RINGS {
        refuse!("its geometry has {} parts and holes; {MOST_RINGS} is the most", rings.len());
    }
    let corners = rings.iter().map(|ring| ring.len()).sum();
    if corners > MOST_CORNERS {
        refuse!("its geometry has {corners} corners; {MOST_CORNERS} is the most: simplify it");
    }
    Ok(corners)
}

/// A geometry as polygons whose borders are sound: what is kept is checked once, here.
fn checked_polygons(geometry: &Geometry) -> Result<MultiPolygon, ImportError> {
    let polygons = to_polygons(geometry)?;
    if let Err(problem) = polygons.check_validation() {
        refuse!("its polygon is not valid: {problem}");
    }
    let has_area = polygons.unsigned_area() > 0.0;
    if !has_area {
        refuse!("its polygon holds no area");
    }
    Ok(polygons)
}

/// Reads a geometry that was imported, as it is kept.
pub fn read_stored(geometry: Value) -> Result<MultiPolygon, ImportError> {
    let geometry: Geometry = serde_json::from_value(geometry).map_err(|error| ImportError(error.to_string()))?;
    to_polygons(&geometry)
}

/// A geometry as polygons that can be looked up in; whether their borders are sound is not asked again.
fn to_polygons(geometry: &Geometry) -> Result<MultiPolygon, ImportError> {
    let shape = match &geometry.value {
        GeometryValue::Polygon { .. } | GeometryValue::MultiPolygon { .. } => {
            geo::Geometry::<f64>::try_from(geometry).map_err(|error| ImportError(error.to_string()))?
        }
        other => refuse!("its geometry is a {}; Polygon or MultiPolygon is needed", other.type_name()),
    };
    let polygons = match shape {
        geo::Geometry::Polygon(polygon) => MultiPolygon::new(vec![polygon]),
        geo::Geometry::MultiPolygon(polygons) => polygons,
        _ => refuse!("its geometry is no polygon"),
    };
    for coordinate in geo::CoordsIter::coords_iter(&polygons) {
        let on_earth = (-180.0..=180.0).contains(&coordinate.x) && (-90.0..=90.0).contains(&coordinate.y);
        if !on_earth {
            refuse!("{}, {} is no longitude and latitude", coordinate.x, coordinate.y);
        }
    }
    Ok(polygons)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    fn what_cannot_be_an_area_is_named_with_its_place() {
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
            (vec![feature(json!({ "area_id": "A" }), far)], "no longitude and latitude"),
            (vec![feature(json!({ "area_id": "A", "priority": "high" }), square())], "priority"),
            (vec![feature(json!({ "area_id": "A", "geohashes": ["ail"] }), Value::Null)], "no geohash"),
            (vec![feature(json!({ "area_id": "A", "service_type": "RIDE" }), square())], "list of texts"),
            (vec![feature(json!({ "area_id": "A", "service_type": ["a b"] }), square())], "'a b'"),
            (vec![feature(json!({ "area_id": "A", "time_zone": "Asia/Batavia" }), square())], "no IANA time zone"),
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

    /// A regular polygon around (0, 0).
    fn wheel(corners: usize) -> Value {
        let mut ring: Vec<[f64; 2]> = (0..corners - 1)
            .map(|n| (n as f64 / (corners - 1) as f64 * std::f64::consts::TAU).sin_cos())
            .map(|(sin, cos)| [cos, sin])
            .collect();
        ring.push(ring[0]);
        json!({ "type": "Polygon", "coordinates": [ring] })
    }

    #[test]
    fn s05_what_would_take_too_long_to_check_is_refused_before_it_is_checked() {
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
}
