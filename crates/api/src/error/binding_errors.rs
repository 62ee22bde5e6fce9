//! Conversion of binding errors into API errors.

use super::ApiError;
use bindings::{error::BindingError, store::BatchError};

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
