//! Enums of plan rows.

use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr, strum::Display,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum PlanKind {
    Bindings,
    DeadJobs,
}

impl PlanKind {
    pub const ALL: [Self; 2] = [Self::Bindings, Self::DeadJobs];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

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
    /// Stored and shown, but not started. A run or a cancel follows.
    Planned,
    /// The items are performed at a limited rate. Becomes DONE with the last item.
    Running,
    /// Every item was performed or refused. Final.
    Done,
    /// A person cancelled the plan. Items already performed are not undone. Final.
    Cancelled,
}

impl PlanState {
    pub const ALL: [Self; 4] = [Self::Planned, Self::Running, Self::Done, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether this state never changes again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

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
    Pending,
    Changed,
    /// The subject was already in the requested state, at planning or at its turn.
    Unchanged,
    /// The action was refused, at planning or at its turn.
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
