//! Opens a ticket in a support system by one POST:
//!
//! ```json
//! {"external_id": "0198c0de-...", "order_id": "ORD-1", "type": "MANUAL_REFUND_REQUIRED",
//!  "subject": "🚨 Manual Refund Required: ORD-1", "description": "...", "priority": "high",
//!  "team": "supporting_reservation", "due_at": "2026-01-10T10:30:00Z", "data": {...}}
//! ```
//!
//! `external_id` (also the header `Idempotency-Key`) stays the same when the message is repeated: one ticket each.
//! `due_at` is the time of the message plus the SLA, by the desk's business hours; `data` is the message as webhooks get it. A
//! message about a binding has `binding_id` in the place of `order_id`.

use std::fmt;

use chrono::SecondsFormat;
use model::messages::{ChannelRoutes, MessageBody, MessageSubject, text::MessageText};
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
        routes: &ChannelRoutes,
    ) -> Result<(), DeliveryError> {
        let id = parcel.id.to_string();
        let (about, subject_id) = match parcel.subject {
            MessageSubject::Order(id) => ("order_id", id.as_str()),
            MessageSubject::Binding(id) => ("binding_id", id.as_str()),
        };
        let body = json!({
            "external_id": id,
            about: subject_id,
            "type": parcel.content.kind,
            "subject": text.subject,
            "description": text.body,
            "priority": "high",
            "team": "supporting_reservation",
            "due_at": due_at(parcel, routes),
            "data": parcel.content.payload,
        });
        let mut request = client.post(self.url.clone()).header("idempotency-key", id).json(&body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        post::send_request(request).await
    }
}

fn due_at(parcel: &OutgoingMessage<'_>, routes: &ChannelRoutes) -> Option<String> {
    let due_at = match parcel.content.read_body() {
        MessageBody::SlaWarning(warning) => warning.sla_ends_at,
        body => routes.sla_end(body.told_at()?),
    };
    Some(due_at.to_rfc3339_opts(SecondsFormat::Secs, true))
}

impl fmt::Debug for TicketChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", host_of(&self.url))
    }
}
