//! The built-in sample: one evening in an invented town, in the formats of the real data.
//!
//! It contains some dirty rows as real data does, and a few rides from a lighthouse that no driver reaches. So a run
//! shows skipped rows, orders without a driver, and orders that a person must decide on.

pub(super) const RIDES: &str = include_str!("sample/rides.csv");
pub(super) const ZONES: &str = include_str!("sample/zones.geojson");
/// Name for errors.
pub(super) const NAME: &str = "the built-in sample";
