//! Runs the queries of `check history` on the rows of a scope. The texts of the queries are the same. In front of them,
//! a `WITH` clause hides each table and view by its rows of the scope, which are read once for all invariants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::AssertSqlSafe;

use super::scope::SliceScope;
use crate::audit::{
    InvariantViolation,
    binding_invariants::BINDING_INVARIANTS,
    invariants::{HistoryInvariant, INVARIANTS, LEGAL_TRANSITIONS, allowed_transitions},
};
use foundation::db::{Pool, is_out_of_time};

/// Subjects that one statement checks.
const CHUNK: usize = 1000;
/// Maximum difference of the ages of orders that one statement checks.
const GROUP_SPAN: TimeDelta = TimeDelta::days(3);
/// The statement that reads the feed runs alone. It assigns a transaction id, and the horizon of the feed waits while
/// it runs.
const OF_FEED: [&str; 1] = ["readable_in_feed"];
/// This invariant compares the calls of all bindings in the last [`CALL_AGE`].
pub(super) const OF_LATEST_CALLS: &str = "calls_within_limits";
/// Age of the oldest transactions whose calls are compared.
const CALL_AGE: TimeDelta = TimeDelta::hours(1);

static ORDERS: LazyLock<Arc<str>> = LazyLock::new(|| {
    let checked = INVARIANTS.into_iter().filter(|invariant| !OF_FEED.contains(&invariant.name));
    combine(
        "check orders in scope",
        include_str!("orders_in_scope.sql"),
        [LEGAL_TRANSITIONS].into_iter().chain(checked),
    )
});
static FEED: LazyLock<Arc<str>> = LazyLock::new(|| {
    combine("check feed", "", INVARIANTS.into_iter().filter(|invariant| OF_FEED.contains(&invariant.name)))
});
static BINDINGS: LazyLock<Arc<str>> = LazyLock::new(|| {
    let checked = BINDING_INVARIANTS.into_iter().filter(|invariant| invariant.name != OF_LATEST_CALLS);
    combine("check bindings in scope", include_str!("bindings_in_scope.sql"), checked)
});
static CALLS: LazyLock<Arc<str>> = LazyLock::new(|| {
    let checked = BINDING_INVARIANTS.into_iter().filter(|invariant| invariant.name == OF_LATEST_CALLS);
    combine("check latest calls", include_str!("calls_in_scope.sql"), checked)
});

/// Returns one statement with this name that runs these invariants on the rows that `scope` selects.
fn combine(statement: &str, scope: &str, invariants: impl Iterator<Item = HistoryInvariant>) -> Arc<str> {
    let parts = invariants.map(|invariant| {
        let HistoryInvariant { name, query, .. } = invariant;
        format!("SELECT '{name}' AS invariant, coalesce(v.subject, '?'), coalesce(v.detail, '?') FROM (\n{query}\n) AS v (subject, detail)")
    });
    let checks = parts.collect::<Vec<_>>().join("\nUNION ALL\n");
    format!("-- {statement}\n{scope}{checks}").into()
}

/// Returns the query with this name.
fn find_invariant(name: &str) -> Option<HistoryInvariant> {
    let known = [LEGAL_TRANSITIONS].into_iter().chain(INVARIANTS).chain(BINDING_INVARIANTS);
    known.into_iter().find(|invariant| invariant.name == name)
}

/// Returns whether the subjects of this invariant are bindings.
pub(super) fn is_of_bindings(name: &str) -> bool {
    BINDING_INVARIANTS.iter().any(|invariant| invariant.name == name)
}

/// Runs all invariants on the rows of a scope. `max_calls` is the maximum number of open calls in total.
pub(super) async fn check_scope(
    db: &Pool,
    scope: &SliceScope,
    max_calls: u32,
    now: DateTime<Utc>,
) -> Result<Vec<InvariantViolation>, sqlx::Error> {
    let mut rows = sqlx::query_as(AssertSqlSafe(FEED.clone())).fetch_all(db).await?;
    for chunk in chunks(&scope.orders) {
        for (since, ids) in group_by_age(db, &chunk).await? {
            rows.extend(check_in_parts(&ids, |part| check_orders_since(db, part, since, &[])).await?);
        }
    }
    if !scope.rivals.is_empty() || !scope.messages.is_empty() {
        let rivals: Vec<&str> = scope.rivals.iter().map(String::as_str).collect();
        // Orders of one driver are compared with each other, so one statement checks all.
        let groups = group_by_age(db, &rivals).await?;
        let since = groups.first().map_or(now, |(since, _)| *since);
        rows.extend(check_orders_since(db, &rivals, since, &scope.messages).await?);
    }
    for chunk in chunks(&scope.bindings) {
        rows.extend(check_in_parts(&chunk, |part| check_bindings(db, part, max_calls)).await?);
    }
    let calls = sqlx::query_as(AssertSqlSafe(CALLS.clone())).bind(i64::from(max_calls));
    rows.extend(calls.bind(now - CALL_AGE).fetch_all(db).await?);
    Ok(rows.into_iter().filter_map(to_violation).collect())
}

