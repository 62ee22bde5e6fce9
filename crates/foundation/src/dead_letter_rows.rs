//! The rows of `dead_letters`: one per death of a job, with the decision about it.
//!
//! A decision is written *before* it is applied in Redis. After a crash in between, the job is dead in Redis and
//! decided on in Postgres. Repeating the decision repairs this. So does the mirror, which reopens the row a minute
//! later. In the opposite order, a flush of Redis could bring back a dead letter that an operator had already handled.

use crate::db::Pool;
use chrono::{DateTime, Utc};
use queue::store::{DeadEntry, DeadRecord};
use serde::Serialize;
use sqlx::FromRow;

/// Decision about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum ResolutionKind {
    /// A person requeued it.
    Requeued,
    /// A person discarded it.
    Discarded,
    /// The retention period ended.
    Expired,
    /// The job was enqueued again because its row still requires it.
    Revived,
}

impl ResolutionKind {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A decision with its author and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    pub how: ResolutionKind,
    pub by: String,
    pub why: Option<String>,
}

impl Resolution {
    /// Returns the resolution of a job that was enqueued again because its order still requires it.
    pub fn revived(why: &str) -> Self {
        Self { how: ResolutionKind::Revived, by: "dispatchq".to_owned(), why: Some(why.to_owned()) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct DeadLetterRow {
    pub job_id: String,
    pub queue: String,
    pub died_at: DateTime<Utc>,
    pub error: String,
    pub failed: i32,
    pub lost: i32,
    pub due_at: DateTime<Utc>,
    #[serde(skip)]
    pub envelope: Option<String>,
    pub resolved_at: Option<DateTime<Utc>>,
    pub resolved_by: Option<String>,
    pub resolved_how: Option<ResolutionKind>,
    pub resolved_why: Option<String>,
}

impl From<DeadLetterRow> for DeadEntry {
    fn from(letter: DeadLetterRow) -> Self {
        let ms = |at: DateTime<Utc>| at.timestamp_millis().unsigned_abs();
        let payload = letter.envelope.as_ref().map_or(serde_json::Value::Null, |text| text.clone().into());
        let record = DeadRecord {
            queue: letter.queue,
            error: letter.error,
            failed: letter.failed.unsigned_abs(),
            lost: letter.lost.unsigned_abs(),
            due_ms: ms(letter.due_at),
            died_ms: ms(letter.died_at),
            payload,
            envelope: letter.envelope,
        };
        Self { id: letter.job_id, record }
    }
}

/// Dead jobs whose errors have the same beginning.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct DeadErrorGroup {
    /// Beginning of the error: at most 120 characters of its first line. It ends before a control character such as a
    /// tab, because a filter may not contain one.
    pub error: String,
    pub jobs: i64,
    pub latest: DateTime<Utc>,
}

const MOST_GROUPED: i64 = 20_000;

/// Groups the open dead letters by their error, the most frequent first, for one queue or for all. The rows are copies,
/// so jobs that died within the last seconds may be missing. Returns at most `limit` groups of the first 20,000 rows.
pub async fn group_by_error(db: &Pool, queue: Option<&str>, limit: u32) -> Result<Vec<DeadErrorGroup>, sqlx::Error> {
    sqlx::query_as(
        "-- dead letters by error
         SELECT substring(text FROM '^[^[:cntrl:]]*') AS error, sum(jobs)::bigint AS jobs, max(latest) AS latest FROM (
             SELECT left(error, 120) AS text, count(*) AS jobs, max(died_at) AS latest FROM (
                 SELECT error, died_at FROM dead_letters
                 WHERE resolved_at IS NULL AND ($1::text IS NULL OR queue = $1) ORDER BY queue, died_at, job_id LIMIT $2) page
             GROUP BY 1) texts
         GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT $3",
    )
    .bind(queue)
    .bind(MOST_GROUPED)
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

/// Dead jobs as one array per column, for `unnest`.
#[derive(Debug, Default)]
struct DeadJobColumns {
    ids: Vec<String>,
    died_at: Vec<DateTime<Utc>>,
    queues: Vec<String>,
    errors: Vec<String>,
    failed: Vec<i32>,
    lost: Vec<i32>,
    due_at: Vec<DateTime<Utc>>,
    envelopes: Vec<Option<String>>,
}

impl DeadJobColumns {
    fn from_entries(queue: &str, entries: &[DeadEntry]) -> Self {
        let at = |ms: u64| DateTime::from_timestamp_millis(ms.cast_signed()).unwrap_or_default();
        let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        // A Postgres text cannot contain NUL.
        let text = |text: &str| text.replace('\0', "\u{FFFD}");
        let mut columns = Self::default();
        for DeadEntry { id, record } in entries {
            columns.ids.push(id.clone());
            columns.died_at.push(at(record.died_ms));
            columns.queues.push(queue.to_owned());
            columns.errors.push(text(&record.error));
            columns.failed.push(count(record.failed));
            columns.lost.push(count(record.lost));
            columns.due_at.push(at(record.due_ms));
            columns.envelopes.push(record.envelope.as_deref().map(text));
        }
        columns
    }
}

/// Copies jobs that are dead in Redis. If a job was decided on more than a minute ago and is still dead, its row is
/// reopened, because the decision was not applied. An open earlier death of the same job is closed, because the job ran
/// again in between.
pub async fn copy_dead_jobs(db: &Pool, queue: &str, entries: &[DeadEntry]) -> Result<(), sqlx::Error> {
    let columns = DeadJobColumns::from_entries(queue, entries);
    sqlx::query(include_str!("copy_dead_jobs.sql"))
        .bind(columns.ids)
        .bind(columns.died_at)
        .bind(columns.queues)
        .bind(columns.errors)
        .bind(columns.failed)
        .bind(columns.lost)
        .bind(columns.due_at)
        .bind(columns.envelopes)
        .execute(db)
        .await?;
    Ok(())
}

/// Records the decision about a dead job, whether its row was copied before or not.
pub async fn resolve_job(db: &Pool, entry: &DeadEntry, resolution: &Resolution) -> Result<(), sqlx::Error> {
    let columns = DeadJobColumns::from_entries(&entry.record.queue, std::slice::from_ref(entry));
    sqlx::query(
        "-- resolve dead letter
         INSERT INTO dead_letters (job_id, died_at, queue, error, failed, lost, due_at, envelope,
                                   resolved_at, resolved_by, resolved_how, resolved_why)
         SELECT *, dispatchq_now(), $9, $10, $11
         FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::integer[], $6::integer[],
                     $7::timestamptz[], $8::text[])
         ON CONFLICT (job_id, died_at) DO UPDATE SET resolved_at = excluded.resolved_at,
             resolved_by = excluded.resolved_by, resolved_how = excluded.resolved_how,
             resolved_why = excluded.resolved_why",
    )
    .bind(columns.ids)
    .bind(columns.died_at)
    .bind(columns.queues)
    .bind(columns.errors)
    .bind(columns.failed)
    .bind(columns.lost)
    .bind(columns.due_at)
    .bind(columns.envelopes)
    .bind(&resolution.by)
    .bind(resolution.how)
    .bind(&resolution.why)
    .execute(db)
    .await?;
    Ok(())
}

/// Closes all open dead letters of these jobs.
pub async fn resolve_jobs(db: &Pool, ids: &[String], resolution: &Resolution) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- resolve dead letters of jobs
         UPDATE dead_letters SET resolved_at = dispatchq_now(), resolved_by = $2, resolved_how = $3, resolved_why = $4
         WHERE job_id = ANY($1) AND resolved_at IS NULL",
    )
    .bind(ids)
    .bind(&resolution.by)
    .bind(resolution.how)
    .bind(&resolution.why)
    .execute(db)
    .await?;
    Ok(())
}

/// Returns a page of a queue's open dead letters, the oldest death first, starting after `after`.
pub async fn list_open(
    db: &Pool,
    queue: &str,
    after: Option<&DeadLetterRow>,
    limit: usize,
) -> Result<Vec<DeadLetterRow>, sqlx::Error> {
    sqlx::query_as(
        "-- open dead letters
         SELECT * FROM dead_letters
         WHERE queue = $1 AND resolved_at IS NULL AND ($2::timestamptz IS NULL OR (died_at, job_id) > ($2, $3))
         ORDER BY died_at, job_id LIMIT $4",
    )
    .bind(queue)
    .bind(after.map(|letter| letter.died_at))
    .bind(after.map(|letter| letter.job_id.as_str()))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_all(db)
    .await
}

/// Returns the last 20 recorded deaths of a job, the latest first.
pub async fn list_deaths(db: &Pool, job: &str) -> Result<Vec<DeadLetterRow>, sqlx::Error> {
    sqlx::query_as(
        "-- deaths of a job
         SELECT * FROM dead_letters WHERE job_id = $1 ORDER BY died_at DESC LIMIT 20",
    )
    .bind(job)
    .fetch_all(db)
    .await
}
