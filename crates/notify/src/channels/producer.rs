//! Events to a producer, as signed webhooks: `{"id", "type", "timestamp", "version", "data"}`.
//!
//! A URL or host name of a private network could make this process send requests to internal services. Private
//! addresses are therefore rejected when the configuration is loaded, and again whenever a name is resolved.

use model::messages::{STEP_VERSION, StoredMessage};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{DeliveryError, OutgoingMessage, webhook::WebhookChannel};

#[derive(Debug, Clone)]
pub struct ProducerChannel {
    webhook: WebhookChannel,
    allow_private: bool,
}

/// HTTP clients for webhooks of producers.
#[derive(Clone, Copy)]
pub(crate) struct ProducerClients<'a> {
    pub(super) any: &'a reqwest::Client,
    /// Client that connects to public addresses only.
    pub(super) public: &'a reqwest::Client,
}

impl ProducerChannel {
    pub fn new(webhook: WebhookChannel, allow_private: bool) -> Self {
        Self { webhook, allow_private }
    }

    pub(crate) async fn deliver(
        &self,
        clients: &ProducerClients<'_>,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<(), DeliveryError> {
        let client = if self.allow_private { clients.any } else { clients.public };
        self.webhook.post_signed(client, parcel, &event_body(parcel.id, parcel.content)).await
    }

    /// Returns the URL without its path.
    pub(super) fn shown_url(&self) -> String {
        self.webhook.shown_url()
    }
}

/// Returns the event body. A row of another version is sent unchanged.
pub(crate) fn event_body(id: Uuid, content: &StoredMessage) -> Value {
    let mut data = content.payload.as_object().cloned().unwrap_or_default();
    data.shift_remove("event");
    let (timestamp, version) = (data.shift_remove("timestamp"), data.shift_remove("version"));
    json!({
        "id": id.to_string(),
        "type": content.kind,
        "timestamp": timestamp,
        // The bodies of the requirement documents have no version.
        "version": version.unwrap_or_else(|| json!(STEP_VERSION)),
        "data": data,
    })
}
