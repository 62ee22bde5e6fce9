//! Areas of the earth: polygons, geohashes, and which of them a place lies in.
//!
//! * [`geofence`]: looking up the area of a place, among thousands.

pub mod geofence;

use geo::MultiPolygon;

pub use geofence::Geofence;

use crate::ids::AreaId;

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
}
