//! Lists of outbox messages, and manual redelivery of dead ones.
//!
//! A replay keeps the message's id, its tries and its log. A receiver that already got the message can recognize it,
//! and so can an auditor.

use chrono::{DateTime, Utc};
use jobs::{BindingId, OrderId, SendNotification};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    capability::Desk,
    dead_letters::decide::{self, DecisionAuthor, DecisionOutcome},
};
use foundation::{db::Pool, error::ServiceError};
use model::messages::{MessageSubject, OutboxState, SubjectColumns};
use queue::Job;

/// An outbox row as listed.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct OutboxMessage {
    pub id: i64,
    pub message_id: Uuid,
    #[sqlx(flatten, try_from = "SubjectColumns")]
    #[serde(flatten)]
    pub subject: MessageSubject,
    pub kind: String,
    pub channel: String,
    pub state: OutboxState,
    pub attempts: i32,
    pub last_error: Option<String>,
    pub next_attempt_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub delivered_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct DeliveryLogEntry {
    pub at: DateTime<Utc>,
    /// `TRY` or `REPLAY`.
    pub what: String,
    /// Error of a failed try.
    pub error: Option<String>,
    /// Author of a replay.
    pub actor: Option<String>,
}

/// Filter for outbox rows, newest first.
#[derive(Debug, Clone, Default)]
pub struct OutboxFilter {
    pub ids: Option<Vec<i64>>,
    pub state: Option<OutboxState>,
    pub channel: Option<String>,
    pub kind: Option<String>,
    pub order: Option<OrderId>,
    pub binding: Option<BindingId>,
    /// Only rows with a smaller id, for the next page.
    pub before: Option<i64>,
    pub limit: u32,
}

pub async fn list_messages(db: &Pool, filter: &OutboxFilter) -> Result<Vec<OutboxMessage>, sqlx::Error> {
    sqlx::query_as(
        "-- list outbox
         SELECT id, message_id, order_id, binding_id, kind, channel, state, attempts, last_error, next_attempt_at,
                expires_at, created_at, delivered_at
         FROM outbox
         WHERE ($1::bigint[] IS NULL OR id = ANY($1)) AND ($2::text IS NULL OR state = $2)
           AND ($3::text IS NULL OR channel = $3) AND ($4::text IS NULL OR kind = $4)
           AND ($5::text IS NULL OR order_id = $5) AND ($8::text IS NULL OR binding_id = $8)
           AND ($7::bigint IS NULL OR id < $7)
         ORDER BY id DESC LIMIT $6",
    )
    .bind(&filter.ids)
    .bind(filter.state)
    .bind(&filter.channel)
    .bind(&filter.kind)
    .bind(filter.order.as_ref().map(OrderId::as_str))
    .bind(i64::from(filter.limit))
    .bind(filter.before)
    .bind(filter.binding.as_ref().map(BindingId::as_str))
    .fetch_all(db)
    .await
}

/// Counts the rows on all pages.
pub async fn count_messages(db: &Pool, filter: &OutboxFilter) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- count outbox
         SELECT count(*) FROM outbox
         WHERE ($1::bigint[] IS NULL OR id = ANY($1)) AND ($2::text IS NULL OR state = $2)
           AND ($3::text IS NULL OR channel = $3) AND ($4::text IS NULL OR kind = $4)
           AND ($5::text IS NULL OR order_id = $5) AND ($6::text IS NULL OR binding_id = $6)",
    )
    .bind(&filter.ids)
    .bind(filter.state)
    .bind(&filter.channel)
    .bind(&filter.kind)
    .bind(filter.order.as_ref().map(OrderId::as_str))
    .bind(filter.binding.as_ref().map(BindingId::as_str))
    .fetch_one(db)
    .await
}

/// Returns the body of a message, as it is stored; `None` if the message does not exist.
pub async fn load_payload(db: &Pool, id: i64) -> Result<Option<Value>, sqlx::Error> {
    sqlx::query_scalar(
        "-- body of message
         SELECT payload FROM outbox WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

/// Returns the delivery log of a message, oldest entry first.
pub async fn load_delivery_log(db: &Pool, id: i64) -> Result<Vec<DeliveryLogEntry>, sqlx::Error> {
    sqlx::query_as(
        "-- delivery log
         SELECT at, what, error, actor FROM (
             SELECT at, 'TRY' AS what, error, NULL AS actor, attempt_no::bigint AS n FROM outbox_attempts WHERE outbox_id = $1
             UNION ALL
             SELECT at, 'REPLAY', NULL, actor, id FROM outbox_replays WHERE outbox_id = $1) log
         ORDER BY at, what, n",
    )
    .bind(id)
    .fetch_all(db)
    .await
}

/// Requeues the dead job of a message, with the expiry of a new message. Returns false if the message is not dead.
pub async fn replay_message(desk: &Desk, row: &OutboxMessage, by: &DecisionAuthor) -> Result<bool, ServiceError> {
    let job = SendNotification { subject: row.subject.to_id(), outbox_id: row.id };
    match decide::requeue_job(desk, &job.id(), by).await? {
        DecisionOutcome::Done => Ok(true),
        DecisionOutcome::NotDead => Ok(false),
        DecisionOutcome::Refused(refused) => Err(ServiceError::Unusable(format!("message {}: {refused}", row.id))),
    }
}
