//! An event to a producer, as a signed webhook: `{"id", "type", "timestamp", "version", "data"}`.
//!
//! A URL or a name that leads into a private network would make this process ask what others cannot reach. So addresses that
//! are not public are refused, when the configuration is loaded and again each time a name is resolved.

use model::messages::STEP_VERSION;
use serde_json::{Value, json};

use super::{DeliveryError, OutgoingMessage, webhook::WebhookChannel};

#[derive(Debug, Clone)]
pub struct ProducerChannel {
    webhook: WebhookChannel,
    /// Also addresses that are not public are asked.
    allow_private: bool,
}

/// The clients that webhooks of producers go by.
pub(super) struct ProducerClients<'a> {
    pub(super) any: &'a reqwest::Client,
    /// Connects to public addresses only.
    pub(super) public: &'a reqwest::Client,
}

impl ProducerChannel {
    pub fn new(webhook: WebhookChannel, allow_private: bool) -> Self {
        Self { webhook, allow_private }
    }

    pub(super) async fn deliver(
        &self,
        clients: &ProducerClients<'_>,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<(), DeliveryError> {
        let client = if self.allow_private { clients.any } else { clients.public };
        self.webhook.post_signed(client, parcel, &event_body(parcel)).await
    }
}

/// Returns the event as its receiver gets it. A row of another version is sent as it is.
fn event_body(parcel: &OutgoingMessage<'_>) -> Value {
    let mut data = parcel.content.payload.as_object().cloned().unwrap_or_default();
    data.shift_remove("event");
    let (timestamp, version) = (data.shift_remove("timestamp"), data.shift_remove("version"));
    json!({
        "id": parcel.id.to_string(),
        "type": parcel.content.kind,
        "timestamp": timestamp,
        // The bodies of the requirement documents have none.
        "version": version.unwrap_or_else(|| json!(STEP_VERSION)),
        "data": data,
    })
}
