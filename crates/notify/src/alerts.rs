//! Alerts: messages that a person must act on, with the time they were raised and their acknowledgement. Design:
//! docs/design/desk.md.
//!
//! An alert is raised together with its messages. It is acknowledged by a person or by a change that resolves it: a
//! refund that starts, a hold that is released, an order that no longer waits for a dispatcher. Its row stores the next
//! escalation, which is a timer of the order like every other deadline. An alert about a binding is sent once and does
//! not escalate; the crate `bindings` raises and closes it.

use chrono::{DateTime, Utc};
use jobs::{BindingId, OrderId};
use metrics::{counter, histogram};
use model::{
    actor::Actor,
    decide::timers,
    messages::{self, ChannelRoutes, StoredMessage},
    order::{PendingAlert, PendingMessage},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::{channels::MessageChannels, tickets::AlertTicket};
use foundation::db::{Connection, Pool};
use queue::NewJob;

/// An alert and its acknowledgement.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = Alert)]
pub struct RaisedAlert {
    pub id: i64,
    /// Order of the alert; absent if the alert is about a binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_id: Option<String>,
    /// Binding of the alert; absent if the alert is about an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_id: Option<String>,
    pub kind: String,
    pub raised_at: DateTime<Utc>,
    pub escalations: i32,
    pub next_escalation_at: Option<DateTime<Utc>>,
    /// Time when the job that repeats the alert was found dead. The alert is repeated after the job is requeued.
    pub gave_up_at: Option<DateTime<Utc>>,
    pub acked_at: Option<DateTime<Utc>>,
    pub acked_by: Option<String>,
    pub ack_note: Option<String>,
    /// Payload of the alert's message.
    pub payload: Value,
    /// Tickets that the alert opened; only for an alert about an order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[sqlx(json)]
    pub tickets: Vec<AlertTicket>,
}

/// Columns of a [`RaisedAlert`] from table `a`. For an alert about a binding, `order_id` is null and the outbox is not
/// searched for tickets.
const COLUMNS: &str = "a.id, CASE WHEN a.binding_id IS NULL THEN a.order_id END AS order_id, a.binding_id, a.kind, a.raised_at, \
     a.escalations, a.next_escalation_at, a.gave_up_at, a.acked_at, a.acked_by, a.ack_note, a.payload, \
     (SELECT coalesce(jsonb_agg(jsonb_build_object('channel', m.channel, 'ticket', m.ticket) ORDER BY m.id), '[]') \
      FROM outbox m WHERE a.binding_id IS NULL AND m.order_id = a.order_id AND m.kind = a.kind \
        AND m.dedupe_key = a.dedupe_key AND m.ticket IS NOT NULL) AS tickets";

impl RaisedAlert {
    /// Adds the web address of each ticket.
    #[must_use]
    pub fn link_tickets(mut self, channels: &MessageChannels) -> Self {
        self.tickets.iter_mut().for_each(|ticket| ticket.link_ticket(channels));
        self
    }

    /// Returns the id of the alert's order or binding.
    pub fn subject(&self) -> &str {
        self.binding_id.as_deref().or(self.order_id.as_deref()).unwrap_or_default()
    }
}

/// Raises the alert of a message, once. Returns the alert's id if it is new.
pub(super) async fn raise_alert(
    tx: &mut Connection,
    routes: &ChannelRoutes,
    order: &OrderId,
    message: &StoredMessage,
    dedupe_key: &str,
    at: DateTime<Utc>,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "-- raise alert
         INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, next_escalation_at)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING RETURNING id",
    )
    .bind(order.as_str())
    .bind(&message.kind)
    .bind(dedupe_key)
    .bind(&message.payload)
    .bind(at)
    .bind(routes.first_telling(&message.kind, at))
    .fetch_optional(tx)
    .await
}

/// Records an alert about an order after its transaction. For an alert to support, it also writes the log line with the
/// words and fields that the job id retrieval design prescribes.
pub fn record_order_alert(order: &OrderId, kind: &str) {
    record_raised(kind);
    if !messages::is_for_dispatchers(kind) {
        tracing::warn!(order_id = %order, alert_type = kind, "Manual action required by supporting reservation team");
    }
}

/// Counts a raised alert.
pub fn record_raised(kind: &str) {
    counter!("dispatchq_manual_interventions_total", "alert" => kind.to_owned()).increment(1);
}

/// Records the time from raising an alert to its acknowledgement.
pub fn record_response(kind: &str, waited_s: f64) {
    histogram!("dispatchq_alert_response_seconds", "alert" => kind.to_owned()).record(waited_s.max(0.0));
}

/// Selection of alerts to acknowledge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlertSelection {
    One(i64),
    Order(OrderId),
}

