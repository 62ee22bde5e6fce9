//! Rows of plans. A decision changes a row while its lock is held.

use chrono::{DateTime, Utc};
use model::{
    ids::PlanId,
    plan::{
        BatchDecision, Plan, PlanDecision, PlanItem, PlanItemState, PlanPace, PlanState, decide_batch, end_plan,
        record_results,
    },
};
use serde::Serialize;
use sqlx::FromRow;

use foundation::{
    crash,
    db::{Connection, Pool},
};

/// Items of one statement.
const CHUNK: usize = 1000;

/// A plan, and Postgres' time of the read.
#[derive(Debug, Clone, FromRow)]
pub struct LoadedPlan {
    #[sqlx(flatten)]
    pub plan: Plan,
    pub now: DateTime<Utc>,
}

/// Stores a plan with its items. Returns false if a plan with this id exists; it is not changed.
pub(super) async fn insert_plan(db: &Pool, plan: &Plan, items: &[PlanItem]) -> Result<bool, sqlx::Error> {
    let mut tx = db.begin().await?;
    let inserted = sqlx::query(
        "-- insert plan
         INSERT INTO plans (id, kind, action, filter, reason, state, total, changed, unchanged, refused, created_by,
                            created_key, created_at, run_by, run_key, started_at, ended_at, next_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(plan.id)
    .bind(plan.kind)
    .bind(&plan.action)
    .bind(&plan.filter)
    .bind(&plan.reason)
    .bind(plan.state)
    .bind(plan.counts.total)
    .bind(plan.counts.changed)
    .bind(plan.counts.unchanged)
    .bind(plan.counts.refused)
    .bind(&plan.created_by)
    .bind(plan.created_key)
    .bind(plan.created_at)
    .bind(&plan.run_by)
    .bind(plan.run_key)
    .bind(plan.started_at)
    .bind(plan.ended_at)
    .bind(plan.next_at)
    .execute(&mut *tx)
    .await?
    .rows_affected();
    if inserted == 0 {
        tx.rollback().await?;
        return Ok(false);
    }
    for chunk in items.chunks(CHUNK) {
        insert_items(&mut tx, plan.id, chunk).await?;
    }
    crash::reach_point("plan", "stored");
    tx.commit().await?;
    Ok(true)
}

async fn insert_items(db: &mut Connection, plan: PlanId, items: &[PlanItem]) -> Result<(), sqlx::Error> {
    let columns = ItemColumns::from_items(items);
    sqlx::query(
        "-- insert plan items
         INSERT INTO plan_items (plan_id, subject_id, state, refusal, note)
         SELECT $1, i.subject_id, i.state, i.refusal, i.note
         FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS i (subject_id, state, refusal, note)",
    )
    .bind(plan)
    .bind(columns.subjects)
    .bind(columns.states)
    .bind(columns.refusals)
    .bind(columns.notes)
    .execute(db)
    .await
    .map(drop)
}

/// Items as arrays for Postgres.
struct ItemColumns<'a> {
    subjects: Vec<&'a str>,
    states: Vec<&'static str>,
    refusals: Vec<Option<&'a str>>,
    notes: Vec<Option<&'a str>>,
}

impl<'a> ItemColumns<'a> {
    fn from_items(items: &'a [PlanItem]) -> Self {
        Self {
            subjects: items.iter().map(|item| item.subject_id.as_str()).collect(),
            states: items.iter().map(|item| item.state.as_str()).collect(),
            refusals: items.iter().map(|item| item.refusal.as_deref()).collect(),
            notes: items.iter().map(|item| item.note.as_deref()).collect(),
        }
    }
}

pub async fn load_plan(db: &Pool, id: PlanId) -> Result<Option<LoadedPlan>, sqlx::Error> {
    sqlx::query_as(
        "-- load plan
         SELECT id, kind, action, filter, reason, state, total, changed, unchanged, refused, created_by, created_key,
                created_at, run_by, run_key, started_at, cancelled_by, cancelled_key, ended_at, next_at,
                dispatchq_now() AS now
         FROM plans WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

/// Returns one page of plans, newest first, with ids below `before`.
pub async fn list_plans(
    db: &Pool,
    state: Option<PlanState>,
    before: Option<PlanId>,
    limit: i64,
) -> Result<Vec<Plan>, sqlx::Error> {
    sqlx::query_as(
        "-- list plans
         SELECT id, kind, action, filter, reason, state, total, changed, unchanged, refused, created_by, created_key,
                created_at, run_by, run_key, started_at, cancelled_by, cancelled_key, ended_at, next_at
         FROM plans WHERE ($1::text IS NULL OR state = $1) AND ($2::uuid IS NULL OR id < $2)
         ORDER BY id DESC LIMIT $3",
    )
    .bind(state)
    .bind(before)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns one page of a plan's items, ordered by id. A state of `None` matches all.
pub async fn list_items(
    db: &Pool,
    plan: PlanId,
    state: Option<PlanItemState>,
    after: &str,
    limit: i64,
) -> Result<Vec<PlanItem>, sqlx::Error> {
    sqlx::query_as(
        "-- list plan items
         SELECT subject_id, state, refusal, note, done_at FROM plan_items
         WHERE plan_id = $1 AND ($2::text IS NULL OR state = $2) AND subject_id > $3
         ORDER BY subject_id LIMIT $4",
    )
    .bind(plan)
    .bind(state)
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Number of items of a plan that were refused for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct RefusalCount {
    pub refusal: String,
    pub count: i64,
    /// Note of one of these items.
    pub example: Option<String>,
}

pub async fn count_refusals(db: &Pool, plan: PlanId) -> Result<Vec<RefusalCount>, sqlx::Error> {
    sqlx::query_as(
        "-- count refusals of a plan
         SELECT refusal, count(*) AS count, min(note) AS example FROM plan_items
         WHERE plan_id = $1 AND state = 'REFUSED' GROUP BY refusal ORDER BY refusal",
    )
    .bind(plan)
    .fetch_all(db)
    .await
}

/// Decision of a request about a plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DecidedPlan {
    pub(super) before: Plan,
    pub(super) decision: PlanDecision,
    pub(super) now: DateTime<Utc>,
}

/// Decides on a plan and writes the decision. Returns `None` if the plan does not exist.
pub(super) async fn change_plan(
    db: &Pool,
    id: PlanId,
    decide: impl FnOnce(&Plan, DateTime<Utc>) -> PlanDecision,
) -> Result<Option<DecidedPlan>, sqlx::Error> {
    let mut tx = db.begin().await?;
    let Some(LoadedPlan { plan, now }) = lock_plan(&mut tx, id).await? else { return Ok(None) };
    let decision = decide(&plan, now);
    if let PlanDecision::Write(after) = &decision {
        write_plan(&mut tx, after).await?;
    }
    tx.commit().await?;
    Ok(Some(DecidedPlan { before: plan, decision, now }))
}

/// Reads the plan and locks its row until the transaction ends.
async fn lock_plan(db: &mut Connection, id: PlanId) -> Result<Option<LoadedPlan>, sqlx::Error> {
    sqlx::query_as(
        "-- lock plan
         SELECT id, kind, action, filter, reason, state, total, changed, unchanged, refused, created_by, created_key,
                created_at, run_by, run_key, started_at, cancelled_by, cancelled_key, ended_at, next_at,
                dispatchq_now() AS now
         FROM plans WHERE id = $1 FOR NO KEY UPDATE",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

async fn write_plan(db: &mut Connection, plan: &Plan) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- write plan
         UPDATE plans SET state = $2, changed = $3, unchanged = $4, refused = $5, run_by = $6, run_key = $7,
                          started_at = $8, cancelled_by = $9, cancelled_key = $10, ended_at = $11, next_at = $12
         WHERE id = $1",
    )
    .bind(plan.id)
    .bind(plan.state)
    .bind(plan.counts.changed)
    .bind(plan.counts.unchanged)
    .bind(plan.counts.refused)
    .bind(&plan.run_by)
    .bind(plan.run_key)
    .bind(plan.started_at)
    .bind(&plan.cancelled_by)
    .bind(plan.cancelled_key)
    .bind(plan.ended_at)
    .bind(plan.next_at)
    .execute(db)
    .await
    .map(drop)
}

/// Action that a plan's job may take now.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PlanTurn {
    /// The plan is not running, or no longer exists.
    Over,
    NotYet {
        due: DateTime<Utc>,
        now: DateTime<Utc>,
    },
    /// The job runs these items. Other jobs get no items until `plan.next_at`.
    Perform {
        plan: Box<Plan>,
        subjects: Vec<String>,
    },
    /// No items were left, and the plan has ended.
    Ended(Box<Plan>),
}

/// Claims the next batch of a plan. The items stay pending, so they are claimed again if this process dies.
pub(super) async fn claim_batch(db: &Pool, id: PlanId, pace: PlanPace) -> Result<PlanTurn, sqlx::Error> {
    let mut tx = db.begin().await?;
    let Some(LoadedPlan { plan, now }) = lock_plan(&mut tx, id).await? else { return Ok(PlanTurn::Over) };
    let (most, claimed) = match decide_batch(&plan, pace, now) {
        BatchDecision::Over => return Ok(PlanTurn::Over),
        BatchDecision::NotYet(due) => return Ok(PlanTurn::NotYet { due, now }),
        BatchDecision::Perform { items, plan } => (items, plan),
    };
    let subjects: Vec<String> = sqlx::query_scalar(
        "-- next items of a plan
         SELECT subject_id FROM plan_items WHERE plan_id = $1 AND state = 'PENDING' ORDER BY subject_id LIMIT $2",
    )
    .bind(id)
    .bind(most)
    .fetch_all(&mut *tx)
    .await?;
    let turn = if subjects.is_empty() {
        PlanTurn::Ended(Box::new(end_plan(&plan, now)))
    } else {
        PlanTurn::Perform { plan: claimed, subjects }
    };
    if let PlanTurn::Ended(after) | PlanTurn::Perform { plan: after, .. } = &turn {
        write_plan(&mut tx, after).await?;
    }
    tx.commit().await?;
    Ok(turn)
}

/// Records the results of items, each once, and ends the plan after its last item. Returns `None` if the plan no longer
/// exists.
pub(super) async fn record_items(db: &Pool, id: PlanId, items: &[PlanItem]) -> Result<Option<LoadedPlan>, sqlx::Error> {
    let mut tx = db.begin().await?;
    let Some(LoadedPlan { plan, now }) = lock_plan(&mut tx, id).await? else { return Ok(None) };
    let columns = ItemColumns::from_items(items);
    let recorded: Vec<PlanItemState> = sqlx::query_scalar(
        "-- record plan items
         UPDATE plan_items i SET state = n.state, refusal = n.refusal, note = n.note, done_at = $6
         FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS n (subject_id, state, refusal, note)
         WHERE i.plan_id = $1 AND i.subject_id = n.subject_id AND i.state = 'PENDING'
         RETURNING i.state",
    )
    .bind(id)
    .bind(columns.subjects)
    .bind(columns.states)
    .bind(columns.refusals)
    .bind(columns.notes)
    .bind(now)
    .fetch_all(&mut *tx)
    .await?;
    let plan = record_results(&plan, recorded, now);
    write_plan(&mut tx, &plan).await?;
    crash::reach_point("plan", "commits");
    tx.commit().await?;
    Ok(Some(LoadedPlan { plan, now }))
}

/// A running plan with the values that the reconciler needs.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub(super) struct RunningPlan {
    pub(super) id: PlanId,
    pub(super) next_at: DateTime<Utc>,
    pub(super) now: DateTime<Utc>,
}

/// Returns one page of running plans, ordered by id. With `overdue_secs`, only plans that are overdue by at least this
/// time.
pub(super) async fn list_running(
    db: &Pool,
    after: PlanId,
    overdue_secs: Option<f64>,
    limit: i64,
) -> Result<Vec<RunningPlan>, sqlx::Error> {
    sqlx::query_as(
        "-- plans to reconcile
         SELECT id, next_at, dispatchq_now() AS now FROM plans
         WHERE state = 'RUNNING' AND id > $1
           AND ($2::float8 IS NULL OR next_at < (SELECT dispatchq_now()) - $2 * interval '1 second')
         ORDER BY id LIMIT $3",
    )
    .bind(after)
    .bind(overdue_secs)
    .bind(limit)
    .fetch_all(db)
    .await
}
