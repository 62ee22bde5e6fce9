//! The states of an outbox row, and where a try leads it.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::ids::TicketId;

/// The state of a message's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum OutboxState {
    /// On its way, perhaps for hours. Left when it is delivered, expires or is given up.
    Pending,
    /// Its receiver has it.
    Delivered,
    /// No longer worth sending: an offer that lapsed, or was taken back.
    Expired,
    /// Given up. An operator may have it sent again: it is pending then.
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

/// Where a row goes after a try.
#[derive(Debug, Clone, PartialEq)]
pub enum DeliveryResult {
    /// Delivered; where it opened a ticket, with the id that the ticket system answered.
    Delivered(Option<TicketId>),
    /// The try failed; the next is at this time.
    Again(DateTime<Utc>, String),
    /// An offer that would lapse before its next try.
    Expired(String),
    /// An offer whose receiver does not want it.
    Unreachable(String),
    /// Given up.
    Dead(String),
}
