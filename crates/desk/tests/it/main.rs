//! Tests of staff actions.
//!
//! * `operator`: actions of operators on single jobs and dead letters, and their records.
//! * `privacy`: an erasure removes personal data, and the history stays valid. `free_texts`: the same for free texts.
//! * `scale`: the number of workers reported to an autoscaler.

// Request futures are nested deeper than the default allows.
#![recursion_limit = "256"]

mod free_texts;
mod operator;
mod privacy;
mod scale;
