//! Mass actions: what is to be done to many at once is stored with the exact ids first, then run once, at a pace.
//! Design: docs/design/plans-and-dead-letters.md.
//!
//! * `create`: a plan is stored, and started if that is wanted. `binding_plans`, `dead_plans`: what those of bindings and of dead jobs hold and do.
//! * `control`: a plan is run or cancelled by its id.
//! * `run_plan`: what the job does: a bounded batch, then the row says when the next is due.
//! * `restore`: the jobs that Redis must have of plans.
//! * `store`: rows. `error`: why a plan was not stored, run or performed.
//!
//! An item is performed by the service that performs the single command, and recorded afterwards. If a process dies in
//! between, the history of what was changed says that the plan did it: the item is recorded, and not performed again.

pub mod binding_plans;
pub mod control;
pub mod create;
pub mod dead_plans;
pub mod error;
pub mod restore;
pub mod run_plan;
pub mod store;
