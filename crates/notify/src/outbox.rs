//! Messages as rows: one for each message and channel, written in the transaction of the transition that causes them.
//! Design: docs/design/outbox-and-channels.md.

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

use crate::{alerts, recipients::find_recipients};
use foundation::db::{Connection, Pool};

/// The rows that were new.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenMessages {
    pub messages: Vec<PendingMessage>,
    pub alerts: Vec<PendingAlert>,
    /// Kinds of the new alerts, also of those that do not escalate.
    pub raised: Vec<String>,
}

/// Inserts the rows of these messages, and of the alerts among them; a message that was written before is not written
/// again.
pub async fn insert_messages(
    tx: &mut Connection,
    routes: &ChannelRoutes,
    order: &OrderId,
    messages: &[Message],
    at: DateTime<Utc>,
) -> Result<WrittenMessages, sqlx::Error> {
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
        for recipient in find_recipients(tx, routes, message, &stored).await? {
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

/// The dedupe key of what is told once of an order.
const NO_KEY: &str = "";

/// A message that was delivered without a row.
#[derive(Debug)]
pub struct DeliveredMessage<'a> {
    pub message: &'a StoredMessage,
    pub channel: &'a str,
    /// The id its receiver has seen.
    pub id: Uuid,
    /// The ticket that it opened.
    pub ticket: Option<&'a TicketId>,
}

/// Writes down an alert that was delivered without a row, and raises it.
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
    // Each channel comes here; the first raises it.
    if raised.is_some() {
        alerts::record_order_alert(order, &message.kind);
    }
    Ok(())
}

/// Does the log say that a message under this id was delivered?
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

/// A row as its delivery needs it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OutboxRow {
    pub id: i64,
    /// The id its receiver sees.
    pub message_id: Uuid,
    #[sqlx(flatten, try_from = "SubjectColumns")]
    pub subject: MessageSubject,
    #[sqlx(flatten)]
    pub content: StoredMessage,
    pub channel: String,
    pub state: OutboxState,
    pub attempts: i32,
    /// Tries before it was last sent again by hand.
    pub backoff_from: i32,
    pub next_attempt_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// Of offer messages: does the offer still wait for an answer?
    pub offer_is_live: Option<bool>,
    /// Of the driver or user it is for.
    pub phone: Option<String>,
    /// Of the user it is for.
    pub email: Option<String>,
    pub now: DateTime<Utc>,
}

impl OutboxRow {
    /// Returns whether the message asks a driver to take the order.
    pub fn is_offer(&self) -> bool {
        self.content.known_kind() == Some(MessageKind::Offer)
    }

    /// Returns whether the message is worthless once it has expired.
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
                     THEN EXISTS (SELECT 1 FROM offers f WHERE f.id = m.dedupe_key::uuid AND f.state = 'offered') END
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

/// Has a due message wait for so long, because its channel has no place for it. Returns when it comes back.
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

/// Ends a message that is no longer worth sending.
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

/// Marks an offer's message whose receiver does not want it. Of two channels that fail at the same moment the later to be
/// marked finds the other marked, whichever records its end first.
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

/// Has a message that was given up sent after all: at once, and then with the patience it had at first. An offer does not
/// outlive its offer, nor a request for an OTP its deadline. The delivery log says who had it done.
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

/// The offer a message was about, unless it was or may yet be delivered over another channel.
///
/// Ask after [`mark_unreachable`], in a statement of its own: it must see what the other channel has marked meanwhile.
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

/// An offer message, as its channel's callbacks need it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OfferMessage {
    pub id: i64,
    pub order_id: String,
    pub driver_id: DriverId,
    pub offer_id: OfferId,
    pub attempts: i32,
}

/// The offer message under this id.
pub async fn offer_of(db: &Pool, channel: &str, message_id: Uuid) -> Result<Option<OfferMessage>, sqlx::Error> {
    sqlx::query_as(
        "-- offer of message
         SELECT m.id, m.order_id, f.driver_id, f.id AS offer_id, m.attempts
         FROM outbox m JOIN offers f ON f.id = m.dedupe_key::uuid
         WHERE m.message_id = $1 AND m.channel = $2 AND m.kind = 'OFFER'",
    )
    .bind(message_id)
    .bind(channel)
    .fetch_optional(db)
    .await
}

/// One try to deliver a message.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct DeliveryTry {
    pub attempt_no: i32,
    pub at: DateTime<Utc>,
    /// `None`: it was delivered.
    pub error: Option<String>,
}

/// The latest tries to deliver a message, at most 10, in their order.
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
