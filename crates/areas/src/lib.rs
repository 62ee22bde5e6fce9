//! Areas on the map, and how many orders may wait in each.
//! Design: docs/design/areas.md.
//!
//! * [`capability`]: the struct that the other crates hold.
//! * [`import`]: areas as GeoJSON, checked.
//! * [`table`]: areas, limits, overrides and the flag as rows, with the audit of their changes.
//! * [`rules`]: the whole configuration of areas, in memory; `reload` keeps it up to date.
//! * [`admission`]: accepts or refuses one more order in an area.
//! * [`standings`]: what this process last saw of each area.
//! * [`label`]: areas as labels of metrics. [`tally`]: verdicts of requests, until they are stored.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod admission;
pub mod capability;
pub mod import;
pub mod label;
mod reload;
pub mod rules;
pub mod standings;
pub mod table;
pub mod tally;
