//! Values of requests about webhook endpoints, and their checks.

use axum::{extract::FromRequestParts, http::request::Parts};
use model::actor::Actor;
use utoipa::IntoParams;

use crate::{
    auth::ApiCaller,
    body::text_in_path,
    error::ApiError,
    reason::{given_reason, optional_reason_parameter},
};
use notify::endpoints::EndpointOwner;

/// The endpoint that a path names: the id of a created endpoint, or `producer:NAME` of a declared one.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(super) struct EndpointPath(
    /// The endpoint's id.
    #[param(value_type = String, example = "01937c3e-8f00-7000-8000-000000000001")]
    pub(super) String,
);

impl<S: Send + Sync> FromRequestParts<S> for EndpointPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        text_in_path(parts, state).await.map(Self)
    }
}

/// Returns the endpoints that a caller may manage: its own for a producer, all for an admin.
pub(super) fn owner_of(actor: &Actor) -> EndpointOwner<'_> {
    actor.producer_name().map_or(EndpointOwner::All, EndpointOwner::Producer)
}

/// Checks the reason of a body. Staff must give one.
pub(super) fn check_reason(caller: &ApiCaller, reason: Option<String>) -> Result<Option<String>, ApiError> {
    match reason {
        Some(reason) => given_reason(reason).map(Some),
        None if needs_no_reason(caller) => Ok(None),
        None => Err(ApiError::invalid_member("reason", "reason is missing")),
    }
}

/// Checks the reason of a query. Staff must give one.
pub(super) fn check_reason_parameter(caller: &ApiCaller, reason: Option<String>) -> Result<Option<String>, ApiError> {
    match optional_reason_parameter(reason)? {
        None if !needs_no_reason(caller) => Err(ApiError::invalid_parameter("reason", "reason is missing")),
        reason => Ok(reason),
    }
}

fn needs_no_reason(caller: &ApiCaller) -> bool {
    caller.is_command_line() || caller.actor().producer_name().is_some()
}
