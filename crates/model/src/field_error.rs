//! Error for one field of a request.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FieldError {
    /// Name of the field in the body. Names of nested fields are separated by slashes, such as `contact/phone`.
    pub field: &'static str,
    /// Error text for people; it names the field.
    pub message: String,
}

impl FieldError {
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into() }
    }
}
