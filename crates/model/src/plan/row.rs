//! The plan row.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::{PlanItem, PlanItemState, PlanKind, PlanState};
use crate::{actor::Actor, ids::PlanId};

/// Number of items of a plan, in total and by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct PlanCounts {
    pub total: i32,
    pub changed: i32,
    pub unchanged: i32,
    pub refused: i32,
}

impl PlanCounts {
    /// Returns the counts of a plan with these items.
    pub fn from_items(items: &[PlanItem]) -> Self {
        let total = i32::try_from(items.len()).unwrap_or(i32::MAX);
        Self { total, ..Self::default() }.plus(items.iter().map(|item| item.state))
    }

    /// Returns the counts after items got these states.
    #[must_use]
    pub fn plus(mut self, states: impl IntoIterator<Item = PlanItemState>) -> Self {
        for state in states {
            match state {
                PlanItemState::Pending => {}
                PlanItemState::Changed => self.changed += 1,
                PlanItemState::Unchanged => self.unchanged += 1,
                PlanItemState::Refused => self.refused += 1,
            }
        }
        self
    }

    pub fn left(self) -> i32 {
        self.total - self.changed - self.unchanged - self.refused
    }
}

/// A row of `plans`. Times are Postgres time in whole milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct Plan {
    pub id: PlanId,
    pub kind: PlanKind,
    /// Action to perform. Its form depends on the kind.
    pub action: Value,
    /// Filter that selected the ids. Its form depends on the kind.
    pub filter: Value,
    /// Reason that the plan's author gave.
    pub reason: Option<String>,
    pub state: PlanState,
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub counts: PlanCounts,
    pub created_by: String,
    pub created_key: Option<Uuid>,
    pub created_at: DateTime<Utc>,
    pub run_by: Option<String>,
    pub run_key: Option<Uuid>,
    pub started_at: Option<DateTime<Utc>>,
    pub cancelled_by: Option<String>,
    pub cancelled_key: Option<Uuid>,
    pub ended_at: Option<DateTime<Utc>>,
    /// Time when the next items may be performed, while RUNNING.
    pub next_at: Option<DateTime<Utc>>,
}

impl Plan {
    /// Maximum age at which a plan may be run. The data behind an older plan may be outdated.
    pub const RUN_WITHIN: TimeDelta = TimeDelta::hours(24);
    /// Maximum number of characters of the reason that the histories of the items contain.
    const NOTED_REASON: usize = 300;

    pub fn new_planned(
        id: PlanId,
        kind: PlanKind,
        (action, filter): (Value, Value),
        counts: PlanCounts,
        author: &Actor,
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            kind,
            action,
            filter,
            reason: None,
            state: PlanState::Planned,
            counts,
            created_by: author.to_string(),
            created_key: author.key,
            created_at: now,
            run_by: None,
            run_key: None,
            started_at: None,
            cancelled_by: None,
            cancelled_key: None,
            ended_at: None,
            next_at: None,
        }
    }

    /// Returns the actor of the item changes: the person who ran the plan.
    pub fn runner(&self) -> Actor {
        let stored = self.run_by.as_deref().map_or(Actor::SYSTEM, Actor::parse);
        Actor { key: self.run_key, ..stored }
    }

    /// Returns the note for the histories of the items. It is the same when an item is performed again.
    pub fn history_note(&self) -> String {
        match &self.reason {
            Some(reason) => {
                let reason: String = reason.chars().take(Self::NOTED_REASON).collect();
                format!("plan {}: {reason}", self.id)
            }
            None => format!("plan {}", self.id),
        }
    }
}
