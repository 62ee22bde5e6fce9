//! Opens a ticket in a support system with one POST:
//!
//! ```json
//! {"external_id": "0198c0de-...", "order_id": "ORD-1", "type": "MANUAL_REFUND_REQUIRED",
//!  "subject": "🚨 Manual Refund Required: ORD-1", "description": "...", "priority": "high",
//!  "team": "supporting_reservation", "due_at": "2026-01-10T10:30:00Z", "data": {...}}
//! ```
//!
//! `external_id` (also the header `Idempotency-Key`) stays the same when the message is repeated, so each message opens
//! one ticket. `due_at` is the message's time plus the SLA within the desk's business hours. `data` is the payload that
//! webhooks receive. A message about a binding has `binding_id` instead of `order_id`.
//!
//! The response may contain the ticket's id, as in `{"id": 4711}`. The id is stored with the message, and pages link it
//! to `ticket_url`. A message with an unreadable response still counts as delivered, because another try could open a
//! second ticket.

use std::fmt;

use chrono::SecondsFormat;
use model::{
    ids::TicketId,
    messages::{ChannelRoutes, MessageBody, MessageSubject, text::MessageText},
    plain_text,
};
use reqwest::{Response, Url};
use serde_json::{Value, json};

use super::{DeliveryError, OutgoingMessage, host_of, post, ticket_address::TicketAddress};
use foundation::{
    config::error::{ConfigError, ensure_fits},
    outbound,
};

/// Default JSON Pointer (RFC 6901) to the id in the response.
const USUAL_POINTER: &str = "/id";
/// Maximum length of a response; a longer one is not read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const MAX_ID_BYTES: usize = 128;

#[derive(Clone)]
pub struct TicketChannel {
    url: Url,
    /// Sent as `Authorization: Bearer`.
    token: Option<String>,
    /// JSON Pointer to the ticket's id in the response.
    id_pointer: String,
    /// Web address of tickets; `None`: pages show only the id.
    address: Option<TicketAddress>,
}

impl TicketChannel {
    pub fn new(url: Url, token: Option<String>) -> Self {
        Self { url, token, id_pointer: USUAL_POINTER.to_owned(), address: None }
    }

    /// Sets the JSON Pointer to the ticket's id in the response.
    pub fn with_id_pointer(self, pointer: &str) -> Result<Self, ConfigError> {
        ensure_fits(pointer.starts_with('/'), "ticket_id must be a JSON Pointer such as \"/ticket/id\"")?;
        Ok(Self { id_pointer: pointer.to_owned(), ..self })
    }

    /// Sets the web address that pages link tickets to.
    #[must_use]
    pub fn with_address(self, address: Option<TicketAddress>) -> Self {
        Self { address, ..self }
    }

    /// Returns the web address of this ticket, if one is configured.
    pub(super) fn link_to(&self, ticket: &TicketId) -> Option<String> {
        Some(self.address.as_ref()?.link_to(ticket))
    }

    /// Opens a ticket. Returns its id, if the response contains it.
    pub(super) async fn deliver(
        &self,
        client: &reqwest::Client,
        parcel: &OutgoingMessage<'_>,
        text: &MessageText,
        routes: &ChannelRoutes,
    ) -> Result<Option<TicketId>, DeliveryError> {
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
        let answer = post::send_for_answer(request).await?;
        let ticket = read_body(answer).await.and_then(|body| read_ticket(&body, &self.id_pointer));
        if ticket.is_none() && self.address.is_some() {
            tracing::warn!(
                message.uuid = %parcel.id,
                host = host_of(&self.url),
                pointer = self.id_pointer,
                "The ticket system's response has no ticket id. Pages cannot link to this ticket."
            );
        }
        Ok(ticket)
    }
}

fn due_at(parcel: &OutgoingMessage<'_>, routes: &ChannelRoutes) -> Option<String> {
    let due_at = match parcel.content.read_body() {
        MessageBody::SlaWarning(warning) => warning.sla_ends_at,
        body => routes.sla_end(body.told_at()?),
    };
    Some(due_at.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// Returns the body of a response, or `None` if it is too long or was interrupted.
async fn read_body(mut answer: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Some(body),
            Err(error) => {
                let error = outbound::describe_error(&error);
                tracing::debug!(error, "The response of a ticket system was interrupted.");
                return None;
            }
        }
        if body.len() > MAX_ANSWER_BYTES {
            return None;
        }
    }
}

/// Returns the ticket's id at this pointer of the response: text on one line, or a whole number.
fn read_ticket(body: &[u8], pointer: &str) -> Option<TicketId> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let id = match answer.pointer(pointer)? {
        Value::String(text) => text.clone(),
        Value::Number(number) if !number.is_f64() => number.to_string(),
        _ => return None,
    };
    let fits = (1..=MAX_ID_BYTES).contains(&id.len()) && plain_text::is_plain(&id);
    fits.then(|| id.into())
}

impl fmt::Debug for TicketChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", host_of(&self.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_id_is_text_or_whole_number() {
        let read = |body: &str, pointer: &str| read_ticket(body.as_bytes(), pointer).map(TicketId::into_string);
        assert_eq!(read(r#"{"id": 4711}"#, "/id").as_deref(), Some("4711"));
        assert_eq!(read(r#"{"ticket": {"key": "OPS-7"}}"#, "/ticket/key").as_deref(), Some("OPS-7"));
        assert_eq!(read(r#"{"a/b": ["x", "y"]}"#, "/a~1b/1").as_deref(), Some("y"));
        for (body, pointer) in [
            ("", "/id"),
            ("ok", "/id"),
            ("{}", "/id"),
            (r#"{"id": null}"#, "/id"),
            (r#"{"id": 1.5}"#, "/id"),
            (r#"{"id": ""}"#, "/id"),
            (r#"{"id": {"id": 1}}"#, "/id"),
            (r#"{"id": "a\nb"}"#, "/id"),
            (r#"{"id": 4711}"#, "/ticket/id"),
        ] {
            assert_eq!(read(body, pointer), None, "{body} {pointer}");
        }
        let of_length = |length: usize| read(&json!({ "id": "x".repeat(length) }).to_string(), "/id");
        assert_eq!((of_length(128).is_some(), of_length(129)), (true, None));
    }

    #[test]
    fn ticket_id_path_is_json_pointer() {
        let channel = || TicketChannel::new("https://tickets.example.com/api".parse().unwrap(), None);
        channel().with_id_pointer("/ticket/id").unwrap();
        for wrong in ["", "id", "$.id"] {
            let error = channel().with_id_pointer(wrong).unwrap_err();
            assert!(error.to_string().contains("JSON Pointer"), "{wrong}: {error}");
        }
    }
}
