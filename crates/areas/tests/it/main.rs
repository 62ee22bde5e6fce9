//! The tests of areas: their shapes and limits, and who waits in them.
//!
//! * `admission`: orders are refused early where an area is full.
//! * `interfaces`: areas as operators see and change them over HTTP, and as SQL sees them.
//! * `changes`: costly or broken shapes, versions of changes, long histories.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod admission;
mod changes;
mod interfaces;
