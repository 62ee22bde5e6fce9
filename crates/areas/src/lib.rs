//! Areas of the earth: where they are, and how many orders may wait in each.
//! Design: docs/design/areas.md.
//!
//! * [`import`]: areas as GeoJSON, checked.
//! * [`table`]: areas, limits, overrides and the flag as rows; who changed what and why.
//! * [`rules`]: all that is configured, in memory, and kept up to date.
//! * [`standings`]: what this process saw of each area last.
//! * [`label`]: areas as labels of metrics. [`tally`]: what became of requests for places, until it is kept.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod admission;
pub mod capability;
pub mod import;
pub mod label;
pub mod rules;
pub mod standings;
pub mod table;
pub mod tally;
