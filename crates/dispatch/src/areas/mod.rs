//! Areas of the earth, and [`import`]: areas as GeoJSON, checked.

pub mod import;

pub use model::area::{Area, Geofence, geofence};
