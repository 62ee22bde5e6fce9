//! Plans: bulk staff actions. A plan stores the action with the exact ids first, then runs once, at a limited rate.
//! Design: docs/design/desk.md.
//!
//! * `create`: stores a plan, and starts it if requested. `binding_plans`, `dead_plans`: the items and actions of the
//!   two kinds.
//! * `control`: starts or cancels a plan by its id.
//! * `run_plan`: the job of a plan. It runs a bounded batch; the row then has the time of the next one.
//! * `restore`: jobs that Redis must have for plans.
//! * `store`: rows. `error`: errors.
//!
//! An item calls the same service as the single command, and its result is recorded afterwards. If the process dies in
//! between, the history of the changed subject shows that the plan did it. The item is then recorded and not run again.

pub mod binding_plans;
pub mod control;
pub mod create;
pub mod dead_plans;
pub mod error;
pub mod restore;
pub mod run_plan;
pub mod store;
