//! Alerts about UNRESOLVED transactions. An alert is raised when a transaction becomes UNRESOLVED and closed when it is
//! final, each in the transaction of the change. An alert that a person has acknowledged is not changed.

use chrono::{DateTime, Utc};
use model::{
    binding::{BindingChange, HeaderChange},
    messages::{Message, NO_ORDER, TRANSACTION_UNRESOLVED, binding_messages},
};
use serde::Serialize;

use super::json_of;
use foundation::db::Connection;
use notify::alerts;

/// Returns whether a change raises or closes an alert. Few changes do.
pub(super) fn concerns_desk(change: &BindingChange) -> bool {
    change.settled.is_some() || binding_messages(change).any(|message| message.is_alert())
}

/// Values of a new alert.
#[derive(Serialize)]
struct RaisedValues<'a> {
    binding_id: &'a str,
    kind: String,
    dedupe_key: String,
    payload: serde_json::Value,
    at: DateTime<Utc>,
}

impl<'a> RaisedValues<'a> {
    fn from_change(change: &'a BindingChange) -> impl Iterator<Item = Self> {
        binding_messages(change).filter(Message::is_alert).map(move |message| {
            let stored = message.to_stored();
            Self {
                binding_id: change.binding.id.as_str(),
                kind: stored.kind,
                dedupe_key: message.dedupe_key,
                payload: stored.payload,
                at: change.at,
            }
        })
    }
}

/// Values that close the alert of a transaction.
#[derive(Serialize)]
struct SettledValues<'a> {
    trx_id: &'a str,
    actor: String,
    key_id: Option<uuid::Uuid>,
    note: String,
}

impl<'a> SettledValues<'a> {
    fn from_change(change: &'a BindingChange) -> Option<Self> {
        let trx_id = change.settled.as_ref()?.as_str();
        let note = match &change.header {
            Some(HeaderChange::Move { status, reason: Some(reason), .. }) => {
                format!("its provider reports {status}: {reason}")
            }
            Some(HeaderChange::Move { status, .. }) => format!("its provider reports {status}"),
            _ => "it is final".to_owned(),
        };
        Some(Self { trx_id, actor: change.actor.to_string(), key_id: change.actor.key, note })
    }
}

/// Alerts that were written, which are counted after the commit.
#[derive(Debug, Default)]
pub(super) struct WrittenAlerts {
    /// Kinds of the raised alerts.
    raised: Vec<String>,
    /// Number of seconds for which each closed alert was open.
    waited_s: Vec<f64>,
}

impl WrittenAlerts {
    /// Counts the alerts; called after the commit.
    pub(super) fn record_in_metrics(&self) {
        for kind in &self.raised {
            alerts::record_raised(kind);
        }
        for waited_s in &self.waited_s {
            alerts::record_response(TRANSACTION_UNRESOLVED, *waited_s);
        }
    }
}

/// Raises and closes the alerts of these changes. Idempotent.
pub(super) async fn write_alerts<'a>(
    tx: &mut Connection,
    changes: impl Iterator<Item = &'a BindingChange> + Clone,
) -> Result<WrittenAlerts, sqlx::Error> {
    let mut written = WrittenAlerts::default();
    let raised: Vec<_> = changes.clone().flat_map(RaisedValues::from_change).collect();
    let settled: Vec<_> = changes.filter_map(SettledValues::from_change).collect();
    if !raised.is_empty() {
        written.raised = sqlx::query_scalar(
            "-- raise alerts about bindings
             INSERT INTO alerts (order_id, binding_id, kind, dedupe_key, payload, raised_at)
             SELECT $1, a.binding_id, a.kind, a.dedupe_key, a.payload, a.at
             FROM json_to_recordset($2::json) AS a (binding_id text, kind text, dedupe_key text, payload jsonb, at timestamptz)
             ON CONFLICT DO NOTHING RETURNING kind",
        )
        .bind(NO_ORDER)
        .bind(json_of(&raised)?)
        .fetch_all(&mut *tx)
        .await?;
    }
    if !settled.is_empty() {
        // The time comes from this statement, not from the decision, because the alert may have been raised in between.
        written.waited_s = sqlx::query_scalar(
            "-- close alerts about bindings
             UPDATE alerts a SET acked_at = dispatchq_now(), acked_by = s.actor, acked_key_id = s.key_id, ack_note = s.note,
                    next_escalation_at = NULL
             FROM json_to_recordset($3::json) AS s (trx_id text, actor text, key_id uuid, note text)
             WHERE a.order_id = $1 AND a.kind = $2 AND a.dedupe_key = s.trx_id AND coalesce(a.acked_at, 'infinity') = 'infinity'
             RETURNING extract(epoch FROM a.acked_at - a.raised_at)::float8",
        )
        .bind(NO_ORDER)
        .bind(TRANSACTION_UNRESOLVED)
        .bind(json_of(&settled)?)
        .fetch_all(&mut *tx)
        .await?;
    }
    Ok(written)
}
