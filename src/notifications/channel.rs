//! How one message travels. Webhooks go to configured addresses only: no URL ever comes from a request or a row.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::{Value, json};

use super::routes::LOG;
use crate::outbound;

/// How one channel delivers.
#[derive(Clone)]
pub enum Channel {
    /// A line in the log of the worker.
    Log,
    /// An HTTP POST of the message; any 2xx is delivered.
    Webhook { url: reqwest::Url },
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log => f.write_str("Log"),
            // the path of a webhook is often its secret
            Self::Webhook { url } => write!(f, "Webhook({})", url.host_str().unwrap_or("?")),
        }
    }
}

/// Why a message did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    #[error("no channel '{0}' is configured; add it under [channels] in config.toml")]
    NoSuchChannel(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("the receiver answered {0}")]
    Rejected(u16),
}

/// The configured channels by name.
#[derive(Debug, Clone)]
pub struct Channels {
    client: reqwest::Client,
    by_name: BTreeMap<String, Channel>,
}

impl Channels {
    /// A receiver slower than this has not received.
    const TIMEOUT: Duration = Duration::from_secs(10);

    pub fn new(mut by_name: BTreeMap<String, Channel>) -> Result<Self, reqwest::Error> {
        by_name.entry(LOG.to_owned()).or_insert(Channel::Log);
        let client = outbound::client(Self::TIMEOUT)?;
        Ok(Self { client, by_name })
    }

    /// Delivers one message. `id` lets the receiver drop what it has seen before.
    pub async fn deliver(&self, name: &str, id: i64, kind: &str, payload: &Value) -> Result<(), DeliveryError> {
        match self.by_name.get(name) {
            None => Err(DeliveryError::NoSuchChannel(name.to_owned())),
            Some(Channel::Log) => {
                tracing::info!(
                    message.id = id,
                    message.kind = kind,
                    order.id = payload["order_id"].as_str().unwrap_or_default(),
                    "Message for people."
                );
                Ok(())
            }
            Some(Channel::Webhook { url }) => {
                let body = json!({ "id": id.to_string(), "type": kind, "data": payload });
                let answer = self
                    .client
                    .post(url.clone())
                    .header("webhook-id", id.to_string())
                    .json(&body)
                    .send()
                    .await
                    .map_err(|e| DeliveryError::Unreachable(e.without_url().to_string()))?;
                if answer.status().is_success() {
                    Ok(())
                } else {
                    Err(DeliveryError::Rejected(answer.status().as_u16()))
                }
            }
        }
    }
}
