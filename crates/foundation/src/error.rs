//! Why a service could not do its work.

use crate::config::error::ConfigError;
use queue::StoreError;

/// What failed. `Display` says all of it, causes included, and never a password.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Postgres refused a statement, or could not be reached.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// Redis refused a call, or could not be reached.
    #[error(transparent)]
    Queue(#[from] StoreError),
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A person must change something first; the text names the cure.
    #[error("{0}")]
    Unusable(String),
    /// Part of the work is left; the text says which. The next run does it.
    #[error("{0}")]
    Incomplete(String),
    /// Another error, and what was being done.
    #[error("{doing}: {cause}")]
    During { doing: String, cause: Box<Self> },
}

impl ServiceError {
    /// Says what was being done when this happened.
    #[must_use]
    pub fn during(self, doing: String) -> Self {
        Self::During { doing, cause: Box::new(self) }
    }

    /// Returns the error of Postgres behind it, if that is why.
    pub fn database_error(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Database(error) => Some(error),
            Self::During { cause, .. } => cause.database_error(),
            Self::Queue(_) | Self::Config(_) | Self::Unusable(_) | Self::Incomplete(_) => None,
        }
    }
}

/// Says what was being done when something failed.
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
    fn the_text_names_the_cause_and_the_cause_is_found() {
        let failed: Result<(), _> = Err(sqlx::Error::PoolTimedOut);
        let error = failed.during(|| "cannot reach Postgres at localhost".to_owned()).unwrap_err();
        assert!(error.to_string().starts_with("cannot reach Postgres at localhost: pool timed out"), "{error}");
        assert!(matches!(error.database_error(), Some(sqlx::Error::PoolTimedOut)));
        let queue: Result<(), _> = Err(StoreError::Full { address: "localhost:6379".to_owned() });
        assert!(queue.during(|| "taking counts".to_owned()).unwrap_err().database_error().is_none());
    }
}
