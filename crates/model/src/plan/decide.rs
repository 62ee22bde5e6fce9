//! Decisions on a plan. Each returns the new row. The store writes it while it holds the row lock.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Plan, PlanItemState, PlanState};
use crate::actor::Actor;

const LARGEST_BATCH: u32 = 100;

#[derive(Debug, Clone, PartialEq)]
pub enum PlanDecision {
    Write(Box<Plan>),
    /// The plan is already in the requested state; the text names it.
    NoOp(&'static str),
    Conflict(PlanConflict),
}

/// Reason why a plan cannot be run or cancelled. The text names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum PlanConflict {
    #[error("the plan is RUNNING already, run by {run_by}: a plan runs once")]
    #[strum(serialize = "PLAN_RUNNING")]
    Running { run_by: String },
    #[error("the plan is DONE, run by {run_by}: a plan runs once; make a new one")]
    #[strum(serialize = "PLAN_ENDED")]
    Done { run_by: String },
    #[error("the plan was cancelled by {cancelled_by}: make a new one")]
    #[strum(serialize = "PLAN_ENDED")]
    Cancelled { cancelled_by: String },
    #[error("the plan was made more than a day ago, and may be outdated: make a new one")]
    #[strum(serialize = "PLAN_EXPIRED")]
    Expired,
}

impl PlanConflict {
    pub fn error_code(&self) -> &'static str {
        self.into()
    }
}

/// Decides on a request to run a plan. A plan without pending items becomes DONE immediately.
pub fn decide_run(plan: &Plan, actor: &Actor, now: DateTime<Utc>) -> PlanDecision {
    let run_by = || plan.run_by.clone().unwrap_or_default();
    match plan.state {
        PlanState::Planned if now - plan.created_at > Plan::RUN_WITHIN => PlanDecision::Conflict(PlanConflict::Expired),
        PlanState::Planned => {
            let started = Plan {
                state: PlanState::Running,
                run_by: Some(actor.to_string()),
                run_key: actor.key,
                started_at: Some(now),
                next_at: Some(now),
                ..plan.clone()
            };
            PlanDecision::Write(Box::new(end_if_nothing_is_left(started, now)))
        }
        PlanState::Running => PlanDecision::Conflict(PlanConflict::Running { run_by: run_by() }),
        PlanState::Done => PlanDecision::Conflict(PlanConflict::Done { run_by: run_by() }),
        PlanState::Cancelled => PlanDecision::Conflict(PlanConflict::Cancelled {
            cancelled_by: plan.cancelled_by.clone().unwrap_or_default(),
        }),
    }
}

/// Decides on a request to cancel a plan. Items already performed are not undone.
pub fn decide_cancel(plan: &Plan, actor: &Actor, now: DateTime<Utc>) -> PlanDecision {
    match plan.state {
        PlanState::Planned | PlanState::Running => PlanDecision::Write(Box::new(Plan {
            state: PlanState::Cancelled,
            cancelled_by: Some(actor.to_string()),
            cancelled_key: actor.key,
            ended_at: Some(now),
            next_at: None,
            ..plan.clone()
        })),
        PlanState::Cancelled => PlanDecision::NoOp("CANCELLED already"),
        PlanState::Done => {
            PlanDecision::Conflict(PlanConflict::Done { run_by: plan.run_by.clone().unwrap_or_default() })
        }
    }
}

/// Rate at which the items of a plan are performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanPace {
    /// At least 1.
    pub items_per_second: u32,
}

impl PlanPace {
    /// Returns the number of items in one batch: one second's worth, within bounds.
    fn batch_size(self) -> u32 {
        self.items_per_second.clamp(1, LARGEST_BATCH)
    }

