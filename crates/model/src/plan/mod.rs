//! Plans: bulk staff actions, stored with their exact ids before they run. A plan runs once.
//!
//! * [`state`]: the enums of the rows.
//! * [`item`]: one item of a plan and its result.
//! * [`row`]: the plan row.
//! * [`decide`]: decisions on runs, cancels, batches and their results.
//! * [`timers`]: the job that a running plan must have, derived from its row.

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
