//! Plans: what is to be done to many at once, stored with the exact ids before it is done, and run once.
//!
//! * [`state`]: the words of rows.
//! * [`item`]: one of those that a plan is about, and what became of it.
//! * [`row`]: the plan's row.
//! * [`decide`]: decisions: run, cancel, the next batch, its results.
//! * [`timers`]: the one job that a running plan must have, derived from its row.

pub mod decide;
pub mod item;
pub mod row;
pub mod state;
pub mod timers;

pub use decide::{
    BatchDecision, PlanConflict, PlanDecision, PlanPace, decide_batch, decide_cancel, decide_run, end_plan,
    record_results,
};
pub use item::PlanItem;
pub use row::{Plan, PlanCounts};
pub use state::{PlanItemState, PlanKind, PlanState};
pub use timers::{derive_plan_job, plan_job};
