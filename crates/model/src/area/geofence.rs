//! Finds the area of a location.
//!
//! An R-tree of bounding boxes holds the polygons, so that a lookup among a thousand checks only a few. A hash map
//! holds the geohash prefixes. Several areas may contain the location and serve the service type. They are compared by
//! the priority of their limits, then by their own priority. A polygon then wins over a geohash, and the lowest id wins
//! last.

use std::collections::HashMap;

use geo::{BoundingRect, Distance, Haversine, InteriorPoint, Intersects, MultiPolygon, Point, Rect};
use rstar::{AABB, RTree, RTreeObject};

use super::Area;
use crate::ids::{AreaId, LatLng, ServiceType};

/// Longest geohash prefix that is looked up. Its cells are a few metres wide.
const LONGEST_GEOHASH: usize = 9;

/// Lookup index of all areas.
#[derive(Debug, Default)]
pub struct Geofence {
    areas: Vec<Area>,
    by_id: HashMap<AreaId, usize>,
    /// A point inside each area.
    middles: Vec<Option<Point>>,
    polygons: RTree<PolygonEntry>,
    by_geohash: HashMap<String, Vec<usize>>,
}

#[derive(Debug)]
struct PolygonEntry {
    area: usize,
    bounds: Rect,
    polygons: MultiPolygon,
}

impl RTreeObject for PolygonEntry {
    type Envelope = AABB<[f64; 2]>;

    fn envelope(&self) -> Self::Envelope {
        AABB::from_corners(self.bounds.min().into(), self.bounds.max().into())
    }
}

impl Geofence {
    pub fn new(areas: Vec<Area>) -> Self {
        let mut entries = Vec::new();
        let mut by_geohash: HashMap<String, Vec<usize>> = HashMap::new();
        for (n, area) in areas.iter().enumerate() {
            for prefix in &area.geohashes {
                by_geohash.entry(prefix.to_ascii_lowercase()).or_default().push(n);
            }
            let Some(polygons) = &area.polygons else { continue };
            // One entry per polygon: a single box around a city and its islands would be too large.
            for polygon in polygons {
                if let Some(bounds) = polygon.bounding_rect() {
                    entries.push(PolygonEntry { area: n, bounds, polygons: MultiPolygon::new(vec![polygon.clone()]) });
                }
            }
        }
        let middles = areas.iter().map(area_middle).collect();
        let by_id = areas.iter().enumerate().map(|(n, area)| (area.id.clone(), n)).collect();
        Self { areas, by_id, middles, polygons: RTree::bulk_load(entries), by_geohash }
    }

    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    pub fn is_empty(&self) -> bool {
        self.areas.is_empty()
    }

    pub fn get(&self, id: &AreaId) -> Option<&Area> {
        self.by_id.get(id).map(|n| &self.areas[*n])
    }

    /// Returns the area of a location for a service type. The border belongs to the area. `limits_priority` returns the
    /// priority of an area's limits for the service type, or 0 if it has none.
    pub fn find_area(
        &self,
        place: LatLng,
        service_type: &ServiceType,
        limits_priority: impl Fn(&AreaId) -> i32,
    ) -> Option<&Area> {
        let by_polygon = meridians_of(place.lng).flat_map(|lng| {
            let here = AABB::from_point([lng, place.lat]);
            let near = self.polygons.locate_in_envelope_intersecting(&here);
            near.filter(move |entry| entry.polygons.intersects(&Point::new(lng, place.lat)))
        });
        let by_polygon = by_polygon.map(|entry| (entry.area, true));
        let by_geohash = self.areas_by_geohash(place).map(|area| (area, false));
        let rank = |(n, by_polygon): &(usize, bool)| {
            let area = &self.areas[*n];
            (limits_priority(&area.id), area.priority, *by_polygon, std::cmp::Reverse(area.id.clone()))
        };
        let serving = by_polygon.chain(by_geohash).filter(|(n, _)| self.areas[*n].serves(service_type));
        serving.max_by_key(rank).map(|(n, _)| &self.areas[n])
    }

