//! Dead letters: jobs that were given up. Redis holds them, Postgres a copy and what was decided on each.
//! Design: docs/design/plans-and-dead-letters.md.
//!
//! * [`mirror`]: keeps the copy, and puts back what Redis has lost.
//! * [`requeue_policy`]: may a dead job of an order have another life? Pure.
//! * [`decide`]: gives one dead job another life, or forgets it.
//! * [`walk`]: the list, page by page.
//! * [`bulk`]: decides on many.
//! * [`redeliver`]: dead messages, listed and sent again by hand.
//! * [`explain`]: everything a person needs to decide on one.

pub mod bulk;
pub mod decide;
pub mod explain;
pub mod mirror;
pub mod redeliver;
pub mod requeue_policy;
pub mod walk;
