//! The tests of the processors.
//!
//! * `at_least_once`: jobs that are doubled, early, stale or interrupted change nothing.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod at_least_once;
