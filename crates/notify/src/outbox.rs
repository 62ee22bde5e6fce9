//! Outbox messages: one row per message and channel, written in the transaction of the transition that causes the
//! message. Design: docs/design/outbox-and-channels.md.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    actor::Actor,
    ids::{DriverId, OfferId, TicketId},
    messages::{self, ChannelRoutes, Message, MessageKind, MessageSubject, OutboxState, StoredMessage, SubjectColumns},
    order::{PendingAlert, PendingMessage},
};
use uuid::Uuid;

use crate::{
    alerts,
    recipients::{find_recipients, load_dispatchers},
};
use foundation::db::{Connection, Pool};

/// Rows that were inserted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenMessages {
    pub messages: Vec<PendingMessage>,
    pub alerts: Vec<PendingAlert>,
    /// Kinds of the new alerts, including alerts that do not escalate.
    pub raised: Vec<String>,
}

/// Inserts the rows of these messages and raises the alerts among them. Skips messages that were written before.
pub async fn insert_messages(
    tx: &mut Connection,
    routes: &ChannelRoutes,
    order: &OrderId,
    messages: &[Message],
    at: DateTime<Utc>,
) -> Result<WrittenMessages, sqlx::Error> {
    let dispatchers = load_dispatchers(&mut *tx, messages).await?;
    let mut written = WrittenMessages::default();
    let (mut kinds, mut channels, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let (mut payloads, mut expiries) = (Vec::new(), Vec::new());
    for message in messages {
        let stored = message.to_stored_in(&routes.texts);
        if message.is_alert() {
            let raised = alerts::raise_alert(tx, routes, order, &stored, &message.dedupe_key, at).await?;
            written.raised.extend(raised.map(|_| stored.kind.clone()));
            let next = raised.zip(routes.first_telling(&stored.kind, at));
            let kind = stored.kind.clone();
            written.alerts.extend(next.map(|(id, next_escalation_at)| PendingAlert { id, kind, next_escalation_at }));
        }
        for recipient in find_recipients(routes, message, &stored, &dispatchers) {
            kinds.push(stored.kind.clone());
            channels.push(recipient.channel);
            keys.push(recipient.dedupe_key);
            payloads.push(recipient.payload);
            expiries.push(message.expires_at);
        }
    }
    if kinds.is_empty() {
        return Ok(written);
    }
    let ids: Vec<i64> = sqlx::query_scalar(
        "-- insert outbox
         INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
         SELECT $1, c.kind, c.channel, c.dedupe_key, c.payload, $7, c.expires_at, $7
         FROM unnest($2::text[], $3::text[], $4::text[], $5::jsonb[], $6::timestamptz[])
              AS c (kind, channel, dedupe_key, payload, expires_at)
         ON CONFLICT DO NOTHING RETURNING id",
    )
    .bind(order.as_str())
    .bind(&kinds)
    .bind(&channels)
    .bind(&keys)
    .bind(&payloads)
    .bind(&expiries)
    .bind(at)
    .fetch_all(tx)
    .await?;
    written.messages = ids.into_iter().map(|id| PendingMessage { id, next_attempt_at: at }).collect();
    Ok(written)
}

/// Dedupe key of a message that is sent at most once per order.
const NO_KEY: &str = "";

/// A message that was delivered without a row.
#[derive(Debug)]
pub struct DeliveredMessage<'a> {
    pub message: &'a StoredMessage,
    pub channel: &'a str,
    /// Id that the receiver has seen.
    pub id: Uuid,
    /// Ticket that the message opened.
    pub ticket: Option<&'a TicketId>,
}