    fn areas_by_geohash(&self, place: LatLng) -> impl Iterator<Item = usize> {
        let hash = if self.by_geohash.is_empty() {
            String::new()
        } else {
            // Cells include their western border, so a location on the 180th meridian lies in the cells that start at
            // -180.
            let x = meridians_of(place.lng).fold(place.lng, f64::min);
            geohash::encode(geohash::Coord { x, y: place.lat }, LONGEST_GEOHASH).unwrap_or_default()
        };
        let found: Vec<usize> =
            (1..=hash.len()).filter_map(|length| self.by_geohash.get(&hash[..length])).flatten().copied().collect();
        found.into_iter()
    }

    /// Returns the areas sorted by the distance of their middle to this location, in metres, nearest first.
    pub fn nearest_areas(&self, place: LatLng) -> Vec<(&Area, f64)> {
        let point = place.as_point();
        let mut near: Vec<_> = (self.areas.iter().zip(&self.middles))
            .filter_map(|(area, middle)| Some((area, Haversine.distance(point, (*middle)?).round())))
            .collect();
        near.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.id.cmp(&b.0.id)));
        near
    }
}

/// Returns the longitude and, at 180°, its equivalent: -180 and 180 are the same meridian.
fn meridians_of(lng: f64) -> impl Iterator<Item = f64> {
    let other = (lng.abs() >= 180.0).then_some(-lng);
    std::iter::once(lng).chain(other)
}

fn area_middle(area: &Area) -> Option<Point> {
    if let Some(polygons) = &area.polygons {
        return polygons.interior_point();
    }
    let (place, ..) = geohash::decode(&area.geohashes.first()?.to_ascii_lowercase()).ok()?;
    Some(Point::new(place.x, place.y))
}

#[cfg(test)]
mod tests {
    use geo::{Polygon, polygon};

    use super::*;

    fn square(west: f64, south: f64, side: f64) -> Polygon {
        polygon![(x: west, y: south), (x: west + side, y: south), (x: west + side, y: south + side), (x: west, y: south + side)]
    }

    fn area(id: &str, priority: i32, polygons: Vec<Polygon>, geohashes: &[&str]) -> Area {
        Area {
            id: id.into(),
            name: id.to_owned(),
            priority,
            polygons: (!polygons.is_empty()).then(|| MultiPolygon::new(polygons)),
            geohashes: geohashes.iter().map(|g| (*g).to_owned()).collect(),
            service_types: Vec::new(),
            time_zone: None,
        }
    }

    fn at(fence: &Geofence, lat: f64, lng: f64) -> Option<&str> {
        fence.find_area(LatLng::new(lat, lng), &"RIDE".into(), |_| 0).map(|area| area.id.as_str())
    }

    #[test]
    fn overlapping_areas_use_highest_priority() {
        let fence = Geofence::new(vec![
            area("CITY", 0, vec![square(0.0, 0.0, 10.0)], &[]),
            area("AIRPORT", 5, vec![square(1.0, 1.0, 1.0)], &[]),
        ]);
        assert_eq!((at(&fence, 1.5, 1.5), at(&fence, 5.0, 5.0)), (Some("AIRPORT"), Some("CITY")));
        assert_eq!(at(&fence, 11.0, 5.0), None);
    }

    #[test]
    fn area_serves_only_its_service_types() {
        let taxis = Area { service_types: vec!["TAXI".into()], ..area("RANK", 5, vec![square(1.0, 1.0, 1.0)], &[]) };
        let fence = Geofence::new(vec![area("CITY", 0, vec![square(0.0, 0.0, 10.0)], &[]), taxis]);
        let of = |service_type: &str| {
            let found = fence.find_area(LatLng::new(1.5, 1.5), &service_type.into(), |_| 0);
            found.map(|area| area.id.as_str())
        };
        assert_eq!((of("TAXI"), of("RIDE")), (Some("RANK"), Some("CITY")));
    }

