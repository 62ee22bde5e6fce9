//! The history, checkable by anyone: invariants asked of the audit views, and of Redis where a timer must be.
//!
//! * [`invariants`]: the list, each with its question in SQL.
//! * [`timers`]: no order lacks a timer, no job is dead without a reason.

pub mod invariants;
pub mod timers;

use std::fmt;

use serde::Serialize;

use crate::{app::App, error::ServiceError};

/// Something that must never be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InvariantViolation {
    pub invariant: &'static str,
    /// The order, or where there is none what stands for it.
    pub subject: String,
    pub detail: String,
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.invariant, self.subject, self.detail)
    }
}

/// Asks every invariant. May run on a live system: what is only on its way is looked at twice.
pub async fn check_history(app: &App) -> Result<Vec<InvariantViolation>, ServiceError> {
    let mut violations = invariants::check_invariants(&app.db).await?;
    violations.extend(timers::check_timers(app).await?);
    Ok(violations)
}
