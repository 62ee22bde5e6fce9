//! Areas: polygons, geohashes, and the lookup of an area by location.
//!
//! * [`borders`]: checks the rings of an area.
//! * [`geofence`]: finds the area of a location among thousands.

pub mod borders;
pub mod geofence;

use geo::MultiPolygon;

pub use geofence::Geofence;

use crate::{
    admission::schedule::AreaTimeZone,
    ids::{AreaId, LatLng, ServiceType},
};

#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    pub id: AreaId,
    pub name: String,
    /// Priority. Where areas overlap, the highest wins.
    pub priority: i32,
    /// Polygons in degrees; `None` if the area has only geohashes.
    pub polygons: Option<MultiPolygon>,
    /// Geohash prefixes. `qqgu` covers all locations whose geohash starts with it.
    pub geohashes: Vec<String>,
    /// Service types that the area is for; empty for all.
    pub service_types: Vec<ServiceType>,
    /// Time zone; `None` for the time zone of the installation.
    pub time_zone: Option<AreaTimeZone>,
}

impl Area {
    /// Returns the outer rings of the polygons and the cells of the geohashes, for drawing on a map. Holes are omitted.
    pub fn outlines(&self) -> Vec<Vec<LatLng>> {
        let rings = self.polygons.iter().flatten().map(|polygon| {
            let corners = polygon.exterior().coords().map(|corner| LatLng::new(corner.y, corner.x));
            corners.collect::<Vec<_>>()
        });
        let cells = self.geohashes.iter().filter_map(|prefix| {
            let cell = geohash::decode_bbox(&prefix.to_ascii_lowercase()).ok()?;
            let (low, high) = (cell.min(), cell.max());
            let corners = [(low.y, low.x), (low.y, high.x), (high.y, high.x), (high.y, low.x)];
            Some(corners.map(|(lat, lng)| LatLng::new(lat, lng)).to_vec())
        });
        rings.chain(cells).collect()
    }

    /// Returns whether the area is for this service type. For other service types the lookup ignores the area.
    pub fn serves(&self, service_type: &ServiceType) -> bool {
        self.service_types.is_empty() || self.service_types.contains(service_type)
    }
}

#[cfg(test)]
mod tests {
    use geo::polygon;

    use super::*;

    #[test]
    fn outlines_are_rings_and_cells() {
        let ring = polygon![(x: 106.0, y: -7.0), (x: 107.0, y: -7.0), (x: 107.0, y: -6.0)];
        let area = Area {
            id: "A".into(),
            name: "A".to_owned(),
            priority: 0,
            polygons: Some(MultiPolygon::new(vec![ring])),
            geohashes: vec!["S".to_owned(), "not one".to_owned()],
            service_types: Vec::new(),
            time_zone: None,
        };
        let outlines = area.outlines();
        assert_eq!(outlines.len(), 2);
        assert_eq!(outlines[0][..3], [LatLng::new(-7.0, 106.0), LatLng::new(-7.0, 107.0), LatLng::new(-6.0, 107.0)]);
        // `s` is the cell north-east of the origin. It is 45 degrees wide.
        assert_eq!(outlines[1][2], LatLng::new(45.0, 45.0));
    }
}
