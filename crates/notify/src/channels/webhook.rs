//! A POST of `{"id", "type", "data"}` with the headers of Standard Webhooks: `webhook-id`, `webhook-timestamp` and, if
//! a secret is configured, `webhook-signature`. There is one signature per secret, separated by spaces.

use std::fmt;

use chrono::Utc;
use reqwest::{Url, header::CONTENT_TYPE};
use serde_json::{Value, json};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP};

use super::{DeliveryError, OutgoingMessage, host_of, post};
use foundation::config::{error::ConfigError, secret::signing_key};

#[derive(Clone)]
pub struct WebhookChannel {
    url: Url,
    /// Signing keys: the current secret and, during a change of secrets, the previous one.
    keys: Vec<Vec<u8>>,
}

impl WebhookChannel {
    /// Creates a channel. `secrets` have the Standard Webhooks form: base64, optionally after `whsec_`. A message is
    /// signed with each secret, and the receiver accepts any of the signatures.
    pub fn new(url: Url, secrets: Vec<String>) -> Result<Self, ConfigError> {
        let keys = secrets.iter().map(|secret| signing_key("secret", secret)).collect::<Result<_, _>>()?;
        Ok(Self { url, keys })
    }

    /// Returns the URL without its path, which may be a secret.
    pub(super) fn shown_url(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    pub(super) async fn deliver(
        &self,
        client: &reqwest::Client,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<(), DeliveryError> {
        let body = json!({ "id": parcel.id.to_string(), "type": parcel.content.kind, "data": parcel.content.payload });
        self.post_signed(client, parcel, &body).await
    }

    /// Signs and posts this body as the message's content.
    pub(super) async fn post_signed(
        &self,
        client: &reqwest::Client,
        parcel: &OutgoingMessage<'_>,
        body: &Value,
    ) -> Result<(), DeliveryError> {
        let (id, body) = (parcel.id.to_string(), body.to_string());
        // The receiver compares this time with its own clock. Our deadlines do not depend on it.
        let timestamp = Utc::now().timestamp();
        let mut request = client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(HEADER_WEBHOOK_ID, &id)
            .header(HEADER_WEBHOOK_TIMESTAMP, timestamp);
        if !self.keys.is_empty() {
            let signatures = self.keys.iter().map(|key| {
                standardwebhooks::Webhook::from_bytes(key.clone())
                    .and_then(|key| key.sign(&id, timestamp, body.as_bytes()))
            });
            let signatures: Vec<String> = signatures
                .collect::<Result<_, _>>()
                .map_err(|e| DeliveryError::Refused(format!("the message could not be signed: {e}")))?;
            request = request.header(HEADER_WEBHOOK_SIGNATURE, signatures.join(" "));
        }
        post::send_request(request.body(body)).await
    }
}

impl fmt::Debug for WebhookChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Webhook({}{})", host_of(&self.url), if self.keys.is_empty() { "" } else { ", signed" })
    }
}
