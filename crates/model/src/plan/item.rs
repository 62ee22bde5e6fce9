//! Items of a plan.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::PlanItemState;

/// A row of `plan_items`, without the plan id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct PlanItem {
    /// Id of the binding or job that the item changes.
    pub subject_id: String,
    pub state: PlanItemState,
    /// Error code of a REFUSED item, for programs.
    pub refusal: Option<String>,
    /// Text for people: why the item was REFUSED, or which state an UNCHANGED item already had.
    pub note: Option<String>,
    /// Time when the run processed the item; `None` if its state was known at planning.
    pub done_at: Option<DateTime<Utc>>,
}

impl PlanItem {
    pub fn pending(subject_id: impl Into<String>) -> Self {
        Self { subject_id: subject_id.into(), state: PlanItemState::Pending, refusal: None, note: None, done_at: None }
    }

    pub fn changed(subject_id: impl Into<String>) -> Self {
        Self { state: PlanItemState::Changed, ..Self::pending(subject_id) }
    }

    /// Creates an UNCHANGED item. `how` names the state that it already had.
    pub fn unchanged(subject_id: impl Into<String>, how: impl Into<String>) -> Self {
        Self { state: PlanItemState::Unchanged, note: Some(how.into()), ..Self::pending(subject_id) }
    }

    pub fn refused(subject_id: impl Into<String>, code: &str, why: impl Into<String>) -> Self {
        let (refusal, note) = (Some(code.to_owned()), Some(why.into()));
        Self { state: PlanItemState::Refused, refusal, note, ..Self::pending(subject_id) }
    }
}
