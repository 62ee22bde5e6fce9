//! One of those that a plan is about.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::PlanItemState;

/// A row of `plan_items`, but for its plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct PlanItem {
    /// The id of what is to be changed.
    pub subject_id: String,
    pub state: PlanItemState,
    /// Why it is REFUSED: the word that programs match on.
    pub refusal: Option<String>,
    /// The same for people, or how it was UNCHANGED.
    pub note: Option<String>,
    /// When the run came to it; `None` where the plan knew it before.
    pub done_at: Option<DateTime<Utc>>,
}

impl PlanItem {
    pub fn pending(subject_id: impl Into<String>) -> Self {
        Self { subject_id: subject_id.into(), state: PlanItemState::Pending, refusal: None, note: None, done_at: None }
    }

    pub fn changed(subject_id: impl Into<String>) -> Self {
        Self { state: PlanItemState::Changed, ..Self::pending(subject_id) }
    }

    /// `how` says what it was already.
    pub fn unchanged(subject_id: impl Into<String>, how: impl Into<String>) -> Self {
        Self { state: PlanItemState::Unchanged, note: Some(how.into()), ..Self::pending(subject_id) }
    }

    pub fn refused(subject_id: impl Into<String>, code: &str, why: impl Into<String>) -> Self {
        let (refusal, note) = (Some(code.to_owned()), Some(why.into()));
        Self { state: PlanItemState::Refused, refusal, note, ..Self::pending(subject_id) }
    }
}
