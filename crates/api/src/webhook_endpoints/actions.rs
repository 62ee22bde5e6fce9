//! Changes of webhook endpoints, with their effects in this process. Callers check the role and the reason.

use std::time::Duration;

use model::{key_name::KeyName, messages::ProducerEvent};
use uuid::Uuid;

use crate::error::{ApiError, StaffError};
use app::App;
use foundation::staff_actions::ActionAuthor;
use notify::endpoints::{
    Endpoint, EndpointError, EndpointId, EndpointOwner, EndpointSecret, EndpointState,
    address::EndpointUrl,
    changes::{self, NewEndpoint},
    list, testing,
};
use orders::feed::{FeedCursor, replay};

/// Values of an endpoint to create, as the caller gave them.
#[derive(Debug)]
pub struct WantedEndpoint {
    pub url: String,
    /// Empty: all events.
    pub events: Vec<String>,
    /// `None`: the caller.
    pub producer: Option<String>,
}

/// Creates an endpoint. Returns it with its secret.
pub async fn create(
    app: &App,
    wanted: WantedEndpoint,
    owner: EndpointOwner<'_>,
    by: ActionAuthor<'_>,
) -> Result<(Endpoint, EndpointSecret), ApiError> {
    let producer = check_producer(wanted.producer, owner, by)?;
    if let Err(problem) = EndpointUrl::parse(&wanted.url, app.config.http.local_webhooks) {
        return Err(ApiError::invalid_member("url", format!("url {problem}")));
    }
    let new = NewEndpoint { producer: &producer, url: &wanted.url, events: check_events(&wanted.events)? };
    let made = changes::create_endpoint(&app.core.db, &new, by).await?;
    apply(app).await;
    Ok(made)
}

/// Returns the name of the producer. A producer creates endpoints only for itself.
fn check_producer(given: Option<String>, owner: EndpointOwner<'_>, by: ActionAuthor<'_>) -> Result<String, ApiError> {
    let Some(given) = given else { return Ok(by.actor.name.to_string()) };
    let name = KeyName::parse(&given)
        .map_err(|problem| ApiError::invalid_member("producer", format!("producer {problem}")))?
        .into_string();
    match owner {
        EndpointOwner::Producer(own) if own != name => {
            Err(ApiError::Forbidden("a producer creates webhook endpoints only for itself".to_owned()))
        }
        _ => Ok(name),
    }
}

/// Returns the events sorted and without repetition.
fn check_events(given: &[String]) -> Result<Vec<String>, ApiError> {
    let mut events = Vec::new();
    for word in given {
        let Some(event) = ProducerEvent::of_message(word) else {
            let known = ProducerEvent::ALL.map(ProducerEvent::as_str).join(", ");
            return Err(ApiError::invalid_member("events", format!("events: each must be one of {known}")));
        };
        events.push(event);
    }
    events.sort_unstable();
    events.dedup();
    Ok(events.into_iter().map(|event| event.as_str().to_owned()).collect())
}

/// Sends one event `endpoint.test`. Returns its id.
pub async fn test(app: &App, id: &str, owner: EndpointOwner<'_>, by: ActionAuthor<'_>) -> Result<Uuid, ApiError> {
    let id = find_created(app, id, owner)?;
    let event = testing::write_test(&app.core.db, id, owner, by).await?;
    if let Err(error) = app.core.queue().enqueue(&[event.job]).await {
        tracing::warn!(%error, "The test of an endpoint could not be enqueued; the reconciler does it.");
    }
    Ok(event.message_id)
}

/// Pauses or resumes an endpoint.
pub async fn set_state(
    app: &App,
    id: &str,
    owner: EndpointOwner<'_>,
    state: EndpointState,
    by: ActionAuthor<'_>,
) -> Result<Endpoint, ApiError> {
    let id = find_created(app, id, owner)?;
    let endpoint = changes::set_state(&app.core.db, id, owner, state, by).await?;
    apply(app).await;
    Ok(endpoint)
}

/// Replaces the secret of an endpoint. The old one also signs for `overlap`.
pub async fn rotate(
    app: &App,
    id: &str,
    owner: EndpointOwner<'_>,
    overlap: Duration,
    by: ActionAuthor<'_>,
) -> Result<(Endpoint, EndpointSecret), ApiError> {
    let id = find_created(app, id, owner)?;
    Ok(changes::rotate_secret(&app.core.db, id, owner, overlap, by).await?)
}

/// Requests that the events after a cursor are sent again.
pub async fn replay(
    app: &App,
    id: &str,
    owner: EndpointOwner<'_>,
    after: FeedCursor,
    by: ActionAuthor<'_>,
) -> Result<(), ApiError> {
    let id = find_created(app, id, owner)?;
    Ok(replay::request_replay(&app.core.db, id, owner, after, by).await?)
}

pub async fn delete(app: &App, id: &str, owner: EndpointOwner<'_>, by: ActionAuthor<'_>) -> Result<(), ApiError> {
    let id = find_created(app, id, owner)?;
    changes::delete_endpoint(&app.core.db, id, owner, by).await?;
    apply(app).await;
    Ok(())
}

/// Returns an endpoint that was created by API.
pub async fn find(app: &App, id: &str, owner: EndpointOwner<'_>) -> Result<(EndpointId, Endpoint), ApiError> {
    let id = find_created(app, id, owner)?;
    Ok((id, changes::find_endpoint(&app.core.db, id, owner).await?))
}

/// Parses the id of a created endpoint. Refuses a declared one.
fn find_created(app: &App, id: &str, owner: EndpointOwner<'_>) -> Result<EndpointId, ApiError> {
    if list::is_declared(&app.config, id, owner) {
        return Err(StaffError::EndpointDeclared.into());
    }
    id.parse().map(EndpointId).map_err(|_| StaffError::NoSuchEndpoint.into())
}

/// Makes this process use a change at once. Other processes do so within a second.
async fn apply(app: &App) {
    if let Err(error) = app.notify.endpoints.reload_if_changed(&app.core).await {
        tracing::warn!(%error, "The webhook endpoints could not be read after a change; they are read again soon.");
    }
}

impl From<EndpointError> for ApiError {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::NotFound => Self::Staff(StaffError::NoSuchEndpoint),
            EndpointError::TooMany => Self::Staff(StaffError::TooManyEndpoints),
            EndpointError::AheadOfFeed => Self::invalid_member("after", error.to_string()),
            EndpointError::Database(error) => Self::Database(error),
        }
    }
}
