//! How far the history is proven, for `dispatchq check status`, the console and metrics.

use chrono::{DateTime, Utc};
use serde::Serialize;

use foundation::db::Pool;

/// State of the proof.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct ProofStatus {
    /// Number of the last proven step of the feed.
    pub event: i64,
    /// All steps that were committed before this time are proven.
    pub proven_at: DateTime<Utc>,
    /// Time since `proven_at`, in seconds.
    pub lag_seconds: f64,
    /// Steps that are not proven yet; at most 10,000 are counted.
    pub lag_events: i64,
    pub open_violations: i64,
    /// Proven steps since the installation of the proof.
    pub steps: i64,
    /// Processor time that the fold has used, in microseconds, without that of Postgres and Redis.
    pub cpu_us: i64,
}

pub async fn read_status(db: &Pool) -> Result<ProofStatus, sqlx::Error> {
    sqlx::query_as(include_str!("read_status.sql")).fetch_one(db).await
}