/// Checks subjects in one statement. A statement that takes longer than Postgres allows is repeated for each half of its
/// subjects, so that a slice with much history does not fail again and again.
pub async fn check_in_parts<'a, S, C>(subjects: &'a [S], check: impl Fn(&'a [S]) -> C) -> Result<Vec<Row>, sqlx::Error>
where
    C: Future<Output = Result<Vec<Row>, sqlx::Error>>,
{
    let (mut left, mut rows) = (vec![subjects], Vec::new());
    while let Some(part) = left.pop() {
        match check(part).await {
            Ok(found) => rows.extend(found),
            Err(error) if part.len() > 1 && is_out_of_time(&error) => {
                let (first, second) = part.split_at(part.len() / 2);
                left.extend([first, second]);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

async fn check_bindings(db: &Pool, ids: &[&str], max_calls: u32) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as(AssertSqlSafe(BINDINGS.clone())).bind(i64::from(max_calls)).bind(ids).fetch_all(db).await
}

fn chunks(subjects: &BTreeSet<String>) -> impl Iterator<Item = Vec<&str>> {
    let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
    let chunks: Vec<Vec<&str>> = subjects.chunks(CHUNK).map(<[&str]>::to_vec).collect();
    chunks.into_iter()
}

/// Invariant, subject and detail.
pub type Row = (String, String, String);

/// Groups orders by the day from which their events are read, the oldest first. One statement reads all days since the
/// first of its orders, so an old order is not in one statement with many new ones. An id without an order may have
/// events of any day.
async fn group_by_age(db: &Pool, ids: &[&str]) -> Result<Vec<(DateTime<Utc>, Vec<String>)>, sqlx::Error> {
    let created: Vec<(String, DateTime<Utc>)> = sqlx::query_as(
        "-- first day of orders
         SELECT i.id, coalesce(o.created_at - interval '1 day', 'epoch') AS since
         FROM unnest($1::text[]) AS i (id) LEFT JOIN orders o ON o.id = i.id ORDER BY since",
    )
    .bind(ids)
    .fetch_all(db)
    .await?;
    let mut groups: Vec<(DateTime<Utc>, Vec<String>)> = Vec::new();
    for (id, since) in created {
        match groups.last_mut() {
            Some((first, group)) if since - *first < GROUP_SPAN => group.push(id),
            _ => groups.push((since, vec![id])),
        }
    }
    Ok(groups)
}

/// Checks orders. Their events are read from this day.
async fn check_orders_since(
    db: &Pool,
    ids: &[impl AsRef<str>],
    since: DateTime<Utc>,
    messages: &[i64],
) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as(AssertSqlSafe(ORDERS.clone()))
        // A generic plan would lock every day of the history.
        .persistent(false)
        .bind(allowed_transitions())
        .bind(ids.iter().map(AsRef::as_ref).collect::<Vec<&str>>())
        .bind(since)
        .bind(messages)
        .fetch_all(db)
        .await
}

fn to_violation((invariant, subject, detail): Row) -> Option<InvariantViolation> {
    Some(InvariantViolation { invariant: find_invariant(&invariant)?.name, subject, detail })
}

/// Returns one violation for each invariant and subject.
pub(super) fn merge_violations(violations: Vec<InvariantViolation>) -> Vec<InvariantViolation> {
    let mut merged: BTreeMap<(&'static str, String), String> = BTreeMap::new();
    for InvariantViolation { invariant, subject, detail } in violations {
        let text = merged.entry((invariant, subject)).or_default();
        if text.is_empty() {
            *text = detail;
        } else {
            *text = format!("{text}; {detail}");
        }
    }
    let violation = |((invariant, subject), detail)| InvariantViolation { invariant, subject, detail };
    merged.into_iter().map(violation).collect()
}
