//! One slice of the fold, and the periodic run of slices until the fold has reached the horizon.
//!
//! A slice needs no lock. If two runs overlap, the first one that records its slice moves the position, and the other
//! one changes nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::types::Json;

use super::{
    invariants::{OF_LATEST_CALLS, check_scope, merge_violations},
    place::{ProofPlace, load_place},
    processor_time::measure_processor_time,
    redis_samples::Sampled,
    scope::{self, SliceScope},
    steps, violations,
};
use crate::{
    audit::{InvariantViolation, waiting_sets},
    capability::Maintenance,
};
use bindings::servers;
use foundation::{crash, db, error::ServiceError, loops::report_progress, work_slice::WorkSlice};

/// Time for the slices of one run. The next run continues.
const RUN: Duration = Duration::from_secs(4);

/// Result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ProofReport {
    /// Steps that were proven.
    pub steps: i64,
    /// Violations that were not open before.
    pub violations: usize,
}

/// Runs slices until the fold has reached the horizon, the time of the run is over, or another run has recorded a slice.
pub async fn run(maintenance: &Maintenance) -> Result<ProofReport, ServiceError> {
    let (mut report, slice) = (ProofReport::default(), WorkSlice::lasting(RUN));
    let mut kind = SliceKind::WithWalk;
    loop {
        let (checked, spent) = measure_processor_time(check_slice(maintenance, kind)).await;
        let checked = checked?;
        crash::reach_point("proof", "checked");
        let Some(new) = record_slice(maintenance, &checked, spent).await? else { return Ok(report) };
        crash::reach_point("proof", "recorded");
        if !new.is_empty() {
            tracing::error!(violations = ?new, "The history violates invariants. See: dispatchq check status");
        }
        report.steps += checked.steps;
        report.violations += new.len();
        report_progress();
        if checked.is_current || slice.is_over() {
            return Ok(report);
        }
        kind = SliceKind::StepsOnly;
    }
}

/// Whether a slice also checks rows without a new step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SliceKind {
    WithWalk,
    StepsOnly,
}

/// A slice before it is recorded.
struct CheckedSlice {
    place: ProofPlace,
    steps: i64,
    is_current: bool,
    scope: SliceScope,
    violations: Vec<InvariantViolation>,
    sampled: Sampled,
}

async fn check_slice(maintenance: &Maintenance, kind: SliceKind) -> Result<CheckedSlice, ServiceError> {
    let db = &maintenance.core.db;
    let (mut place, mut scope) = (load_place(db).await?, SliceScope::default());
    let read = steps::read_steps(db, &mut place, &mut scope).await?;
    let now = db::database_now(db).await?;
    let mut sampled = Sampled::default();
    if kind == SliceKind::WithWalk {
        place.walk.add_next_pages(db, &mut scope, now).await?;
        sampled = place.walk.redis.check_next(maintenance, now).await;
    }
    let mut violations = check_all_in(maintenance, &mut scope, now).await?;
    // Each slice compares all calls of the last hour.
    sampled.ended.push((OF_LATEST_CALLS, now));
    violations.append(&mut sampled.violations);
    let violations = merge_violations(violations);
    if read.is_current {
        // Cleanup waits again for the proof.
        sampled.ended.push((violations::REMOVED.0, now));
    }
    Ok(CheckedSlice { place, steps: read.steps, is_current: read.is_current, scope, violations, sampled })
}

async fn check_all_in(
    maintenance: &Maintenance,
    scope: &mut SliceScope,
    now: DateTime<Utc>,
) -> Result<Vec<InvariantViolation>, ServiceError> {
    let max_calls = servers::total_limit(&maintenance.bindings).await?.max_concurrent_calls;
    scope::add_rivals(&maintenance.core.db, scope).await?;
    Ok(check_scope(&maintenance.core.db, scope, max_calls, now).await?)
}

/// Records a slice in one statement: its place, new violations, and violations that are gone. Returns the ids of the
/// new ones, or `None` if another slice was recorded since this one read the place.
async fn record_slice(
    maintenance: &Maintenance,
    checked: &CheckedSlice,
    spent: Duration,
) -> Result<Option<Vec<i64>>, sqlx::Error> {
    let CheckedSlice { place, scope, violations: found, sampled, .. } = checked;
    let is_found = |name: &str, subject: &str| found.iter().any(|v| v.invariant == name && v.subject == subject);
    let gone = scope.again.iter().filter(|open| !is_found(&open.invariant, &open.subject)).map(|open| open.id);
    let (rounds, begun): (Vec<&str>, Vec<DateTime<Utc>>) = sampled.ended.iter().copied().unzip();
    let (was_recorded, new): (bool, Vec<i64>) = sqlx::query_as(include_str!("record_slice.sql"))
        .bind(place.slices)
        .bind(place.position)
        .bind(place.seq)
        .bind(place.event)
        .bind(checked.steps)
        .bind(place.proven_at)
        .bind(Json(&place.walk))
        .bind(i64::try_from(spent.as_micros()).unwrap_or(i64::MAX))
        .bind(gone.collect::<Vec<_>>())
        .bind(rounds)
        .bind(begun)
        .bind(found.iter().map(|v| v.invariant).collect::<Vec<_>>())
        .bind(found.iter().map(|v| v.subject.as_str()).collect::<Vec<_>>())
        .bind(found.iter().map(|v| v.detail.as_str()).collect::<Vec<_>>())
        .bind(found.iter().map(|v| order_of(v, scope)).collect::<Vec<_>>())
        .fetch_one(&maintenance.core.db)
        .await?;
    Ok(was_recorded.then_some(new))
}

/// Returns the order of a violation. The subject of a violation by two orders is their driver, and its detail starts
/// with the first order. The order of a job is the second part of its id, and exists if the statement finds it.
fn order_of(violation: &InvariantViolation, scope: &SliceScope) -> Option<String> {
    let first = violation.detail.split(", ").next().unwrap_or_default();
    let is_order = |id: &str| scope.orders.contains(id) || scope.rivals.contains(id);
    let of_job = violation.subject.split(':').nth(1);
    let named = [violation.subject.as_str(), first].into_iter().find(|id| is_order(id)).or(of_job);
    let is_of_set = violation.invariant == waiting_sets::NAME;
    named.or(is_of_set.then_some(&violation.subject)).map(str::to_owned)
}

/// Runs the whole fold from the first step over all rows, without its stored place, and records nothing. Returns the
/// violations. Samples of Redis are not included.
pub async fn fold_history(maintenance: &Maintenance) -> Result<Vec<InvariantViolation>, ServiceError> {
    let db = &maintenance.core.db;
    let now = db::database_now(db).await?;
    let (mut place, mut scope) = (ProofPlace::at_start(now), SliceScope::default());
    while !steps::read_steps(db, &mut place, &mut scope).await?.is_current {}
    scope::add_everything(db, &mut scope).await?;
    Ok(merge_violations(check_all_in(maintenance, &mut scope, now).await?))
}
