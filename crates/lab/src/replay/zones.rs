//! Zones of rides: polygons from GeoJSON, and random points inside them.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs,
    path::Path,
};

use anyhow::{Context, bail, ensure};
use geo::{BoundingRect, Contains, InteriorPoint, MultiPolygon, Point, Polygon, Rect};
use geojson::{Feature, GeoJson, GeometryValue};
use rand::{Rng, RngExt};

use super::columns::names_match;
use model::ids::LatLng;

const ID: &str = "LocationID";

/// Random points tried before a zone's interior point is used. This suffices for all but very thin zones.
const TRIES: usize = 200;

/// A TLC location id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ZoneId(i64);

impl ZoneId {
    /// Parses an id. Files contain the same id as `7`, `07` or, in months with missing values, `7.0`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        text.strip_suffix(".0").unwrap_or(text).parse().ok().map(Self)
    }
}

/// Polygons by zone.
#[derive(Debug)]
pub(super) struct ZoneMap {
    by_id: HashMap<ZoneId, ZoneArea>,
}

#[derive(Debug)]
struct ZoneArea {
    area: MultiPolygon,
    bounds: Rect,
    /// A point that is certainly inside.
    inside: Point,
}

impl ZoneMap {
    pub(super) fn read_file(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| {
            format!("cannot read the zones file {}; give --zones a GeoJSON file of zone polygons", path.display())
        })?;
        Self::parse(&text, &path.display())
    }

    /// Parses GeoJSON. `name` is only for errors. Features without an id or without an area are ignored.
    pub(super) fn parse(text: &str, name: &dyn fmt::Display) -> anyhow::Result<Self> {
        let json: GeoJson = text.parse().with_context(|| format!("{name} is not GeoJSON"))?;
        let GeoJson::FeatureCollection(collection) = json else {
            bail!("{name} is not a FeatureCollection; --zones needs one feature for each zone");
        };
        let mut areas: HashMap<ZoneId, Vec<Polygon>> = HashMap::new();
        for feature in collection.features {
            let Some(id) = location_id(&feature) else { continue };
            areas.entry(id).or_default().extend(feature_polygons(feature));
        }
        let mut by_id = HashMap::new();
        for (id, polygons) in areas {
            let area = MultiPolygon::new(polygons);
            let (Some(bounds), Some(inside)) = (area.bounding_rect(), area.interior_point()) else { continue };
            let world = Rect::new((-180.0, -90.0), (180.0, 90.0));
            ensure!(
                world.contains(&bounds),
                "zone {} of {name} is not in degrees; convert the file to WGS84 (EPSG:4326)",
                id.0
            );
            by_id.insert(id, ZoneArea { area, bounds, inside });
        }
        ensure!(!by_id.is_empty(), "{name} has no polygon with a property {ID}; --zones needs TLC taxi zones");
        Ok(Self { by_id })
    }

    /// Returns the shapes of the zones by id.
    pub(super) fn shapes(&self) -> BTreeMap<i64, &MultiPolygon> {
        self.by_id.iter().map(|(id, zone)| (id.0, &zone.area)).collect()
    }

    /// Returns the zones, each with a point that is certainly inside.
    pub(super) fn inner_places(&self) -> impl Iterator<Item = (ZoneId, LatLng)> {
        self.by_id.iter().map(|(id, zone)| (*id, LatLng::new(zone.inside.y(), zone.inside.x())))
    }

    pub(super) fn contains_zone(&self, id: ZoneId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Returns a random point inside a zone.
    pub(super) fn random_point(&self, id: ZoneId, rng: &mut impl Rng) -> Option<Point> {
        let zone = self.by_id.get(&id)?;
        let (min, max) = (zone.bounds.min(), zone.bounds.max());
        let random = || Point::new(rng.random_range(min.x..=max.x), rng.random_range(min.y..=max.y));
        let hit = std::iter::repeat_with(random).take(TRIES).find(|point| zone.area.contains(point));
        Some(hit.unwrap_or(zone.inside))
    }
}

