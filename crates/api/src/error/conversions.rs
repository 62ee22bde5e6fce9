//! Conversion of service and extractor errors into API errors.

use jobs::InvalidOrderId;

use super::ApiError;
use areas::table::TableError;
use model::admission::answer::ReplyLanguage;
use orders::{change::ChangeError, contents::EditError, create::CreateError, search::SearchError};

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotFound => Self::NoSuchOrder,
            ChangeError::Refused(refusal) => Self::Refused(refusal),
            ChangeError::Busy | ChangeError::NoRoom => Self::Busy,
            ChangeError::Database(e) => Self::Database(e),
        }
    }
}

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Invalid(broken) => broken.into(),
            CreateError::Exists(_) => Self::OrderExists(error.to_string()),
            CreateError::Refused(answer) => Self::NoRoom(answer, ReplyLanguage::default()),
            CreateError::Database(e) => Self::Database(e),
        }
    }
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Invalid(broken) => broken.into(),
            EditError::VersionChanged(_) => Self::Changed(error.to_string()),
            EditError::NoRoom(answer) => Self::NoRoom(answer, ReplyLanguage::English),
            EditError::Change(error) => error.into(),
        }
    }
}

impl From<SearchError> for ApiError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::TooLong | SearchError::TooSlow => Self::invalid_parameter("from", error.to_string()),
            SearchError::Database(e) => Self::Database(e),
        }
    }
}

impl From<TableError> for ApiError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::NoSuchArea => Self::NoSuchArea,
            TableError::Changed(_) => Self::Changed(error.to_string()),
            TableError::Invalid(text) => Self::Invalid(text),
            TableError::InvalidField(broken) => broken.into(),
            TableError::Database(e) => Self::Database(e),
        }
    }
}

/// Reports the order id of the path as invalid.
impl From<InvalidOrderId> for ApiError {
    fn from(error: InvalidOrderId) -> Self {
        Self::invalid_parameter("id", error.to_string())
    }
}
