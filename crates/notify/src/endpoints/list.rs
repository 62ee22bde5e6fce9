//! Lists of endpoints.

use uuid::Uuid;

use super::{Endpoint, EndpointOwner, EndpointState};
use crate::channels::MessageChannels;
use foundation::db::Pool;
use settings::Config;

/// Returns the created endpoints of this owner with an id above `after`, oldest first.
pub async fn list_page(
    db: &Pool,
    owner: EndpointOwner<'_>,
    after: Option<Uuid>,
    limit: i64,
) -> Result<Vec<Endpoint>, sqlx::Error> {
    sqlx::query_as(
        "-- list endpoints
         SELECT id::text, producer, url, events, state, paused_after, created_at FROM webhook_endpoints
         WHERE ($1::text IS NULL OR producer = $1) AND ($2::uuid IS NULL OR webhook_endpoints.id > $2)
         ORDER BY webhook_endpoints.id LIMIT $3",
    )
    .persistent(false)
    .bind(owner.producer())
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns the endpoints of this owner that the configuration declares.
pub fn list_declared(config: &Config, channels: &MessageChannels, owner: EndpointOwner<'_>) -> Vec<Endpoint> {
    let declared = config.producers.iter().filter(|(name, producer)| {
        producer.has_webhook() && owner.producer().is_none_or(|owner| owner == name.as_str())
    });
    let endpoints = declared.map(|(name, producer)| {
        let id = Config::producer_channel(name);
        Endpoint {
            // A URL from a file or a variable is a secret, so only its host is shown.
            url: producer.url.clone().or_else(|| channels.shown_url(&id)).unwrap_or_default(),
            id,
            producer: name.clone(),
            events: producer.events.iter().map(ToString::to_string).collect(),
            state: EndpointState::Active,
            declared: true,
            paused_after: None,
            created_at: None,
        }
    });
    endpoints.collect()
}

/// Returns whether the configuration declares an endpoint with this id for this owner.
pub fn is_declared(config: &Config, id: &str, owner: EndpointOwner<'_>) -> bool {
    let declares = |name: &String| {
        Config::producer_channel(name) == id && owner.producer().is_none_or(|owner| owner == name.as_str())
    };
    config.producers.iter().any(|(name, producer)| producer.has_webhook() && declares(name))
}
