//! Tries to deliver to an endpoint, newest message first.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Utc};
use model::messages::{OutboxState, StoredMessage};
use serde_json::Value;
use uuid::Uuid;

use super::EndpointId;
use crate::channels::producer::event_body;
use foundation::db::Pool;

/// A try to deliver an event.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct EndpointDelivery {
    /// Number of the message in this database. A message that is sent again by a replay has another number.
    message: i64,
    /// Number of the try, from 1.
    pub attempt_no: i32,
    /// Id of the event, which the receiver sees.
    pub message_id: Uuid,
    #[sqlx(flatten)]
    content: StoredMessage,
    /// State of the message now.
    pub state: OutboxState,
    pub at: DateTime<Utc>,
    /// Reason that the receiver did not accept the event; `None` if it did.
    pub error: Option<String>,
}

/// Place in the list: after this try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryCursor {
    message: i64,
    attempt_no: i32,
}

impl fmt::Display for DeliveryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.message, self.attempt_no)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is what an answer gave as `next_cursor`")]
pub struct InvalidDeliveryCursor;

impl FromStr for DeliveryCursor {
    type Err = InvalidDeliveryCursor;

    fn from_str(text: &str) -> Result<Self, InvalidDeliveryCursor> {
        let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let (message, attempt_no) = text.split_once('-').ok_or(InvalidDeliveryCursor)?;
        if !is_number(message) || !is_number(attempt_no) {
            return Err(InvalidDeliveryCursor);
        }
        let message = message.parse().map_err(|_| InvalidDeliveryCursor)?;
        Ok(Self { message, attempt_no: attempt_no.parse().map_err(|_| InvalidDeliveryCursor)? })
    }
}

impl EndpointDelivery {
    pub fn cursor(&self) -> DeliveryCursor {
        DeliveryCursor { message: self.message, attempt_no: self.attempt_no }
    }

    /// Returns the type of the event.
    pub fn event_type(&self) -> &str {
        &self.content.kind
    }

    /// Returns the body of the request, without the contents of the order, which are read when the event is sent and not
    /// stored.
    pub fn body(&self) -> Value {
        let mut content = self.content.clone();
        if let Value::Object(members) = &mut content.payload {
            members.shift_remove("has_contents");
        }
        event_body(self.message_id, &content)
    }
}

/// Returns tries to deliver to an endpoint, after `after`.
pub async fn list_page(
    db: &Pool,
    id: EndpointId,
    after: Option<DeliveryCursor>,
    limit: i64,
) -> Result<Vec<EndpointDelivery>, sqlx::Error> {
    sqlx::query_as(include_str!("list_deliveries.sql"))
        .persistent(false)
        .bind(id.to_channel())
        .bind(after.map(|after| after.message))
        .bind(after.map(|after| after.attempt_no))
        .bind(limit)
        .fetch_all(db)
        .await
}
