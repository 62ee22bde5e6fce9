//! Why a binding or a server is not as it was asked for.

use axum::http::StatusCode;
use dispatch::{binding_store::BatchError, bindings::error::BindingError};
use model::binding::BindingConflict;

use super::ApiError;

/// 404: it is not of this binding. 410: it was, and is over. 409: the binding is, and does not allow this.
pub(super) fn conflict_status(conflict: &BindingConflict) -> StatusCode {
    match conflict {
        BindingConflict::ForeignTransaction(_) => StatusCode::NOT_FOUND,
        BindingConflict::Deleted | BindingConflict::OtpOver => StatusCode::GONE,
        BindingConflict::BadConfig(_) => StatusCode::UNPROCESSABLE_ENTITY,
        BindingConflict::Stopping
        | BindingConflict::Paused
        | BindingConflict::NotRunning
        | BindingConflict::NotAtRest { .. }
        | BindingConflict::Unresolved(_)
        | BindingConflict::OtpStored
        | BindingConflict::OtpNotWanted(_) => StatusCode::CONFLICT,
    }
}

impl From<BindingError> for ApiError {
    fn from(error: BindingError) -> Self {
        match error {
            BindingError::NotFound(_) => Self::NoSuchBinding,
            BindingError::Conflict(conflict) => Self::BindingRefused(conflict),
            BindingError::Invalid(text) => Self::Invalid(text),
            BindingError::Exists(_) => Self::BindingExists(error.to_string()),
            BindingError::NoServer(_) => Self::UnknownServer(error.to_string()),
            BindingError::ServerExists(_) => Self::ServerExists(error.to_string()),
            BindingError::ServerDisabled(_) => Self::ServerDisabled(error.to_string()),
            BindingError::Busy => Self::Busy,
            BindingError::Batch(error) => Self::Batch(error),
            BindingError::Database(error) => Self::Database(error),
        }
    }
}

impl From<BatchError> for ApiError {
    fn from(error: BatchError) -> Self {
        Self::Batch(error)
    }
}
