//! Administration over HTTP, for operators and admins: `/api/v1/admin`.
//!
//! * [`queues`]: depth, lateness and pauses of queues. [`workers`]: workers and their drains. [`dead`]: dead jobs. [`living_jobs`]: all other jobs.
//! * [`outbox`]: outbox messages, and replay of dead ones.
//! * [`keys`]: API keys. [`scopes`]: scopes of keys and users. [`users`]: staff who receive messages. [`sessions`]: sessions of the console.
//! * [`shards`]: the shards of the queue. [`upkeep`]: reconciliation, cleanup and the history check.
//! * [`proof`]: the continuous proof of the history.
//! * [`erasures`]: erasure of personal data.
//! * [`audit`]: the audit trail of staff actions.

pub(crate) mod audit;
pub(crate) mod dead;
pub(crate) mod erasures;
mod examples;
pub(crate) mod keys;
pub(crate) mod living_jobs;
pub(crate) mod outbox;
pub(crate) mod proof;
pub(crate) mod queues;
pub mod scopes;
pub(crate) mod sessions;
pub(crate) mod shards;
pub(crate) mod upkeep;
pub(crate) mod users;
pub(crate) mod workers;

use axum::{extract::FromRequestParts, http::request::Parts};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema, openapi::Object};

use super::{
    bindings::word_schema,
    body::text_in_path,
    error::{ApiError, StaffError},
    reason::StaffReason,
};
use accounts::api_keys::AccountRole;
use queue::JobId;

const OPERATORS: [AccountRole; 1] = [AccountRole::Operator];
/// Empty, because admins pass every role check.
const ADMINS: [AccountRole; 0] = [];

/// Reason for an action. It is kept in the audit record.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StaffActionRequest)]
pub(crate) struct ActionRequest {
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    pub(crate) reason: StaffReason,
}

/// The job that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("job_id"), parameter_in = Path)]
pub(crate) struct JobPath(
    /// The job's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_:.-]{3,200}$", example = "dispatch:ORD-1:1")]
    pub(crate) JobId,
);

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let text = text_in_path(parts, state).await?;
        JobId::parse(text).map(Self).map_err(|error| ApiError::invalid_parameter("job_id", error.to_string()))
    }
}

/// Returns the queue of this name.
pub(super) fn find_queue(name: &str) -> Result<&'static str, ApiError> {
    let found = jobs::queues::ALL.into_iter().find(|queue| *queue == name);
    found.ok_or_else(|| StaffError::NoSuchQueue(name.chars().take(64).collect()).into())
}

fn queue_schema() -> Object {
    word_schema(jobs::queues::ALL)
}