/// Acknowledges alerts. Returns all selected alerts in their present state; alerts that were already acknowledged are
/// not changed.
pub async fn acknowledge_alerts(
    db: &Pool,
    which: &AlertSelection,
    actor: &Actor,
    note: &str,
) -> Result<Vec<RaisedAlert>, sqlx::Error> {
    let (id, order) = match which {
        AlertSelection::One(id) => (Some(*id), None),
        AlertSelection::Order(order) => (None, Some(order.as_str())),
    };
    let rows: Vec<AcknowledgedAlert> = sqlx::query_as(AssertSqlSafe(format!(
        "-- acknowledge alerts
         WITH acked AS (
             UPDATE alerts SET acked_at = dispatchq_now(), acked_by = $3, ack_note = $4, acked_key_id = $5,
                    next_escalation_at = NULL
             WHERE (id = $1 OR (order_id = $2 AND binding_id IS NULL)) AND acked_at IS NULL RETURNING *)
         SELECT {COLUMNS}, true AS is_new FROM acked a
         UNION ALL
         SELECT {COLUMNS}, false FROM alerts a
         WHERE (a.id = $1 OR (a.order_id = $2 AND a.binding_id IS NULL))
           AND NOT EXISTS (SELECT 1 FROM acked WHERE acked.id = a.id)
         ORDER BY id"
    )))
    .bind(id)
    .bind(order)
    .bind(actor.to_string())
    .bind(note)
    .bind(actor.key)
    .fetch_all(db)
    .await?;
    for AcknowledgedAlert { alert, .. } in rows.iter().filter(|row| row.is_new) {
        let waited = alert.acked_at.unwrap_or(alert.raised_at) - alert.raised_at;
        record_response(&alert.kind, waited.as_seconds_f64());
    }
    Ok(rows.into_iter().map(|row| row.alert).collect())
}

#[derive(sqlx::FromRow)]
struct AcknowledgedAlert {
    #[sqlx(flatten)]
    alert: RaisedAlert,
    /// Whether this call acknowledged the alert.
    is_new: bool,
}

/// Filter for a list of alerts, newest first.
#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    pub open: bool,
    pub kind: Option<String>,
    pub order: Option<OrderId>,
    pub binding: Option<BindingId>,
    /// Only alerts with a smaller id, for the next page.
    pub before: Option<i64>,
    pub limit: u32,
}

pub async fn list_alerts(db: &Pool, filter: &AlertFilter) -> Result<Vec<RaisedAlert>, sqlx::Error> {
    sqlx::query_as(AssertSqlSafe(format!(
        "-- list alerts
         SELECT {COLUMNS} FROM alerts a
         WHERE (NOT $1 OR acked_at IS NULL) AND ($2::text IS NULL OR kind = $2)
           AND ($3::text IS NULL OR (order_id = $3 AND binding_id IS NULL)) AND ($6::text IS NULL OR binding_id = $6)
           AND ($4::bigint IS NULL OR id < $4)
         ORDER BY id DESC LIMIT $5"
    )))
    .bind(filter.open)
    .bind(&filter.kind)
    .bind(filter.order.as_ref().map(OrderId::as_str))
    .bind(filter.before)
    .bind(i64::from(filter.limit))
    .bind(filter.binding.as_ref().map(BindingId::as_str))
    .fetch_all(db)
    .await
}

pub async fn load_alert(db: &Pool, id: i64) -> Result<Option<RaisedAlert>, sqlx::Error> {
    sqlx::query_as(AssertSqlSafe(format!(
        "-- load alert
         SELECT {COLUMNS} FROM alerts a WHERE id = $1"
    )))
    .bind(id)
    .fetch_optional(db)
    .await
}

/// Clears `gave_up_at`, so that the alert repeats again after its dead job was requeued.
pub async fn resume_alert(db: &Pool, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- resume alert
         UPDATE alerts SET gave_up_at = NULL WHERE id = $1 AND gave_up_at IS NOT NULL",
    )
    .bind(id)
    .execute(db)
    .await?;
    Ok(())
}

/// Locks the row of an alert that is due to be repeated. Returns the alert with the present time.
pub(super) async fn lock_due_alert(
    tx: &mut Connection,
    id: i64,
) -> Result<Option<(RaisedAlert, DateTime<Utc>)>, sqlx::Error> {
    use sqlx::{FromRow, Row};
    let row = sqlx::query(AssertSqlSafe(format!(
        "-- alert due
         SELECT {COLUMNS}, dispatchq_now() AS now FROM alerts a WHERE id = $1 AND next_escalation_at <= dispatchq_now()
         FOR UPDATE"
    )))
    .bind(id)
    .fetch_optional(tx)
    .await?;
    row.map(|row| Ok((RaisedAlert::from_row(&row)?, row.try_get("now")?))).transpose()
}

/// Returns the jobs that an order's messages and alerts must have. Also works for an order that is not in the database.
pub async fn derived_jobs(db: &Pool, order: &OrderId) -> Result<Vec<NewJob>, sqlx::Error> {
    use sqlx::{Row, types::Json};
    let row = sqlx::query(
        "-- messages and alerts that wait
         SELECT dispatchq_now() AS now,
                (SELECT coalesce(json_agg(m), '[]') FROM (SELECT id, next_attempt_at FROM outbox
                 WHERE order_id = $1 AND state || '' = 'pending' ORDER BY id) m) AS messages,
                (SELECT coalesce(json_agg(a), '[]') FROM (SELECT id, kind, next_escalation_at FROM alerts
                 WHERE order_id = $1 AND next_escalation_at IS NOT NULL AND gave_up_at IS NULL ORDER BY id) a) AS alerts",
    )
    .bind(order.as_str())
    .fetch_one(db)
    .await?;
    let messages: Json<Vec<PendingMessage>> = row.try_get("messages")?;
    let alerts: Json<Vec<PendingAlert>> = row.try_get("alerts")?;
    let timers = timers::message_timers(order, &messages, &alerts, row.try_get("now")?);
    Ok(timers.into_iter().map(|t| t.job).collect())
}