/// Inserts the row of an alert that was delivered without one, and raises the alert.
pub async fn insert_delivered(
    db: &Pool,
    routes: &ChannelRoutes,
    order: &OrderId,
    sent: &DeliveredMessage<'_>,
) -> Result<(), sqlx::Error> {
    let message = sent.message;
    let mut tx = db.begin().await?;
    let now = foundation::db::database_now(&mut *tx).await?;
    let raised = alerts::raise_alert(&mut tx, routes, order, message, NO_KEY, now).await?;
    sqlx::query(
        "-- insert delivered outbox
         WITH delivered AS (
             INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, message_id, state, attempts,
                                 next_attempt_at, expires_at, created_at, delivered_at, ticket)
             VALUES ($1, $2, $3, $4, $5, $6, 'delivered', 1, $7, $7, $7, $7, $8) ON CONFLICT DO NOTHING RETURNING id)
         INSERT INTO outbox_attempts (outbox_id, attempt_no, at) SELECT id, 1, $7 FROM delivered",
    )
    .bind(order.as_str())
    .bind(&message.kind)
    .bind(sent.channel)
    .bind(NO_KEY)
    .bind(&message.payload)
    .bind(sent.id)
    .bind(now)
    .bind(sent.ticket)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    // Each channel calls this function; only the first call raises the alert.
    if raised.is_some() {
        alerts::record_order_alert(order, &message.kind);
    }
    Ok(())
}

/// Returns whether the outbox has a delivered message of this order with this id.
pub async fn was_delivered(db: &Pool, order: &OrderId, message_id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- was delivered
         SELECT EXISTS (SELECT 1 FROM outbox WHERE order_id = $1 AND message_id = $2 AND state = 'delivered')",
    )
    .bind(order.as_str())
    .bind(message_id)
    .fetch_one(db)
    .await
}

/// A row with the values that its delivery needs.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OutboxRow {
    pub id: i64,
    /// Id that the receiver sees.
    pub message_id: Uuid,
    #[sqlx(flatten, try_from = "SubjectColumns")]
    pub subject: MessageSubject,
    #[sqlx(flatten)]
    pub content: StoredMessage,
    pub channel: String,
    pub state: OutboxState,
    pub attempts: i32,
    /// Number of tries before the message was last requeued by hand. The backoff starts from there.
    pub backoff_from: i32,
    pub next_attempt_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// Whether the message's offer still waits for an answer; `None` if the message is not an offer.
    pub offer_is_live: Option<bool>,
    /// Phone number of the driver or user that the message is for.
    pub phone: Option<String>,
    /// E-mail address of the user that the message is for.
    pub email: Option<String>,
    pub now: DateTime<Utc>,
}

impl OutboxRow {
    /// Returns whether the message offers an order to a driver.
    pub fn is_offer(&self) -> bool {
        self.content.known_kind() == Some(MessageKind::Offer)
    }

    /// Returns whether the message is useless after it has expired.
    pub fn is_short_lived(&self) -> bool {
        self.content.known_kind().is_some_and(MessageKind::is_short_lived)
    }
}

pub async fn load_message(db: &Pool, id: i64) -> Result<Option<OutboxRow>, sqlx::Error> {
    sqlx::query_as(
        "-- load outbox
         SELECT m.id, message_id, order_id, binding_id, kind, m.channel, payload, state, attempts, backoff_from,
                next_attempt_at, expires_at,
                CASE WHEN kind = 'OFFER'
                     THEN EXISTS (SELECT 1 FROM offers f WHERE f.order_id = m.order_id AND f.id = m.dedupe_key::uuid
                                 AND f.state || '' = 'offered') END
                     AS offer_is_live,
                coalesce((SELECT phone FROM drivers d WHERE d.id = m.payload->>'driver_id'), u.phone) AS phone, u.email,
                dispatchq_now() AS now
         FROM outbox m LEFT JOIN users u ON u.id = m.payload->>'user_id' AND u.disabled_at IS NULL
         WHERE m.id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

/// Postpones a due message by `pause` because its channel has no free place. Returns the new due time.
pub async fn park_message(db: &Pool, id: i64, pause: Duration) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar(
        "-- park message
         UPDATE outbox SET next_attempt_at = dispatchq_now() + $2 * interval '1 second'
         WHERE id = $1 AND state = 'pending' AND next_attempt_at <= dispatchq_now() RETURNING next_attempt_at",
    )
    .bind(id)
    .bind(pause.as_secs_f64())
    .fetch_optional(db)
    .await
}

/// Marks a message as expired because it is no longer worth sending.
pub async fn expire_message(db: &Pool, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- expire message
         UPDATE outbox SET state = 'expired' WHERE id = $1 AND state = 'pending'",
    )
    .bind(id)
    .execute(db)
    .await?;
    Ok(())
}

