//! Tests of the processors.
//!
//! * `at_least_once`: repeated, early, stale or interrupted jobs change nothing.

// Request futures are nested deeper than the default allows.
#![recursion_limit = "256"]

mod at_least_once;
