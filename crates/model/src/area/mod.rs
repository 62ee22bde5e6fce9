//! Areas of the earth: polygons, geohashes, and which of them a place lies in.
//!
//! * [`geofence`]: looking up the area of a place, among thousands.

pub mod geofence;

use geo::MultiPolygon;

pub use geofence::Geofence;

use crate::{
    admission::schedule::AreaTimeZone,
    ids::{AreaId, ServiceType},
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
    /// Returns whether it is an area for this service type. Places of others lie in the area below it, or in none.
    pub fn serves(&self, service_type: &ServiceType) -> bool {
        self.service_types.is_empty() || self.service_types.contains(service_type)
    }
}
