//! Areas on the map, and the number of orders that may wait in each. Design: docs/design/areas.md.
//!
//! * [`capability`]: the struct through which other crates use this one.
//! * [`import`]: reads and validates areas from GeoJSON.
//! * [`table`]: rows of areas, limits, overrides and the flag, with the audit of their changes.
//! * [`rules`]: the whole configuration of areas in memory; `reload` keeps it up to date.
//! * [`admission`]: accepts or refuses a new order in an area.
//! * [`standings`]: the latest known state of each area in this process.
//! * [`label`]: metric labels of areas. [`tally`]: verdicts of requests, until they are stored.

// The futures of handlers are nested deeper than the default limit.
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
