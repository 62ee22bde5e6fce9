//! Areas of the earth: polygons, geohashes, and which of them a place lies in.
//!
//! * [`borders`]: checking the rings of an area.
//! * [`geofence`]: looking up the area of a place, among thousands.

pub mod borders;
pub mod geofence;

use geo::MultiPolygon;

pub use geofence::Geofence;

use crate::{
    admission::schedule::AreaTimeZone,
    ids::{AreaId, LatLng, ServiceType},
};

/// An area as dispatch sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    pub id: AreaId,
    pub name: String,
    /// Where areas overlap the highest wins.
    pub priority: i32,
    /// In degrees; `None`: geohashes alone.
    pub polygons: Option<MultiPolygon>,
    /// Prefixes: `qqgu` stands for all places whose geohash begins so.
    pub geohashes: Vec<String>,
    /// What it is an area for; empty: all service types.
    pub service_types: Vec<ServiceType>,
    /// `None`: the installation's.
    pub time_zone: Option<AreaTimeZone>,
}

impl Area {
    /// The outer rings of its polygons and the cells of its geohashes, as a map draws them. Holes are left out.
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

    /// Returns whether it is an area for this service type. Places of others lie in the area below it, or in none.
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
        // `s` is the cell north and east of the origin, 45 degrees wide.
        assert_eq!(outlines[1][2], LatLng::new(45.0, 45.0));
    }
}
