//! States of an outbox row, and results of a delivery.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::ids::TicketId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum OutboxState {
    /// To be delivered, possibly for hours. Ends when the message is delivered, expires or fails for good.
    Pending,
    Delivered,
    /// No longer useful: the offer expired or was withdrawn.
    Expired,
    /// Delivery failed for good. An operator can requeue the message; it is then pending.
    Dead,
}

impl OutboxState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for OutboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum DeliveryResult {
    /// Delivered. If the delivery opened a ticket, with the id that the ticket system returned.
    Delivered(Option<TicketId>),
    /// Failed; retried at this time.
    Again(DateTime<Utc>, String),
    /// An offer that would expire before its next try.
    Expired(String),
    /// An offer that the receiver rejects.
    Unreachable(String),
    /// Failed for good.
    Dead(String),
}
