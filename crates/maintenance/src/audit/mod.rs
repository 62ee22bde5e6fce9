//! The history, checkable by anyone: invariants asked of the audit views, and of Redis where a timer must be.
//!
//! * [`invariants`]: the list, each with its question in SQL. [`binding_invariants`]: those of bindings.
//! * [`trail`]: what staff did, by all tables that keep it.
//! * [`timers`]: no order and no binding lacks a timer, no job is dead without a reason. `waiting_sets`: who waits in an area waits
//!   there in Redis, too.

pub mod binding_invariants;
pub mod invariants;
pub mod timers;
pub mod trail;
mod waiting_sets;

use std::fmt;

use serde::Serialize;

use crate::capability::Maintenance;
use bindings::servers;
use foundation::error::ServiceError;

/// Something that must never be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InvariantViolation {
    pub invariant: &'static str,
    /// The order or the binding, or where there is none what stands for it.
    pub subject: String,
    pub detail: String,
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.invariant, self.subject, self.detail)
    }
}

/// Asks every invariant. May run on a live system: what is only on its way is looked at twice.
pub async fn check_history(maintenance: &Maintenance) -> Result<Vec<InvariantViolation>, ServiceError> {
    let limit = servers::total_limit(&maintenance.bindings).await?;
    check_history_within(maintenance, limit.max_concurrent_calls).await
}

/// As [`check_history`], where so many calls of providers may have been open in all.
pub async fn check_history_within(
    maintenance: &Maintenance,
    max_calls: u32,
) -> Result<Vec<InvariantViolation>, ServiceError> {
    let mut violations = invariants::check_invariants(&maintenance.core.db).await?;
    violations.extend(binding_invariants::check_binding_invariants(&maintenance.core.db, max_calls).await?);
    violations.extend(timers::check_timers(&maintenance.core).await?);
    violations.extend(waiting_sets::check_waiting_sets(maintenance).await?);
    Ok(violations)
}
