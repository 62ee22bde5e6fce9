//! Checks of the history. The invariants are queries on the audit views, and on Redis where a timer must exist.
//!
//! * [`invariants`]: the list of invariants, each with its query in SQL. [`binding_invariants`]: invariants of
//!   bindings.
//! * [`trail`]: actions of staff, from all tables that store them.
//! * [`timers`]: every order and binding has its timers, and every dead job has a reason. `waiting_sets`: the waiting
//!   sets in Redis match the rows. `slots`: the slots in use are those that jobs hold.

pub mod binding_invariants;
pub mod invariants;
pub(crate) mod slots;
pub mod timers;
pub mod trail;
pub(crate) mod waiting_sets;

use std::fmt;

use serde::Serialize;

use crate::capability::Maintenance;
use bindings::servers;
use foundation::error::ServiceError;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InvariantViolation {
    pub invariant: &'static str,
    /// Order or binding of the violation, or another name if there is neither.
    pub subject: String,
    pub detail: String,
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.invariant, self.subject, self.detail)
    }
}

/// Checks every invariant. It may run on a live system: differences that can be temporary are checked twice.
pub async fn check_history(maintenance: &Maintenance) -> Result<Vec<InvariantViolation>, ServiceError> {
    let limit = servers::total_limit(&maintenance.bindings).await?;
    check_history_within(maintenance, limit.max_concurrent_calls).await
}

/// Same as [`check_history`], with this limit for the open calls to all providers together.
pub async fn check_history_within(
    maintenance: &Maintenance,
    max_calls: u32,
) -> Result<Vec<InvariantViolation>, ServiceError> {
    let mut violations = invariants::check_invariants(&maintenance.core.db).await?;
    violations.extend(binding_invariants::check_binding_invariants(&maintenance.core.db, max_calls).await?);
    violations.extend(timers::check_timers(&maintenance.core).await?);
    violations.extend(waiting_sets::check_waiting_sets(maintenance).await?);
    violations.extend(slots::check_slots(&maintenance.core).await?);
    Ok(violations)
}

/// Invariants that are no query on Postgres alone: name and meaning.
pub const OTHER_CHECKS: [(&str, &str); 4] = [
    (timers::MISSING, "Redis has every timer that orders and bindings need"),
    (timers::NO_REASON, "every dead job has a reason"),
    (waiting_sets::NAME, "the waiting orders of each area are the same in Redis and Postgres"),
    (slots::NAME, "the slots in use are those that jobs hold, and each ends in time"),
];