fn location_id(feature: &Feature) -> Option<ZoneId> {
    let (_, value) = feature.properties.as_ref()?.iter().find(|(name, _)| names_match(name, ID))?;
    match value {
        serde_json::Value::String(text) => ZoneId::parse(text),
        serde_json::Value::Number(number) => ZoneId::parse(&number.to_string()),
        _ => None,
    }
}

fn feature_polygons(feature: Feature) -> Vec<Polygon> {
    let Some(geometry) = feature.geometry else { return Vec::new() };
    match geometry.value {
        value @ GeometryValue::Polygon { .. } => Polygon::try_from(value).into_iter().collect(),
        value @ GeometryValue::MultiPolygon { .. } => {
            MultiPolygon::try_from(value).map_or_else(|_| Vec::new(), |multi| multi.0)
        }
        _ => Vec::new(),
    }
}

/// Returns test zones. Zone 1: a square of one degree with a hole in its middle. Zone 2: two squares. Zone 3: a square
/// in two features.
#[cfg(test)]
pub(super) fn fixture() -> ZoneMap {
    let square = |x: f64, y: f64, side: f64| {
        let (w, s, e, n) = (x, y, x + side, y + side);
        format!("[[{w},{s}],[{e},{s}],[{e},{n}],[{w},{n}],[{w},{s}]]")
    };
    let feature = |properties: &str, kind: &str, coordinates: String| {
        format!(
            r#"{{"type":"Feature","properties":{{{properties}}},
                "geometry":{{"type":"{kind}","coordinates":[{coordinates}]}}}}"#
        )
    };
    let hole = format!("{},{}", square(0.0, 0.0, 1.0), square(0.1, 0.1, 0.8));
    let islands = format!("[{}],[{}]", square(10.0, 0.0, 1.0), square(12.0, 0.0, 1.0));
    let features = [
        feature(r#""LocationID":1"#, "Polygon", hole),
        feature(r#""locationid":"2""#, "MultiPolygon", islands),
        feature(r#""location_id":3.0"#, "Polygon", square(20.0, 0.0, 1.0)),
        feature(r#""LocationID":"3""#, "Polygon", square(22.0, 0.0, 1.0)),
        feature(r#""LocationID":4"#, "LineString", "[0,0],[1,1]".to_owned()),
        r#"{"type":"Feature","properties":{"LocationID":5},"geometry":null}"#.to_owned(),
        feature(r#""zone":"nameless""#, "Polygon", square(0.0, 0.0, 1.0)),
    ];
    let text = format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","));
    ZoneMap::parse(&text, &"zones.geojson").unwrap()
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    fn points(id: i64) -> Vec<Point> {
        let (zones, mut rng) = (fixture(), StdRng::seed_from_u64(7));
        (0..100).map(|_| zones.random_point(ZoneId(id), &mut rng).unwrap()).collect()
    }

    #[test]
    fn random_points_avoid_holes() {
        for point in points(1) {
            let in_hole = (0.1..0.9).contains(&point.x()) && (0.1..0.9).contains(&point.y());
            assert!((0.0..=1.0).contains(&point.x()) && !in_hole, "{point:?}");
        }
    }

    #[test]
    fn features_without_area_are_ignored() {
        let zones = fixture();
        let known: Vec<_> = (1..=6).filter(|id| zones.contains_zone(ZoneId(*id))).collect();
        assert_eq!(known, [1, 2, 3]);
    }

    #[test]
    fn wrong_zones_file_error_names_the_format() {
        let error = |text: &str| format!("{:#}", ZoneMap::parse(text, &"z.json").unwrap_err());
        assert!(error("{}").contains("z.json is not GeoJSON"));
        assert!(error(r#"{"type":"FeatureCollection","features":[]}"#).contains("LocationID"));
        let feet = r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"LocationID":1},"geometry":
            {"type":"Polygon","coordinates":[[[900000,1],[900001,1],[900001,2],[900000,1]]]}}]}"#;
        assert!(error(feet).contains("WGS84"));
        assert!(format!("{:#}", ZoneMap::read_file(Path::new("/no/z.json")).unwrap_err()).contains("--zones"));
    }
}
