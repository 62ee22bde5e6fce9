//! Dead letters: jobs with no retries left. Redis stores them; Postgres stores a copy and the decision on each. Design:
//! docs/design/desk.md.
//!
//! * [`mirror`]: updates the copy and restores what Redis has lost.
//! * [`requeue_policy`]: decides whether a dead job may be requeued. Pure.
//! * [`decide`]: requeues or discards one dead job.
//! * [`walk`]: lists dead letters page by page.
//! * [`bulk`]: decides on many dead letters.
//! * [`redeliver`]: lists outbox messages and sends dead ones again.
//! * [`explain`]: explains one dead letter.

pub mod bulk;
pub mod decide;
pub mod explain;
pub mod mirror;
pub mod redeliver;
pub mod requeue_policy;
pub mod walk;
