//! Actions of operators on single jobs and dead letters, and their records.

mod explain;
mod jobs;
mod mirror;
mod requeue;
mod slices;

use desk::dead_letters::decide::DecisionAuthor;
use test_support::{
    by,
    dead_letters::{bury_due, dead, dead_ids, job},
};

fn anna() -> DecisionAuthor {
    DecisionAuthor { who: by("operator:anna"), why: Some("routing is back".to_owned()) }
}
