//! Webhook endpoints of producers: `/api/v1/webhook-endpoints`. docs/EVENTS.md describes them for producers.
//!
//! * [`actions`]: changes, with their effects in this process. The console uses them too.
//! * `requests`: values of requests, and their checks. `views`: bodies of answers.
//! * `verbs`: test, rotate, pause, resume, replay. `deliveries`: tries to deliver to an endpoint.
//!
//! Only two answers contain a secret. Such requests take no Idempotency-Key, because answers are stored under that header.

pub mod actions;
mod deliveries;
mod requests;
mod verbs;
mod views;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderName, StatusCode, header::CACHE_CONTROL},
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use self::{
    actions::WantedEndpoint,
    requests::{EndpointPath, check_reason, owner_of},
    views::{EndpointPage, NewEndpointView, example_endpoint, example_new_endpoint},
};
use super::{
    auth::ApiCaller,
    bindings::{next_cursor, page_size},
    body::JsonBody,
    error::ApiError,
    openapi::CallErrors,
    orders::bounded_parameter,
};
use accounts::api_keys::AccountRole;
use app::App;
use foundation::staff_actions::ActionAuthor;
use notify::endpoints::{EndpointOwner, list};

/// Roles that manage endpoints, apart from admins. A producer manages its own.
const OWNERS: [AccountRole; 1] = [AccountRole::Producer];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_webhook_endpoints, create_webhook_endpoint))
        .routes(routes!(delete_webhook_endpoint))
        .routes(routes!(verbs::test_webhook_endpoint))
        .routes(routes!(verbs::rotate_webhook_secret))
        .routes(routes!(verbs::pause_webhook_endpoint))
        .routes(routes!(verbs::resume_webhook_endpoint))
        .routes(routes!(verbs::replay_webhook_events))
        .routes(routes!(deliveries::list_webhook_deliveries))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EndpointListQuery {
    /// Only endpoints of this producer. A producer lists only its own.
    producer: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<Uuid>,
    /// Maximum number of created endpoints per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Lists webhook endpoints.
///
/// The first page starts with the endpoints that the configuration declares. The endpoints that were created by API
/// follow, oldest first, page by page. Secrets are never listed.
#[utoipa::path(get, path = "/", tag = "webhook-endpoints", params(EndpointListQuery), extensions(("x-roles" = json!(OWNERS))),
    responses(
        (status = 200, description = "success", body = EndpointPage,
         example = json!({ "endpoints": [example_endpoint()], "next_cursor": null })),
        CallErrors,
    ))]
async fn list_webhook_endpoints(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<EndpointListQuery>, QueryRejection>,
) -> Result<Json<EndpointPage>, ApiError> {
    caller.require_role(&OWNERS)?;
    let Query(EndpointListQuery { producer, cursor, limit }) = wanted?;
    let (limit, producer) = (page_size(limit)?, bounded_parameter("producer", producer)?);
    let actor = caller.actor();
    let owner = match (owner_of(&actor), &producer) {
        (EndpointOwner::All, Some(name)) => EndpointOwner::Producer(name),
        (EndpointOwner::Producer(own), Some(name)) if own != name => return Ok(Json(EndpointPage::default())),
        (owner, _) => owner,
    };
    let mut endpoints = Vec::new();
    if cursor.is_none() {
        endpoints = list::list_declared(&app.config, &app.notify.channels, owner);
    }
    let created = list::list_page(&app.core.db, owner, cursor, i64::from(limit)).await?;
    let next_cursor = next_cursor(&created, limit, |endpoint| endpoint.id.clone());
    endpoints.extend(created);
    Ok(Json(EndpointPage { endpoints: endpoints.into_iter().map(Into::into).collect(), next_cursor }))
}

/// An endpoint to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateEndpointRequest {
    /// URL that events are posted to: https, and a public address.
    #[schema(min_length = 1, max_length = 2000)]
    url: String,
    /// Types of the events to send. Empty or absent: all types.
    #[serde(default)]
    #[schema(max_items = 100)]
    events: Vec<String>,
    /// Name of the producer whose orders are reported. Default: the name of the caller.
    #[schema(min_length = 1, max_length = 64)]
    producer: Option<String>,
    /// Reason, kept in the audit record. Required for staff.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

type SecretAnswer = (StatusCode, [(HeaderName, &'static str); 1], Json<NewEndpointView>);

/// Creates a webhook endpoint.
///
/// The answer contains the secret of the signatures. It is shown only here and after a rotation. The endpoint gets the
/// events of its producer's orders within a second. A producer has at most 10 endpoints.
#[utoipa::path(post, path = "/", tag = "webhook-endpoints", extensions(("x-roles" = json!(OWNERS))),
    request_body(content = CreateEndpointRequest,
        example = json!({ "url": "https://shop.example.com/dispatchq", "events": ["order.assigned", "order.completed"],
                          "reason": "the new shop is online" })),
    responses(
        (status = 201, description = "success", body = NewEndpointView, example = json!(example_new_endpoint())),
        CallErrors,
    ))]
async fn create_webhook_endpoint(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(new): JsonBody<CreateEndpointRequest>,
) -> Result<SecretAnswer, ApiError> {
    caller.require_role(&OWNERS)?;
    let CreateEndpointRequest { url, events, producer, reason } = new;
    let reason = check_reason(&caller, reason)?;
    let actor = caller.actor();
    let wanted = WantedEndpoint { url, events, producer };
    let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
    let made = actions::create(&app, wanted, owner_of(&actor), by).await?;
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, "no-store")], Json(made.into())))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeletionQuery {
    /// Reason, kept in the audit record. Required for staff.
    #[param(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$", example = "the shop was closed")]
    reason: Option<String>,
}

/// Deletes a webhook endpoint.
///
/// No delivery starts after the answer. Messages that wait for the endpoint expire.
#[utoipa::path(delete, path = "/{id}", tag = "webhook-endpoints", params(EndpointPath, DeletionQuery),
    extensions(("x-roles" = json!(OWNERS))),
    responses((status = 204, description = "success"), CallErrors))]
async fn delete_webhook_endpoint(
    State(app): State<App>,
    caller: ApiCaller,
    EndpointPath(id): EndpointPath,
    wanted: Result<Query<DeletionQuery>, QueryRejection>,
) -> Result<StatusCode, ApiError> {
    caller.require_role(&OWNERS)?;
    let reason = requests::check_reason_parameter(&caller, wanted?.0.reason)?;
    let actor = caller.actor();
    let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
    actions::delete(&app, &id, owner_of(&actor), by).await?;
    Ok(StatusCode::NO_CONTENT)
}
