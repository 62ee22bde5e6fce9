//! Delivery tries: loading, claiming and recording, each batched into one statement and one commit.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use model::{
    ids::TicketId,
    messages::{DeliveryResult, OutboxState},
};

use super::outbox::OutboxRow;
use foundation::{
    batch::{BatchLost, BatchQueue, BatchSize},
    db::{Pool, copy_error, write_or_halve},
};
use queue::{RetryPolicy, retry::add_jitter};

const LOOKS: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };
const WRITES: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// Backoff between tries: 1, 2, 4 ... up to 600 seconds. A message stops being tried when it expires, not after a
/// number of tries.
pub const BACKOFF: RetryPolicy = RetryPolicy {
    max_tries: u32::MAX,
    initial: Duration::from_secs(1),
    multiplier: 2.0,
    max: Duration::from_secs(600),
    jitter: 0.3,
};

/// Minimum time until a claimed row is due again, so that a job rebuilt after a flush does not send the message a
/// second time. It is shorter than a lease (8 s): when a dead process's job runs again, the row is due and the lost
/// delivery counts as a try.
pub const CLAIM: Duration = Duration::from_secs(7);

/// Error stored for a claimed try until its result is recorded. `dispatchq_end_attempt` replaces only this text.
const UNRECORDED: &str = "no answer was recorded";

/// A pending message, as its job loads it before it claims a try.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct WaitingMessage {
    pub id: i64,
    pub channel: String,
    pub next_attempt_at: DateTime<Utc>,
    /// Whether the message is too late to send: its offer has expired or was withdrawn, or its OTP deadline has passed.
    pub is_worthless: bool,
    pub now: DateTime<Utc>,
}

/// Result of a claimed try.
#[derive(Debug, Clone)]
struct TryEnd {
    id: i64,
    attempts: i32,
    state: OutboxState,
    next_attempt_at: DateTime<Utc>,
    error: Option<String>,
    ticket: Option<TicketId>,
    /// Time of a first try that has no row yet.
    first_at: Option<DateTime<Utc>>,
}

type LookResult = Result<Option<WaitingMessage>, sqlx::Error>;
type ClaimResult = Result<Option<OutboxRow>, sqlx::Error>;

/// Loads messages, claims tries and records their results in batches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DeliveryStore {
    looks: BatchQueue<(), i64, LookResult>,
    claims: BatchQueue<i64, (i64, f64), ClaimResult>,
    ends: BatchQueue<i64, TryEnd, Result<bool, sqlx::Error>>,
}

impl DeliveryStore {
    pub fn new(db: &Pool) -> Self {
        let (db_of_looks, db_of_claims, db_of_ends) = (db.clone(), db.clone(), db.clone());
        Self {
            looks: BatchQueue::new("load waiting messages", LOOKS, move |ids: Vec<i64>| {
                let db = db_of_looks.clone();
                async move { load_all(&db, &ids).await }
            }),
            claims: BatchQueue::new("claim tries", WRITES, move |tries: Vec<(i64, f64)>| {
                let db = db_of_claims.clone();
                async move { claim_all(&db, tries).await }
            }),
            ends: BatchQueue::new("record deliveries", WRITES, move |ends: Vec<TryEnd>| {
                let db = db_of_ends.clone();
                async move { record_all(&db, ends).await }
            }),
        }
    }

    /// Returns the message if it is still pending.
    pub async fn load_waiting(&self, id: i64) -> LookResult {
        self.looks.submit_item([], id).await.map_err(lost)?
    }

    /// Claims the next try of a due message before anything is sent: counts the try and makes the row due after
    /// `CLAIM`, or after its backoff if that is longer. If Postgres rejects the claim, nothing is sent. If the result
    /// cannot be recorded later, the message waits before it is sent again. A rebuilt job cannot send it at the same
    /// time.
    ///
    /// In the returned row, `next_attempt_at` is computed from the backoff alone. Returns `None` if another run has
    /// claimed the message. `random` is in 0..1.
    pub async fn claim_try(&self, id: i64, random: f64) -> ClaimResult {
        self.claims.submit_item([id], (id, random)).await.map_err(lost)?
    }

    /// Records the result of a claimed try, unless a later try was claimed.
    pub async fn record_delivery(&self, row: &OutboxRow, delivery: &DeliveryResult) -> Result<(), sqlx::Error> {
        self.record_end(row, delivery, None).await.map(drop)
    }

    /// Records the result of a first try that was claimed by the change that wrote the message, and the try itself.
    /// Returns `false` if a later try was claimed, whose job now decides.
    pub async fn record_first_try(&self, row: &OutboxRow, delivery: &DeliveryResult) -> Result<bool, sqlx::Error> {
        self.record_end(row, delivery, Some(row.now)).await
    }

    async fn record_end(
        &self,
        row: &OutboxRow,
        delivery: &DeliveryResult,
        first_at: Option<DateTime<Utc>>,
    ) -> Result<bool, sqlx::Error> {
        let (state, next_attempt_at, error) = match delivery {
            DeliveryResult::Delivered(_) => (OutboxState::Delivered, row.next_attempt_at, None),
            DeliveryResult::Again(at, error) => (OutboxState::Pending, *at, Some(error)),
            DeliveryResult::Expired(error) | DeliveryResult::Unreachable(error) => {
                (OutboxState::Expired, row.next_attempt_at, Some(error))
            }
            DeliveryResult::Dead(error) => (OutboxState::Dead, row.next_attempt_at, Some(error)),
        };
        let ticket = match delivery {
            DeliveryResult::Delivered(ticket) => ticket.clone(),
            _ => None,
        };
        let error = error.cloned();
        let end = TryEnd { id: row.id, attempts: row.attempts, state, next_attempt_at, error, ticket, first_at };
        self.ends.submit_item([row.id], end).await.map_err(lost)?
    }
}

