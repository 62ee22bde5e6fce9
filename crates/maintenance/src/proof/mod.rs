//! The continuous proof of the history: a fold over the steps of orders that checks every invariant of `check history`
//! a few seconds after each change. Design: docs/design/proof.md.
//!
//! The periodic job `proof` runs slices. A slice reads the new steps, checks their orders, and records violations
//! together with its new place in one statement. A process that dies before this statement changes nothing, and the
//! next slice of any worker starts at the same place. A violation never stops the fold.
//!
//! * [`slice`]: one slice. [`place`]: the stored place. `steps`: reads the feed. [`scope`]: orders and
//!   bindings of a slice. [`walk`]: rows without a new step, which each slice checks page by page.
//! * [`invariants`]: runs the queries of [`crate::audit`] on the rows of a scope. [`redis_samples`]: timers, dead jobs,
//!   waiting sets and slots.
//! * [`violations`]: recorded violations. [`status`]: how far the history is proven.
//!
//! The fold reads rows and derived timers. It calls no decision of `model`, so it does not share the fault that it
//! looks for.

pub mod invariants;
pub mod place;
mod processor_time;
pub mod redis_samples;
pub mod scope;
pub mod slice;
pub mod status;
mod steps;
pub mod violations;
pub mod walk;