    /// Returns the time from the start of one batch to the next. It is rounded up, so the rate never exceeds the
    /// setting.
    fn batch_pause(self) -> TimeDelta {
        let ms = (u64::from(self.batch_size()) * 1000).div_ceil(u64::from(self.items_per_second.max(1)));
        TimeDelta::milliseconds(ms.cast_signed())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum BatchDecision {
    Over,
    /// The next items are due at this time.
    NotYet(DateTime<Utc>),
    /// The job performs this many items now. The row stores when the next items are due, for all workers.
    Perform {
        items: i64,
        plan: Box<Plan>,
    },
}

/// Decides whether the next items may be performed now. After a late batch, the next one still waits the full pause.
pub fn decide_batch(plan: &Plan, pace: PlanPace, now: DateTime<Utc>) -> BatchDecision {
    let Some(due) = plan.next_at.filter(|_| plan.state == PlanState::Running) else { return BatchDecision::Over };
    if due > now {
        return BatchDecision::NotYet(due);
    }
    let claimed = Plan { next_at: Some(now + pace.batch_pause()), ..plan.clone() };
    BatchDecision::Perform { items: i64::from(pace.batch_size()), plan: Box::new(claimed) }
}

/// Returns the plan after some of its items got these states. Items may still finish after the plan was cancelled.
pub fn record_results(plan: &Plan, states: impl IntoIterator<Item = PlanItemState>, now: DateTime<Utc>) -> Plan {
    let counted = Plan { counts: plan.counts.plus(states), ..plan.clone() };
    end_if_nothing_is_left(counted, now)
}

/// Returns the plan after no pending item was found.
pub fn end_plan(plan: &Plan, now: DateTime<Utc>) -> Plan {
    if plan.state != PlanState::Running {
        return plan.clone();
    }
    Plan { state: PlanState::Done, ended_at: Some(now), next_at: None, ..plan.clone() }
}

fn end_if_nothing_is_left(plan: Plan, now: DateTime<Utc>) -> Plan {
    if plan.counts.left() > 0 { plan } else { end_plan(&plan, now) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        ids::PlanId,
        plan::{PlanCounts, PlanItem, PlanKind, derive_plan_job},
    };

    const SLOW: PlanPace = PlanPace { items_per_second: 2 };

    fn moment(secs: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_893_484_800 + secs, 0).unwrap()
    }

    fn anna() -> Actor {
        Actor::parse("operator:anna")
    }

    /// Returns a plan with three pending items, one refused item and one unchanged item.
    fn planned() -> Plan {
        let items = [
            PlanItem::pending("A"),
            PlanItem::pending("B"),
            PlanItem::pending("C"),
            PlanItem::refused("D", "BINDING_STOPPING", "it is STOPPING"),
            PlanItem::unchanged("E", "RUNNING already"),
        ];
        let id: PlanId = "01937c3e-8f00-7000-8000-000000000001".parse().unwrap();
        let about = (json!("start"), json!({}));
        Plan::new_planned(id, PlanKind::Bindings, about, PlanCounts::from_items(&items), &anna(), moment(0))
    }

    #[track_caller]
    fn written(decision: PlanDecision) -> Plan {
        match decision {
            PlanDecision::Write(plan) => *plan,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(decision: PlanDecision) -> &'static str {
        match decision {
            PlanDecision::Conflict(conflict) => conflict.error_code(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn plan_runs_once_until_its_last_item() {
        let plan = planned();
        assert_eq!((plan.counts.left(), derive_plan_job(&plan, moment(0))), (3, None));
        let running = written(decide_run(&plan, &anna(), moment(5)));
        assert_eq!((running.state, running.next_at), (PlanState::Running, Some(moment(5))));
        assert_eq!(running.runner(), anna());
        assert_eq!(refused(decide_run(&running, &anna(), moment(6))), "PLAN_RUNNING");
        let job = derive_plan_job(&running, moment(5)).unwrap();
        assert_eq!(job.id.as_str(), "plan:01937c3e-8f00-7000-8000-000000000001");

        let BatchDecision::Perform { items, plan: claimed } = decide_batch(&running, SLOW, moment(7)) else {
            panic!("it is due")
        };
        assert_eq!(
            (items, claimed.next_at),
            (2, Some(moment(8))),
            "a pause from when it began, not from when it was due"
        );
        assert_eq!(decide_batch(&claimed, SLOW, moment(7)), BatchDecision::NotYet(moment(8)));
        let first = record_results(&claimed, [PlanItemState::Changed, PlanItemState::Refused], moment(7));
        assert_eq!((first.state, first.counts.left()), (PlanState::Running, 1));
        let last = record_results(&first, [PlanItemState::Unchanged], moment(8));
        assert_eq!((last.state, last.ended_at, last.next_at), (PlanState::Done, Some(moment(8)), None));
        assert_eq!(last.counts, PlanCounts { total: 5, changed: 1, unchanged: 2, refused: 2 });
        assert_eq!(refused(decide_run(&last, &anna(), moment(9))), "PLAN_ENDED");
        assert_eq!(refused(decide_cancel(&last, &anna(), moment(9))), "PLAN_ENDED");
        assert_eq!(decide_batch(&last, SLOW, moment(9)), BatchDecision::Over);
        assert_eq!(derive_plan_job(&last, moment(9)), None);
    }

    #[test]
    fn cancelled_plan_counts_work_under_way() {
        let running = written(decide_run(&planned(), &anna(), moment(0)));
        let cancelled = written(decide_cancel(&running, &Actor::parse("admin:budi"), moment(1)));
        assert_eq!((cancelled.state, cancelled.cancelled_by.as_deref()), (PlanState::Cancelled, Some("admin:budi")));
        assert_eq!(decide_batch(&cancelled, SLOW, moment(1)), BatchDecision::Over);
        let late = record_results(&cancelled, [PlanItemState::Changed; 3], moment(2));
        assert_eq!((late.state, late.ended_at, late.counts.changed), (PlanState::Cancelled, Some(moment(1)), 3));
        assert_eq!(decide_cancel(&late, &anna(), moment(3)), PlanDecision::NoOp("CANCELLED already"));
        assert_eq!(refused(decide_run(&late, &anna(), moment(3))), "PLAN_ENDED");
    }

    #[test]
    fn expired_plan_is_refused() {
        let plan = planned();
        assert_eq!(written(decide_run(&plan, &anna(), moment(86_400))).state, PlanState::Running);
        assert_eq!(refused(decide_run(&plan, &anna(), moment(86_401))), "PLAN_EXPIRED");
        assert_eq!(written(decide_cancel(&plan, &anna(), moment(86_401))).state, PlanState::Cancelled);
    }

    #[test]
    fn plan_without_pending_items_is_done() {
        let plan = Plan { counts: PlanCounts { total: 2, refused: 2, ..PlanCounts::default() }, ..planned() };
        let done = written(decide_run(&plan, &anna(), moment(1)));
        assert_eq!((done.state, done.started_at, done.ended_at), (PlanState::Done, Some(moment(1)), Some(moment(1))));
    }

    #[test]
    fn batches_keep_the_configured_rate() {
        for (items_per_second, size, ms) in
            [(1, 1, 1000), (7, 7, 1000), (50, 50, 1000), (100, 100, 1000), (300, 100, 334)]
        {
            let pace = PlanPace { items_per_second };
            assert_eq!((pace.batch_size(), pace.batch_pause().num_milliseconds()), (size, ms));
        }
    }

    #[test]
    fn history_note_is_bounded() {
        let plan = Plan { reason: Some("ä".repeat(500)), ..planned() };
        assert!(plan.history_note().starts_with("plan 01937c3e-8f00-7000-8000-000000000001: ä"));
        assert!(plan.history_note().len() < 2000);
        assert_eq!(planned().history_note(), "plan 01937c3e-8f00-7000-8000-000000000001");
    }
}