/// Marks an offer message as unreachable because its receiver rejects it. If two channels fail at the same time, the
/// later call finds the other message marked, in whatever order their results are recorded.
pub async fn mark_unreachable(db: &Pool, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- mark unreachable
         UPDATE outbox SET unreachable = true WHERE id = $1",
    )
    .bind(id)
    .execute(db)
    .await?;
    Ok(())
}

/// Makes a message that was given up due now and restarts its backoff and expiry. The messages `OFFER` and `OTP_WANTED`
/// keep their expiry. The replay is recorded with its actor.
pub async fn revive_message(db: &Pool, id: i64, actor: &Actor) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- revive message
         WITH revived AS (
             UPDATE outbox SET state = 'pending', backoff_from = attempts, next_attempt_at = dispatchq_now(),
                    unreachable = false,
                    expires_at = CASE WHEN kind IN ('OFFER', 'OTP_WANTED') THEN expires_at
                                      ELSE greatest(expires_at, dispatchq_now() + $3 * interval '1 second') END
             WHERE id = $1 AND state IN ('dead', 'pending') RETURNING id)
         INSERT INTO outbox_replays (outbox_id, at, actor) SELECT id, dispatchq_now(), $2 FROM revived",
    )
    .bind(id)
    .bind(actor.to_string())
    .bind(messages::MESSAGE_EXPIRY.as_seconds_f64())
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the offer of a message, unless another channel has delivered the offer or may still deliver it.
///
/// Call this after [`mark_unreachable`], in a separate statement, so that it sees what the other channel has marked.
pub async fn undelivered_offer(db: &Pool, id: i64) -> Result<Option<OfferId>, sqlx::Error> {
    sqlx::query_scalar(
        "-- undelivered offer
         SELECT m.dedupe_key::uuid FROM outbox m
         WHERE m.id = $1 AND m.kind = 'OFFER'
           AND NOT EXISTS (SELECT 1 FROM outbox other
                           WHERE other.order_id = m.order_id AND other.kind = m.kind AND other.dedupe_key = m.dedupe_key
                             AND other.id <> m.id AND NOT other.unreachable
                             AND other.state IN ('pending', 'delivered'))",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

/// An offer message with the values that callbacks of its channel need.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OfferMessage {
    pub id: i64,
    pub order_id: String,
    pub driver_id: DriverId,
    pub offer_id: OfferId,
    pub attempts: i32,
}

/// Returns the offer message with this id.
pub async fn offer_of(db: &Pool, channel: &str, message_id: Uuid) -> Result<Option<OfferMessage>, sqlx::Error> {
    sqlx::query_as(
        "-- offer of message
         SELECT m.id, m.order_id, f.driver_id, f.id AS offer_id, m.attempts
         FROM outbox m JOIN offers f ON f.order_id = m.order_id AND f.id = m.dedupe_key::uuid
         WHERE m.message_id = $1 AND m.channel = $2 AND m.kind = 'OFFER'",
    )
    .bind(message_id)
    .bind(channel)
    .fetch_optional(db)
    .await
}

#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct DeliveryTry {
    pub attempt_no: i32,
    pub at: DateTime<Utc>,
    /// `None`: the message was delivered.
    pub error: Option<String>,
}

/// Returns the latest tries to deliver a message, oldest first, at most 10.
pub async fn list_tries(db: &Pool, id: i64) -> Result<Vec<DeliveryTry>, sqlx::Error> {
    sqlx::query_as(
        "-- tries of a message
         SELECT * FROM (SELECT attempt_no, at, error FROM outbox_attempts WHERE outbox_id = $1
                        ORDER BY attempt_no DESC LIMIT 10) t ORDER BY attempt_no",
    )
    .bind(id)
    .fetch_all(db)
    .await
}
