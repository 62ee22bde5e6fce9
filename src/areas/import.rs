//! Areas as GeoJSON: a FeatureCollection of polygons, each with `area_id` and perhaps `name`, `priority` and `geohashes` among
//! its properties. A feature without geometry needs geohashes.

use anyhow::{Context, bail, ensure};
use geo::{Area as _, MultiPolygon, Validation};
use geojson::{Feature, GeoJson, Geometry, GeometryValue, JsonObject};
use serde_json::Value;

use super::Area;
use crate::plain_text;

/// An area that was read, with its geometry as GeoJSON, as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedArea {
    pub area: Area,
    pub geometry: Option<Value>,
}

/// All of them, or what is wrong with the first that is.
pub fn parse(text: &str) -> anyhow::Result<Vec<ImportedArea>> {
    let json: GeoJson = text.parse().context("this is no GeoJSON")?;
    let GeoJson::FeatureCollection(collection) = json else { bail!("a FeatureCollection is needed") };
    let mut areas: Vec<ImportedArea> = Vec::new();
    for (n, feature) in collection.features.into_iter().enumerate() {
        let imported = read(feature).with_context(|| format!("feature {}", n + 1))?;
        let id = &imported.area.id;
        ensure!(areas.iter().all(|known| known.area.id != *id), "feature {}: area_id {id} comes twice", n + 1);
        areas.push(imported);
    }
    ensure!(!areas.is_empty(), "it holds no feature");
    Ok(areas)
}

fn read(feature: Feature) -> anyhow::Result<ImportedArea> {
    let properties = feature.properties.unwrap_or_default();
    let text = |name: &str| properties.get(name).and_then(Value::as_str);
    let id = text("area_id").context("area_id is missing among its properties")?.to_owned();
    let fits = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    ensure!(fits, "area_id '{id}' must be 1 to 64 letters, digits, '_' or '-'");
    let place = || format!("area {id}");
    let priority = match properties.get("priority") {
        None | Some(Value::Null) => 0,
        Some(value) => {
            let priority = value.as_i64().and_then(|p| i32::try_from(p).ok());
            priority.with_context(|| format!("{}: priority must be a whole number", place()))?
        }
    };
    let geohashes = geohashes(&properties).with_context(place)?;
    let polygons = feature.geometry.as_ref().map(polygons).transpose().with_context(place)?;
    ensure!(polygons.is_some() || !geohashes.is_empty(), "{}: it has neither a geometry nor geohashes", place());
    let geometry = feature.geometry.as_ref().map(serde_json::to_value).transpose()?;
    let name = text("name").unwrap_or(&id).to_owned();
    if let Some(problem) = plain_text::problem(&name, 200) {
        bail!("{}: name {problem}", place());
    }
    Ok(ImportedArea { area: Area { id, name, priority, polygons, geohashes }, geometry })
}

fn geohashes(properties: &JsonObject) -> anyhow::Result<Vec<String>> {
    let Some(value) = properties.get("geohashes").filter(|v| !v.is_null()) else { return Ok(Vec::new()) };
    let list = value.as_array().context("geohashes must be a list of texts")?;
    let mut geohashes = Vec::new();
    for item in list {
        let prefix = item.as_str().context("geohashes must be a list of texts")?.to_ascii_lowercase();
        let known = (1..=9).contains(&prefix.len()) && geohash::decode(&prefix).is_ok();
        ensure!(known, "'{prefix}' is no geohash of 1 to 9 characters");
        geohashes.push(prefix);
    }
    Ok(geohashes)
}

/// A geometry as polygons that can be looked up in.
pub fn polygons(geometry: &Geometry) -> anyhow::Result<MultiPolygon> {
    let shape = match &geometry.value {
        GeometryValue::Polygon { .. } | GeometryValue::MultiPolygon { .. } => geo::Geometry::<f64>::try_from(geometry)?,
        other => bail!("its geometry is a {}; Polygon or MultiPolygon is needed", other.type_name()),
    };
    let polygons = match shape {
        geo::Geometry::Polygon(polygon) => MultiPolygon::new(vec![polygon]),
        geo::Geometry::MultiPolygon(polygons) => polygons,
        _ => bail!("its geometry is no polygon"),
    };
    for coordinate in geo::CoordsIter::coords_iter(&polygons) {
        let on_earth = (-180.0..=180.0).contains(&coordinate.x) && (-90.0..=90.0).contains(&coordinate.y);
        ensure!(on_earth, "{}, {} is no longitude and latitude", coordinate.x, coordinate.y);
    }
    if let Err(problem) = polygons.check_validation() {
        bail!("its polygon is not valid: {problem}");
    }
    ensure!(polygons.unsigned_area() > 0.0, "its polygon holds no area");
    Ok(polygons)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn feature(properties: Value, geometry: Value) -> Value {
        json!({ "type": "Feature", "properties": properties, "geometry": geometry })
    }

    fn of(features: Vec<Value>) -> anyhow::Result<Vec<ImportedArea>> {
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
}
