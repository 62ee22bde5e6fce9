//! Contents of alerts and of repeated alerts.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    super::{addressee::Addressee, kind::MessageKind},
    MessageEvent, StoredMessage,
};
use crate::{
    ids::{DriverId, PartnerName},
    order::{OrderStatus, PaymentStatus},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertSeverity {
    High,
}

/// Team that handles the alert, as the requirement document names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertTeam {
    SupportingReservation,
}

/// Common fields of all alerts to support. An alert about a missing order has only these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionHead {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub alert_type: MessageKind,
    pub severity: AlertSeverity,
    pub team: AlertTeam,
    pub timestamp: DateTime<Utc>,
}

/// An alert to support about an order and its money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderAlertBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub status: OrderStatus,
    pub reason: String,
    pub payment_status: PaymentStatus,
    pub payment_amount_minor: Option<i64>,
    pub payment_currency: Option<String>,
    /// Number of requests to partners for a job id, over all bookings of the order; 0 for your own fleet.
    pub total_attempts: i32,
    /// Customer to contact; absent if the order has no customer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleTripBody {
    #[serde(flatten)]
    pub alert: OrderAlertBody,
    pub driver_id: Option<DriverId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedUpdateBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub error: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedKeyBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub partner: PartnerName,
    pub error: String,
}

/// A repetition of an unacknowledged alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepeatedAlertBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub alert_type: MessageKind,
    pub severity: AlertSeverity,
    pub team: AlertTeam,
    pub alert_id: i64,
    /// Kind of the alert's row, which another version may have written.
    pub alert_kind: String,
    /// Number of the repetition, from 1.
    pub number: i32,
    pub raised_at: DateTime<Utc>,
    /// Payload of the alert when it was raised.
    pub alert: Value,
    pub timestamp: DateTime<Utc>,
    #[serde(flatten)]
    pub addressee: Addressee,
}

/// Warning that the SLA of an alert is about to end. Its `number` is 0, because it does not count as an escalation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlaWarningBody {
    #[serde(flatten)]
    pub repeated: RepeatedAlertBody,
    pub sla_ends_at: DateTime<Utc>,
}

impl RepeatedAlertBody {
    pub fn told_alert(&self) -> StoredMessage {
        StoredMessage { kind: self.alert_kind.clone(), payload: self.alert.clone() }
    }
}
