//! Ids in the paths of bindings and servers.

use axum::{extract::FromRequestParts, http::request::Parts};
use model::binding::{BindingId, ServerId, TrxId};
use utoipa::IntoParams;

use crate::{body::parse_path, error::ApiError};

/// The binding that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(crate) struct BindingPath(
    /// The binding's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$", example = "B-7")]
    pub(crate) BindingId,
);

/// The transaction that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("trx_id"), parameter_in = Path)]
pub(crate) struct TransactionPath(
    /// The transaction's id: the binding's id, `.` and the cycle.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}\\.[1-9][0-9]{0,18}$", example = "B-7.1")]
    pub(crate) TrxId,
);

/// The provider's server that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(crate) struct ServerPath(
    /// The server's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_.-]{1,64}$", example = "S1")]
    pub(crate) ServerId,
);

impl<S: Send + Sync> FromRequestParts<S> for BindingPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        parse_path(parts, state, "id").await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TransactionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        parse_path(parts, state, "trx_id").await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ServerPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        parse_path(parts, state, "id").await.map(Self)
    }
}
