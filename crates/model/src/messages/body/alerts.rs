//! What alerts say, and what of them is told again.

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

/// The team that an alert is for, as the requirement names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertTeam {
    SupportingReservation,
}

/// What every alert to support begins with; the whole of one about an order that is not there.
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
    /// Times the partner was asked for a job id, over all bookings of the order; 0 of the own fleet.
    pub total_attempts: i32,
    /// Who is to be contacted; absent of orders without a customer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
}

/// The alert that a trip does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleTripBody {
    #[serde(flatten)]
    pub alert: OrderAlertBody,
    pub driver_id: Option<DriverId>,
}

/// The alert that the end of an order could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedUpdateBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub error: String,
}

/// The alert that a partner refuses our key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedKeyBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub partner: PartnerName,
    pub error: String,
}

/// An alert told again, because no person acknowledged it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepeatedAlertBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub alert_type: MessageKind,
    pub severity: AlertSeverity,
    pub team: AlertTeam,
    pub alert_id: i64,
    /// The kind of the alert's row, which another version may have written.
    pub alert_kind: String,
    /// From 1.
    pub number: i32,
    pub raised_at: DateTime<Utc>,
    /// What was told when it was raised.
    pub alert: Value,
    pub timestamp: DateTime<Utc>,
    #[serde(flatten)]
    pub addressee: Addressee,
}

/// The warning that the SLA of an alert is about to end. Its `number` is 0: it counts as no escalation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlaWarningBody {
    #[serde(flatten)]
    pub repeated: RepeatedAlertBody,
    pub sla_ends_at: DateTime<Utc>,
}

impl RepeatedAlertBody {
    /// Returns the alert as it was raised.
    pub fn told_alert(&self) -> StoredMessage {
        StoredMessage { kind: self.alert_kind.clone(), payload: self.alert.clone() }
    }
}
