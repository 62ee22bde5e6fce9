//! Reasons why a binding or a provider's server was not changed.

use jobs::BindingId;
use model::binding::{BindingConflict, ServerId};

use crate::store::BatchError;
use foundation::error::ServiceError;

/// Reason why a binding was not changed.
#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    #[error("no binding '{0}'")]
    NotFound(BindingId),
    #[error(transparent)]
    Conflict(#[from] BindingConflict),
    /// The request cannot succeed in its present form. The text explains how to correct it.
    #[error("{0}")]
    Invalid(String),
    #[error("binding '{0}' exists already")]
    Exists(BindingId),
    #[error("server '{0}' does not exist; create it first")]
    NoServer(ServerId),
    #[error("server '{0}' exists already")]
    ServerExists(ServerId),
    #[error("server '{0}' is disabled: enable it first")]
    ServerDisabled(ServerId),
    #[error("the binding is changing too quickly; try again")]
    Busy,
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl BindingError {
    /// Returns the error code for programs. Returns `None` if the same request may succeed a moment later.
    pub fn refusal_code(&self) -> Option<&'static str> {
        match self {
            Self::NotFound(_) => Some("BINDING_NOT_FOUND"),
            Self::Conflict(conflict) => Some(conflict.error_code()),
            Self::Invalid(_) => Some("INVALID"),
            Self::Exists(_) => Some("BINDING_EXISTS"),
            Self::NoServer(_) => Some("SERVER_NOT_FOUND"),
            Self::ServerExists(_) => Some("SERVER_EXISTS"),
            Self::ServerDisabled(_) => Some("SERVER_DISABLED"),
            Self::Busy | Self::Batch(_) | Self::Database(_) => None,
        }
    }

    /// Returns the Postgres error that caused this error, if there is one.
    pub fn database_error(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Batch(BatchError::Database(error)) => Some(error),
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

impl From<BindingError> for ServiceError {
    fn from(error: BindingError) -> Self {
        match error {
            BindingError::Database(error) => Self::Database(error),
            busy @ (BindingError::Busy | BindingError::Batch(_)) => Self::Incomplete(busy.to_string()),
            refused => Self::Unusable(refused.to_string()),
        }
    }
}