/// Returns the error for an item whose batch has panicked. It is treated like a broken connection.
fn lost(_: BatchLost) -> sqlx::Error {
    sqlx::Error::WorkerCrashed
}

/// Returns one result per id, in the same order.
async fn load_all(db: &Pool, ids: &[i64]) -> Vec<LookResult> {
    let rows: Result<Vec<WaitingMessage>, sqlx::Error> = sqlx::query_as(
        "-- load waiting message
         SELECT id, channel, next_attempt_at, dispatchq_now() AS now,
                CASE kind
                    WHEN 'OFFER' THEN expires_at <= dispatchq_now() OR NOT EXISTS (
                        SELECT 1 FROM offers f WHERE f.order_id = m.order_id AND f.id = m.dedupe_key::uuid
                                             AND f.state || '' = 'offered')
                    WHEN 'OTP_WANTED' THEN expires_at <= dispatchq_now()
                    ELSE false END AS is_worthless
         FROM outbox m WHERE id = ANY ($1) AND state || '' = 'pending'",
    )
    .bind(ids)
    .fetch_all(db)
    .await;
    match rows {
        Ok(rows) => {
            let found: HashMap<i64, WaitingMessage> = rows.into_iter().map(|row| (row.id, row)).collect();
            ids.iter().map(|id| Ok(found.get(id).cloned())).collect()
        }
        Err(error) => ids.iter().map(|_| Err(copy_error(&error))).collect(),
    }
}

/// Returns one result per try, in the same order.
async fn claim_all(db: &Pool, tries: Vec<(i64, f64)>) -> Vec<ClaimResult> {
    let tries: Vec<_> = tries.into_iter().map(Arc::new).collect();
    write_or_halve(&tries, |tries| {
        let db = db.clone();
        async move { claim_rows(&db, &tries).await }
    })
    .await
}

async fn claim_rows(db: &Pool, tries: &[Arc<(i64, f64)>]) -> Result<Vec<Option<OutboxRow>>, sqlx::Error> {
    let jitter = |random| add_jitter(Duration::from_secs(1), BACKOFF.jitter, random).as_secs_f64();
    let rows: Vec<OutboxRow> = sqlx::query_as(include_str!("claim_rows.sql"))
        .bind(tries.iter().map(|item| item.0).collect::<Vec<_>>())
        .bind(BACKOFF.initial.as_secs_f64())
        .bind(BACKOFF.multiplier)
        .bind(BACKOFF.max.as_secs_f64())
        .bind(UNRECORDED)
        .bind(tries.iter().map(|item| jitter(item.1)).collect::<Vec<_>>())
        .bind(CLAIM.as_secs_f64())
        .fetch_all(db)
        .await?;
    let mut claimed: HashMap<i64, OutboxRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    Ok(tries.iter().map(|item| claimed.remove(&item.0)).collect())
}

/// Returns one result per end, in the same order: whether it was recorded.
async fn record_all(db: &Pool, ends: Vec<TryEnd>) -> Vec<Result<bool, sqlx::Error>> {
    let ends: Vec<_> = ends.into_iter().map(Arc::new).collect();
    write_or_halve(&ends, |ends| {
        let db = db.clone();
        async move { record_rows(&db, &ends).await }
    })
    .await
}

async fn record_rows(db: &Pool, ends: &[Arc<TryEnd>]) -> Result<Vec<bool>, sqlx::Error> {
    let recorded: Vec<i64> = sqlx::query_scalar(
        "-- record delivery
         WITH n AS MATERIALIZED (
             SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::timestamptz[], $5::text[], $6::text[],
                                  $7::timestamptz[])
                 AS n (id, attempts, state, next_attempt_at, error, ticket, first_at)),
         updated AS (
             UPDATE outbox m SET state = n.state, next_attempt_at = n.next_attempt_at, last_error = n.error, ticket = n.ticket,
                    delivered_at = CASE WHEN n.state = 'delivered' THEN dispatchq_now() END
             FROM n WHERE m.id = n.id AND m.attempts = n.attempts AND m.state || '' = 'pending'
             RETURNING m.id, m.attempts, n.error, n.first_at),
         first AS (
             INSERT INTO outbox_attempts (outbox_id, attempt_no, at, error)
             SELECT id, attempts, first_at, error FROM updated WHERE first_at IS NOT NULL)
         SELECT u.id, CASE WHEN u.first_at IS NULL THEN dispatchq_end_attempt(u.id, u.attempts, u.error) END
         FROM updated u",
    )
    .bind(ends.iter().map(|end| end.id).collect::<Vec<_>>())
    .bind(ends.iter().map(|end| end.attempts).collect::<Vec<_>>())
    .bind(ends.iter().map(|end| end.state.as_str()).collect::<Vec<_>>())
    .bind(ends.iter().map(|end| end.next_attempt_at).collect::<Vec<_>>())
    .bind(ends.iter().map(|end| end.error.as_deref()).collect::<Vec<_>>())
    .bind(ends.iter().map(|end| end.ticket.as_deref()).collect::<Vec<_>>())
    .bind(ends.iter().map(|end| end.first_at).collect::<Vec<_>>())
    .fetch_all(db)
    .await?;
    Ok(ends.iter().map(|end| recorded.contains(&end.id)).collect())
}