    #[test]
    fn limits_priority_precedes_area_priority() {
        let fence = Geofence::new(vec![
            area("CITY", 0, vec![square(0.0, 0.0, 10.0)], &[]),
            area("AIRPORT", 5, vec![square(1.0, 1.0, 1.0)], &[]),
        ]);
        let with = |city: i32| {
            let priority = |area: &AreaId| if *area == "CITY" { city } else { 0 };
            fence.find_area(LatLng::new(1.5, 1.5), &"RIDE".into(), priority).map(|area| area.id.as_str())
        };
        assert_eq!([with(0), with(1), with(-1)], [Some("AIRPORT"), Some("CITY"), Some("AIRPORT")]);
    }

    #[test]
    fn holes_are_outside_borders_are_inside() {
        let mut ring = square(0.0, 0.0, 10.0);
        ring.interiors_push(square(4.0, 4.0, 2.0).exterior().clone());
        let fence = Geofence::new(vec![area("RING", 0, vec![ring, square(20.0, 20.0, 1.0)], &[])]);
        assert_eq!(at(&fence, 5.0, 5.0), None);
        assert_eq!([at(&fence, 1.0, 1.0), at(&fence, 20.5, 20.5), at(&fence, 0.0, 5.0)], [Some("RING"); 3]);
    }

    #[test]
    fn geohash_prefix_covers_its_locations() {
        // The geohash of the Monas in Jakarta starts with qqguyu.
        let fence = Geofence::new(vec![
            area("JKT", 0, vec![], &["qqgu"]),
            area("MONAS", 1, vec![], &["QQGUYU", "qqguyv"]),
            area("MAP", 0, vec![square(106.8, -6.2, 0.1)], &[]),
        ]);
        let hash = geohash::encode(geohash::Coord { x: 106.8272, y: -6.1754 }, 9).unwrap();
        assert!(hash.starts_with("qqgu"), "{hash}");
        let expected = if hash.starts_with("qqguyu") || hash.starts_with("qqguyv") { "MONAS" } else { "MAP" };
        assert_eq!(at(&fence, -6.1754, 106.8272), Some(expected));
        assert!(at(&fence, -6.2600, 106.8100).is_some());
        assert_eq!(at(&fence, 0.0, 0.0), None);
    }

    // Rule F3: A location on the 180th meridian is in the same area whether its longitude is written as -180 or 180.
    #[test]
    fn both_names_of_the_meridian_find_the_same_area() {
        let fence = Geofence::new(vec![
            area("EAST", 0, vec![square(179.0, 0.0, 1.0)], &[]),
            area("WEST", 0, vec![square(-180.0, 10.0, 1.0)], &[]),
            area("LOW", 0, vec![square(179.0, 20.0, 1.0)], &[]),
            area("HIGH", 1, vec![square(-180.0, 20.0, 1.0)], &[]),
            area("CELL", 0, vec![], &["8"]),
        ]);
        for (lat, expected) in [(0.5, "EAST"), (10.5, "WEST"), (20.5, "HIGH"), (30.0, "CELL")] {
            assert_eq!([at(&fence, lat, 180.0), at(&fence, lat, -180.0)], [Some(expected); 2], "{lat}");
        }
        assert_eq!([at(&fence, 0.5, 179.5), at(&fence, 0.5, -179.5)], [Some("EAST"), Some("CELL")]);
    }

    #[test]
    fn nearest_areas_come_first() {
        let fence = Geofence::new(vec![
            area("FAR", 0, vec![square(5.0, 5.0, 1.0)], &[]),
            area("NEAR", 0, vec![square(1.0, 1.0, 1.0)], &[]),
        ]);
        let near: Vec<_> =
            fence.nearest_areas(LatLng::new(0.0, 0.0)).into_iter().map(|(area, _)| area.id.as_str()).collect();
        assert_eq!(near, ["NEAR", "FAR"]);
    }
}
