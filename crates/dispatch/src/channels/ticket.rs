//! Opens a ticket in a support system by one POST:
//!
//! ```json
//! {"external_id": "0198c0de-...", "order_id": "ORD-1", "type": "MANUAL_REFUND_REQUIRED",
//!  "subject": "🚨 Manual Refund Required: ORD-1", "description": "...", "priority": "high",
//!  "team": "supporting_reservation", "due_at": "2026-01-10T10:30:00Z", "data": {...}}
//! ```
//!
//! `external_id` (also the header `Idempotency-Key`) stays the same when the message is repeated: one ticket each.
//! `due_at` is the time of the message plus the SLA; `data` is the message as webhooks get it.

use std::{fmt, time::Duration};

use chrono::{SecondsFormat, TimeDelta};
use model::messages::text::MessageText;
use reqwest::Url;
use serde_json::json;

use super::{DeliveryError, OutgoingMessage, host_of, post};

#[derive(Clone)]
pub struct TicketChannel {
    url: Url,
    /// Sent as `Authorization: Bearer`.
    token: Option<String>,
}

impl TicketChannel {
    pub fn new(url: Url, token: Option<String>) -> Self {
        Self { url, token }
    }

    pub(super) async fn deliver(
        &self,
        client: &reqwest::Client,
        parcel: &OutgoingMessage<'_>,
        text: &MessageText,
        sla: Duration,
    ) -> Result<(), DeliveryError> {
        let id = parcel.id.to_string();
        let body = json!({
            "external_id": id,
            "order_id": parcel.order_id,
            "type": parcel.content.kind,
            "subject": text.subject,
            "description": text.body,
            "priority": "high",
            "team": "supporting_reservation",
            "due_at": due_at(parcel, sla),
            "data": parcel.content.payload,
        });
        let mut request = client.post(self.url.clone()).header("idempotency-key", id).json(&body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        post::send_request(request).await
    }
}

fn due_at(parcel: &OutgoingMessage<'_>, sla: Duration) -> Option<String> {
    let due_at = parcel.content.read_body().told_at()?.checked_add_signed(TimeDelta::from_std(sla).ok()?)?;
    Some(due_at.to_rfc3339_opts(SecondsFormat::Secs, true))
}

impl fmt::Debug for TicketChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", host_of(&self.url))
    }
}
