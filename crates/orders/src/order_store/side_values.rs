//! Values of payments, refunds, contents and alerts for the statement that writes changes.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    decide::{Change, RefundChange},
    messages::{ChannelRoutes, Message},
    order::Snapshot,
};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

/// Payment events kept per order. A repeated older event is treated as new. It changes nothing unless it supersedes the
/// order's payment status.
const MAX_PAYMENT_EVENTS: usize = 100;

/// Row of `payment_events`.
#[derive(Serialize)]
pub(super) struct PaymentValues<'a> {
    order_id: &'a str,
    event_id: &'a str,
    payment_status: &'a str,
    at: DateTime<Utc>,
}

impl<'a> PaymentValues<'a> {
    pub(super) fn from_change(change: &'a Change) -> Option<Self> {
        let (event_id, status) = change.payment_event.as_ref()?;
        Some(Self { order_id: change.order.id.as_str(), event_id, payment_status: status.as_str(), at: change.at })
    }
}

/// Returns whether the change adds a payment event to an order that has as many as are kept.
pub(super) fn drops_payment_event(before: &Snapshot, change: &Change) -> bool {
    change.payment_event.is_some() && before.payments.len() >= MAX_PAYMENT_EVENTS
}

/// New row of `refunds`, or an update of one.
#[derive(Serialize, Default)]
pub(super) struct RefundValues<'a> {
    order_id: &'a str,
    at: DateTime<Utc>,
    /// Whether the payment service is asked: the row is new.
    is_asked: bool,
    amount_minor: Option<i64>,
    currency: Option<&'a str>,
    /// New state. `None` if it does not change.
    state: Option<&'static str>,
    last_error: Option<&'a str>,
    refund_id: Option<&'a str>,
    other_refund_id: Option<&'a str>,
    is_paid: bool,
    has_failed: bool,
}

impl<'a> RefundValues<'a> {
    pub(super) fn from_change(change: &'a Change) -> Option<Self> {
        let order = &change.order;
        let same = Self { order_id: order.id.as_str(), at: change.at, ..Self::default() };
        Some(match change.refund.as_ref()? {
            RefundChange::Ask => {
                Self { is_asked: true, amount_minor: order.amount_minor, currency: order.currency.as_deref(), ..same }
            }
            RefundChange::Done(refund_id) => {
                Self { state: Some("refunded"), refund_id: refund_id.as_deref(), is_paid: refund_id.is_some(), ..same }
            }
            RefundChange::Refused { why, refund_id } => Self {
                state: Some("refused"),
                last_error: Some(why),
                refund_id: refund_id.as_deref(),
                has_failed: refund_id.is_some(),
                ..same
            },
            RefundChange::OtherId(refund_id) => Self { other_refund_id: Some(refund_id), ..same },
            RefundChange::Late { refund_id, was_paid } => {
                Self { refund_id: Some(refund_id), is_paid: *was_paid, has_failed: !was_paid, ..same }
            }
        })
    }
}

/// Members of an order that its offers contain.
const OFFERED: [&str; 4] = ["pickup", "dropoff", "notes", "requires"];

/// Row of `order_details`, and the changes of live offers that follow from it.
#[derive(Serialize)]
pub(super) struct ContentsValues<'a> {
    order_id: &'a str,
    details: Value,
    created_at: DateTime<Utc>,
    pickup_lat: f64,
    pickup_lng: f64,
    /// Whether drivers with a live offer see the change.
    is_offered: bool,
    /// Whether the pickup location changes, and thus the distances of the drivers.
    is_moved: bool,
}

impl<'a> ContentsValues<'a> {
    /// Builds the row. `is_moved` is whether the pickup location changes.
    pub(super) fn from_change(change: &'a Change, is_moved: bool) -> Option<Self> {
        let contents = change.contents.as_ref()?;
        let order = &change.order;
        Some(Self {
            order_id: order.id.as_str(),
            details: contents.details.to_json(),
            created_at: order.created_at,
            pickup_lat: order.pickup_lat,
            pickup_lng: order.pickup_lng,
            is_offered: contents.fields.iter().any(|name| OFFERED.contains(name)),
            is_moved,
        })
    }
}

/// Acknowledgement of the alerts that a change resolves.
#[derive(Serialize)]
pub(super) struct SettlementValues<'a> {
    order_id: &'a str,
    kind: &'static str,
    reason: Option<&'a str>,
    actor: String,
    note: &'a str,
    key_id: Option<Uuid>,
}

impl<'a> SettlementValues<'a> {
    pub(super) fn from_change(change: &'a Change) -> impl Iterator<Item = Self> {
        change.settles.iter().map(|settlement| Self {
            order_id: change.order.id.as_str(),
            kind: settlement.kind.as_str(),
            reason: settlement.reason.as_deref(),
            actor: change.actor.to_string(),
            note: &settlement.note,
            key_id: change.actor.key,
        })
    }
}

/// Row of `alerts`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AlertValues {
    order_id: OrderId,
    kind: String,
    dedupe_key: String,
    payload: Value,
    at: DateTime<Utc>,
    next_escalation_at: Option<DateTime<Utc>>,
}

impl AlertValues {
    pub(super) fn from_message(change: &Change, message: &Message, routes: &ChannelRoutes) -> Option<Self> {
        let stored = message.is_alert().then(|| message.to_stored_in(&routes.texts))?;
        Some(Self {
            order_id: change.order.id.clone(),
            next_escalation_at: routes.first_telling(&stored.kind, change.at),
            kind: stored.kind,
            dedupe_key: message.dedupe_key.clone(),
            payload: stored.payload,
            at: change.at,
        })
    }
}
