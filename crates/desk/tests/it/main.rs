//! The tests of the work of staff.
//!
//! * `operator`: what operators do with single jobs and with dead letters, and what is kept of it.
//! * `privacy`: what is known about a person goes, and the history stays sound. `free_texts`: so do free texts about the person.
//! * `scale`: how many workers an autoscaler is told to run.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod free_texts;
mod operator;
mod privacy;
mod scale;
