//! Alerts that are repeated because no person has acknowledged them.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use serde_json::Value;

use super::{
    addressee::Addressee,
    body::{AlertSeverity, AlertTeam, MessageBody, MessageEvent, RepeatedAlertBody, SlaWarningBody},
    kind::MessageKind,
    message::{Message, MessageAudience},
};

/// Builds the reminder to every dispatcher that the order of this alert still waits.
pub fn dispatcher_reminder(alert: &RepeatedAlert, now: DateTime<Utc>) -> Message {
    let body = alert.build_body(MessageEvent::DispatcherReminder, MessageKind::Reminder, now);
    Message::new(MessageBody::Reminder(body), MessageAudience::Dispatchers, alert.dedupe_key(), now)
}

/// Builds the escalation of an alert that was not acknowledged in time.
pub fn alert_escalation(alert: &RepeatedAlert, now: DateTime<Utc>) -> Message {
    let body = alert.build_body(MessageEvent::ManualActionRequired, MessageKind::Escalation, now);
    Message::new(MessageBody::Escalation(body), MessageAudience::Escalation, alert.dedupe_key(), now)
}

/// Builds the warning to support that the SLA of an unacknowledged alert ends at `sla_ends_at`. Its number is 0.
pub fn sla_warning(alert: &RepeatedAlert, sla_ends_at: DateTime<Utc>, now: DateTime<Utc>) -> Message {
    let repeated = alert.build_body(MessageEvent::ManualActionRequired, MessageKind::SlaWarning, now);
    let repeated = RepeatedAlertBody { number: 0, ..repeated };
    let body = MessageBody::SlaWarning(SlaWarningBody { repeated, sla_ends_at });
    Message::new(body, MessageAudience::Support, format!("{}-warning", alert.alert_id), now)
}

#[derive(Debug, Clone)]
pub struct RepeatedAlert<'a> {
    pub alert_id: i64,
    pub order_id: &'a OrderId,
    pub kind: &'a str,
    pub raised_at: DateTime<Utc>,
    /// Number of the repetition, from 1.
    pub number: i32,
    /// Payload of the alert when it was raised.
    pub told: &'a Value,
}

impl RepeatedAlert<'_> {
    fn dedupe_key(&self) -> String {
        format!("{}-{}", self.alert_id, self.number)
    }

    fn build_body(&self, event: MessageEvent, alert_type: MessageKind, now: DateTime<Utc>) -> RepeatedAlertBody {
        RepeatedAlertBody {
            event,
            order_id: self.order_id.clone(),
            alert_type,
            severity: AlertSeverity::High,
            team: AlertTeam::SupportingReservation,
            alert_id: self.alert_id,
            alert_kind: self.kind.to_owned(),
            number: self.number,
            raised_at: self.raised_at,
            alert: self.told.clone(),
            timestamp: now,
            addressee: Addressee::default(),
        }
    }
}
