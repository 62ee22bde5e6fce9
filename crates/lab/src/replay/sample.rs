//! The built-in sample: one evening in an invented town, in the formats of the real data.
//!
//! It has some of the dirt real data has, and a few rides from a lighthouse so far out that no driver comes: one sees what
//! is skipped, what ends without a driver, and what a person must decide.

pub(super) const RIDES: &str = include_str!("sample/rides.csv");
pub(super) const ZONES: &str = include_str!("sample/zones.geojson");
/// Named in errors.
pub(super) const NAME: &str = "the built-in sample";
