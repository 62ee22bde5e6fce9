//! Bodies of answers about webhook endpoints.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{ToSchema, openapi::Object};

use crate::bindings::word_schema;
use notify::endpoints::{Endpoint, EndpointSecret, EndpointState};

fn endpoint_state_schema() -> Object {
    word_schema(["active", "paused"])
}

/// A webhook endpoint.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookEndpoint)]
pub(super) struct EndpointView {
    id: String,
    /// URL that events are posted to. The path of a declared URL that comes from a file or a variable is not shown.
    url: String,
    /// Types of the events that are sent; empty: all.
    events: Vec<String>,
    /// Name of the producer whose orders are reported.
    producer: String,
    /// A paused endpoint gets no events. A replay sends them later.
    #[schema(schema_with = endpoint_state_schema)]
    state: EndpointState,
    /// Whether the configuration declares the endpoint. It can then only be changed there.
    declared: bool,
    /// Cursor of the latest pause. A replay after it sends what the pause has skipped. Null: never paused.
    #[schema(required)]
    paused_after: Option<String>,
    /// Null for a declared endpoint.
    #[schema(required)]
    created_at: Option<DateTime<Utc>>,
}

impl From<Endpoint> for EndpointView {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint { id, producer, url, events, state, declared, paused_after, created_at } = endpoint;
        Self { id, url, events, producer, state, declared, paused_after, created_at }
    }
}

#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = WebhookEndpointPage)]
pub(super) struct EndpointPage {
    pub(super) endpoints: Vec<EndpointView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    pub(super) next_cursor: Option<String>,
}

/// A webhook endpoint with a new secret.
#[derive(Serialize, ToSchema)]
#[schema(as = NewWebhookEndpoint)]
pub(super) struct NewEndpointView {
    #[serde(flatten)]
    endpoint: EndpointView,
    /// Secret of the signatures. It is not shown again.
    #[schema(pattern = "^whsec_[A-Za-z0-9+/=]+$")]
    secret: String,
}

impl From<(Endpoint, EndpointSecret)> for NewEndpointView {
    fn from((endpoint, secret): (Endpoint, EndpointSecret)) -> Self {
        Self { endpoint: endpoint.into(), secret: secret.expose().to_owned() }
    }
}

/// Hides the secret, so that it appears in no log.
impl fmt::Debug for NewEndpointView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewEndpointView({:?}, ***)", self.endpoint)
    }
}

pub(super) fn example_endpoint() -> Value {
    json!({
        "id": "01937c3e-8f00-7000-8000-000000000001", "url": "https://shop.example.com/dispatchq",
        "events": ["order.assigned", "order.completed"], "producer": "shop", "state": "active", "declared": false,
        "paused_after": null, "created_at": "2026-01-09T08:00:00Z",
    })
}

pub(super) fn example_new_endpoint() -> Value {
    let mut endpoint = example_endpoint();
    endpoint["secret"] = json!("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    endpoint
}
