//! The channel of an endpoint, read before each try. So a try uses the current secrets, and a paused or deleted endpoint
//! gets nothing.

use super::{EndpointId, EndpointState, address::EndpointUrl};
use crate::channels::{DeliveryError, producer::ProducerChannel, webhook::WebhookChannel};
use foundation::db::Pool;

#[derive(sqlx::FromRow)]
struct SendingRow {
    url: String,
    state: EndpointState,
    secret: String,
    /// The previous secret, if it still signs.
    secret_previous: Option<String>,
}

/// Reads the endpoint and checks its address. `allow_local` is the setting `http.local_webhooks`.
pub(crate) async fn open_endpoint(
    db: &Pool,
    id: EndpointId,
    allow_local: bool,
) -> Result<ProducerChannel, DeliveryError> {
    let again = |error: String| DeliveryError::Again { error, pause: None };
    let row = load_row(db, id).await.map_err(|error| again(format!("the endpoint could not be read: {error}")))?;
    let row = row.ok_or_else(|| DeliveryError::Withdrawn("the endpoint was deleted".to_owned()))?;
    if row.state == EndpointState::Paused {
        return Err(again("the endpoint is paused".to_owned()));
    }
    let EndpointUrl { url, is_local } = EndpointUrl::parse(&row.url, allow_local)
        .map_err(|problem| DeliveryError::Refused(format!("url {problem}")))?;
    let secrets = std::iter::once(row.secret).chain(row.secret_previous).collect();
    let webhook = WebhookChannel::new(url, secrets).map_err(|error| DeliveryError::Refused(error.to_string()))?;
    Ok(ProducerChannel::new(webhook, is_local))
}

async fn load_row(db: &Pool, id: EndpointId) -> Result<Option<SendingRow>, sqlx::Error> {
    sqlx::query_as(
        "-- endpoint of message
         SELECT url, state, secret, CASE WHEN previous_until > dispatchq_now() THEN secret_previous END AS secret_previous
         FROM webhook_endpoints WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}
