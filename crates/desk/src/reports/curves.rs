//! Curves of an hour, a day or a week, from the snapshots of the schedule `statistics`. A curve has one value for each
//! step, the latest of the step, so a statement reads a few rows per step through the index on the time.

use chrono::{DateTime, TimeDelta, Utc};

use foundation::db::Pool;

/// Time range of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CurveSpan {
    Hour,
    Day,
    Week,
}

impl CurveSpan {
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    /// Returns the time between two values.
    pub fn step(self) -> TimeDelta {
        match self {
            Self::Hour => TimeDelta::minutes(1),
            Self::Day => TimeDelta::minutes(15),
            Self::Week => TimeDelta::hours(1),
        }
    }

    /// Returns the number of steps.
    pub fn steps(self) -> i32 {
        match self {
            Self::Hour => 60,
            Self::Day => 96,
            Self::Week => 168,
        }
    }

    pub fn length(self) -> TimeDelta {
        self.step() * self.steps()
    }
}

/// Jobs of a queue at one time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct QueueCurvePoint {
    pub at: DateTime<Utc>,
    pub due: i64,
    pub scheduled: i64,
    pub leased: i64,
    pub dead: i64,
}

/// Returns the curve of a queue up to `now`, oldest first.
pub async fn queue_curve(
    db: &Pool,
    queue: &str,
    span: CurveSpan,
    now: DateTime<Utc>,
) -> Result<Vec<QueueCurvePoint>, sqlx::Error> {
    sqlx::query_as(
        "-- curve of a queue
         SELECT s.* FROM generate_series(1, $3::integer) AS n, LATERAL (
             SELECT at, due, scheduled, leased, dead FROM queue_snapshots
             WHERE queue = $1 AND at > $2::timestamptz - n * $4::interval AND at <= $2 - (n - 1) * $4 ORDER BY at DESC LIMIT 1) s
         ORDER BY s.at",
    )
    .bind(queue)
    .bind(now)
    .bind(span.steps())
    .bind(span.step())
    .fetch_all(db)
    .await
}

/// State of the whole installation at one time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WholeCurvePoint {
    pub at: DateTime<Utc>,
    pub open_orders: i64,
    pub to_decide: i64,
    pub refunds_owed: i64,
    pub lateness_p99_ms: i64,
    pub oldest_due_ms: i64,
    pub workers: i64,
}

/// Returns the curve of the whole installation up to `now`, oldest first.
pub async fn whole_curve(db: &Pool, span: CurveSpan, now: DateTime<Utc>) -> Result<Vec<WholeCurvePoint>, sqlx::Error> {
    sqlx::query_as(
        "-- curve of the installation
         SELECT s.* FROM generate_series(1, $2::integer) AS n, LATERAL (
             SELECT at, open_orders, to_decide, refunds_owed, lateness_p99_ms, oldest_due_ms, workers FROM glance_snapshots
             WHERE at > $1::timestamptz - n * $3::interval AND at <= $1 - (n - 1) * $3 ORDER BY at DESC LIMIT 1) s
         ORDER BY s.at",
    )
    .bind(now)
    .bind(span.steps())
    .bind(span.step())
    .fetch_all(db)
    .await
}
