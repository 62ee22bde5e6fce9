//! Recorded violations. An invariant that a subject violates has one open row, however often it is found. The row is
//! closed when the same check of the same subject finds nothing.

use std::{collections::BTreeMap, fmt};

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::audit::{
    OTHER_CHECKS,
    binding_invariants::BINDING_INVARIANTS,
    invariants::{INVARIANTS, LEGAL_TRANSITIONS},
};
use foundation::db::Pool;

/// Invariant that cleanup violates, and what it demands.
pub const REMOVED: (&str, &str) = ("removed_before_proof", "cleanup removes only orders that are proven");
/// Violations of one page.
const PAGE: i64 = 100;

/// An open violation, and what is needed to check its subject again.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct OpenViolation {
    pub id: i64,
    pub invariant: String,
    pub subject: String,
    pub order_id: Option<String>,
}

/// A recorded violation.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct ProofViolation {
    pub id: i64,
    pub invariant: String,
    /// Rule that the subject violates.
    #[sqlx(default)]
    pub expected: String,
    /// Order, binding, driver, server, job or set.
    pub subject: String,
    /// Contradiction that the fold found.
    pub detail: String,
    pub order_id: Option<String>,
    /// Number and reason of the order's last event when the violation was found; `None` if it has no event.
    pub event_seq: Option<i64>,
    pub event: Option<String>,
    /// The history was proven until this step of the feed when the violation was found.
    pub step: i64,
    pub found_at: DateTime<Utc>,
    pub seen_at: DateTime<Utc>,
    /// `None`: the violation is open.
    pub gone_at: Option<DateTime<Utc>>,
}

impl fmt::Display for ProofViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.invariant, self.subject, self.detail)
    }
}

impl ProofViolation {
    fn with_expected(mut self) -> Self {
        self.expected = meaning_of(&self.invariant).unwrap_or_default().to_owned();
        self
    }
}

/// Returns what an invariant demands.
pub fn meaning_of(name: &str) -> Option<&'static str> {
    list_invariants().find(|(known, _)| *known == name).map(|(_, meaning)| meaning)
}

/// Returns all invariants of the proof: name and meaning.
pub fn list_invariants() -> impl Iterator<Item = (&'static str, &'static str)> {
    let queries = [LEGAL_TRANSITIONS].into_iter().chain(INVARIANTS).chain(BINDING_INVARIANTS);
    queries.map(|invariant| (invariant.name, invariant.meaning)).chain(OTHER_CHECKS).chain([REMOVED])
}

/// Records that cleanup removed orders that are not proven.
pub(crate) async fn record_removal(db: &Pool) -> Result<(), sqlx::Error> {
    tracing::error!("Cleanup removed orders that are not proven: the proof did not reach them within proof.max_wait.");
    sqlx::query(
        "-- record removal before proof
         WITH written AS (
             INSERT INTO proof_violations (invariant, subject, detail, step, found_at, seen_at)
             SELECT $1, 'cleanup', 'removed orders that the proof had not reached within proof.max_wait', event, now, now
             FROM proof_place, dispatchq_now() AS now
             ON CONFLICT (invariant, subject) WHERE gone_at IS NULL DO UPDATE SET seen_at = excluded.seen_at
             RETURNING invariant, xmax = 0 AS is_new)
         INSERT INTO proof_counts AS c (invariant, found) SELECT invariant, 1 FROM written WHERE is_new
         ON CONFLICT (invariant) DO UPDATE SET found = c.found + excluded.found",
    )
    .bind(REMOVED.0)
    .execute(db)
    .await
    .map(drop)
}

/// Returns open violations after an id, lowest first.
pub(super) async fn list_open_after(db: &Pool, after: i64, limit: i64) -> Result<Vec<OpenViolation>, sqlx::Error> {
    sqlx::query_as(
        "-- open violations to check again
         SELECT id, invariant, subject, order_id FROM proof_violations
         WHERE gone_at IS NULL AND id > $1 ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns the latest violations, open ones first; at most 100.
pub async fn list_violations(db: &Pool) -> Result<Vec<ProofViolation>, sqlx::Error> {
    let violations: Vec<ProofViolation> = sqlx::query_as(
        "-- list violations
         SELECT id, invariant, subject, detail, order_id, event_seq, event, step, found_at, seen_at, gone_at
         FROM ((SELECT * FROM proof_violations WHERE gone_at IS NULL ORDER BY id DESC LIMIT $1)
               UNION ALL
               (SELECT * FROM proof_violations WHERE gone_at IS NOT NULL ORDER BY gone_at DESC LIMIT $1)) v
         ORDER BY gone_at IS NOT NULL, id DESC LIMIT $1",
    )
    .bind(PAGE)
    .fetch_all(db)
    .await?;
    Ok(violations.into_iter().map(ProofViolation::with_expected).collect())
}

/// Returns one violation.
pub async fn find_violation(db: &Pool, id: i64) -> Result<Option<ProofViolation>, sqlx::Error> {
    let violation: Option<ProofViolation> = sqlx::query_as(
        "-- one violation
         SELECT id, invariant, subject, detail, order_id, event_seq, event, step, found_at, seen_at, gone_at
         FROM proof_violations WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await?;
    Ok(violation.map(ProofViolation::with_expected))
}

/// Returns the number of open violations.
pub async fn count_open(db: &Pool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- count open violations
         SELECT count(*) FROM proof_violations WHERE gone_at IS NULL",
    )
    .fetch_one(db)
    .await
}

/// Returns the number of violations of each invariant that were ever recorded, with zeros.
pub async fn count_by_invariant(db: &Pool) -> Result<BTreeMap<&'static str, u64>, sqlx::Error> {
    let counted: Vec<(String, i64)> = sqlx::query_as(
        "-- count violations
         SELECT invariant, found FROM proof_counts",
    )
    .fetch_all(db)
    .await?;
    let counted: BTreeMap<String, i64> = counted.into_iter().collect();
    let count = |name: &str| counted.get(name).copied().unwrap_or_default().unsigned_abs();
    Ok(list_invariants().map(|(name, _)| (name, count(name))).collect())
}
