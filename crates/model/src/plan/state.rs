//! The words of a plan's rows.

use serde::{Deserialize, Serialize};

/// What a plan is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr, strum::Display,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum PlanKind {
    /// Commands to bindings.
    Bindings,
    /// Decisions on dead jobs.
    DeadJobs,
}

impl PlanKind {
    pub const ALL: [Self; 2] = [Self::Bindings, Self::DeadJobs];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How far a plan is.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    sqlx::Type,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlanState {
    /// Stored and shown; nothing is done. Left by a run or a cancel.
    Planned,
    /// Its items are performed, so many a second. Becomes DONE with the last of them.
    Running,
    /// Every item was performed or refused. Final.
    Done,
    /// A person wants no more of it. What was done stays done. Final.
    Cancelled,
}

impl PlanState {
    pub const ALL: [Self; 4] = [Self::Planned, Self::Running, Self::Done, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether nothing more happens to a plan in this state.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

/// What became of one item.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    sqlx::Type,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PlanItemState {
    /// Yet to be performed.
    Pending,
    /// The plan changed it.
    Changed,
    /// It was so already, when it was planned or when its turn came.
    Unchanged,
    /// It could not be done, when it was planned or when its turn came.
    Refused,
}

impl PlanItemState {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Changed, Self::Unchanged, Self::Refused];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_words() {
        for kind in PlanKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        for state in PlanState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        for state in PlanItemState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
