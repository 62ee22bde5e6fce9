//! The tests of areas: shapes, limits and waiting orders.
//!
//! * `admission`: orders are refused early in full areas.
//! * `interfaces`: areas over HTTP, as operators use them, and in SQL.
//! * `locating`: squares of the grid against all shapes.
//! * `changes`: costly or broken shapes, versions of changes, long histories.

// Nested request futures exceed the default limit.
#![recursion_limit = "256"]

mod admission;
mod changes;
mod interfaces;
mod locating;
