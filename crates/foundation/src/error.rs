//! The error type of services.

use crate::config::error::ConfigError;
use queue::StoreError;

/// Error of a service. `Display` includes all causes and never a password.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Postgres refused a statement or was unreachable.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// Redis refused a command or was unreachable.
    #[error(transparent)]
    Queue(#[from] StoreError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A person must change something first; the text names the remedy.
    #[error("{0}")]
    Unusable(String),
    /// Part of the work is left; the text names it. The next run does it.
    #[error("{0}")]
    Incomplete(String),
    /// Another error, with the operation that failed.
    #[error("{doing}: {cause}")]
    During { doing: String, cause: Box<Self> },
}

impl ServiceError {
    #[must_use]
    pub fn during(self, doing: String) -> Self {
        Self::During { doing, cause: Box::new(self) }
    }

    /// Returns the underlying error of Postgres, if there is one.
    pub fn database_error(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Database(error) => Some(error),
            Self::During { cause, .. } => cause.database_error(),
            Self::Queue(_) | Self::Config(_) | Self::Unusable(_) | Self::Incomplete(_) => None,
        }
    }
}

/// Adds the operation that failed to an error.
pub trait DuringContext<T> {
    fn during(self, doing: impl FnOnce() -> String) -> Result<T, ServiceError>;
}

impl<T, E: Into<ServiceError>> DuringContext<T> for Result<T, E> {
    fn during(self, doing: impl FnOnce() -> String) -> Result<T, ServiceError> {
        self.map_err(|error| error.into().during(doing()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_text_and_database_error() {
        let failed: Result<(), _> = Err(sqlx::Error::PoolTimedOut);
        let error = failed.during(|| "cannot reach Postgres at localhost".to_owned()).unwrap_err();
        assert!(error.to_string().starts_with("cannot reach Postgres at localhost: pool timed out"), "{error}");
        assert!(matches!(error.database_error(), Some(sqlx::Error::PoolTimedOut)));
        let queue: Result<(), _> = Err(StoreError::Full { address: "localhost:6379".to_owned() });
        assert!(queue.during(|| "taking counts".to_owned()).unwrap_err().database_error().is_none());
    }
}
