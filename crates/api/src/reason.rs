//! Reasons of staff actions in requests.

use std::fmt;

use model::input;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

use super::{auth::ApiCaller, error::ApiError};

/// The `reason` of a staff action. The command line that runs in this process may send null instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StaffReason(Option<String>);

/// Creates an empty reason, which [`check`](StaffReason::check) refuses in the same way as a missing one.
impl Default for StaffReason {
    fn default() -> Self {
        Self(Some(String::new()))
    }
}

impl StaffReason {
    /// Returns the reason, or an error if it breaks [`input::REASON`].
    pub(crate) fn check(self, caller: &ApiCaller) -> Result<Option<String>, ApiError> {
        let Self(given) = self;
        match given {
            Some(reason) => given_reason(reason).map(Some),
            None if caller.is_command_line() => Ok(None),
            None => Err(ApiError::invalid_member("reason", "reason: expected a text, not null")),
        }
    }
}

/// Checks a required reason.
pub(crate) fn given_reason(reason: String) -> Result<String, ApiError> {
    match input::REASON.find_problem(&reason) {
        Some(problem) => Err(ApiError::invalid_member("reason", format!("reason {problem}"))),
        None => Ok(reason),
    }
}

/// Checks the optional `reason` of a body. A given reason must satisfy [`input::REASON`].
pub(crate) fn optional_reason(reason: Option<String>) -> Result<Option<String>, ApiError> {
    reason.map(given_reason).transpose()
}

/// Checks the optional `reason` of a query. A given reason must satisfy [`input::REASON`].
pub(crate) fn optional_reason_parameter(reason: Option<String>) -> Result<Option<String>, ApiError> {
    match reason.as_deref().and_then(|text| input::REASON.find_problem(text)) {
        Some(problem) => Err(ApiError::invalid_parameter("reason", format!("reason {problem}"))),
        None => Ok(reason),
    }
}

impl<'de> Deserialize<'de> for StaffReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Reads any type. If it were read as an option, a missing member would count as null.
        deserializer.deserialize_any(ReasonVisitor)
    }
}

struct ReasonVisitor;

impl Visitor<'_> for ReasonVisitor {
    type Value = StaffReason;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<StaffReason, E> {
        Ok(StaffReason(Some(text.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<StaffReason, E> {
        Ok(StaffReason(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Request {
        reason: StaffReason,
    }

    #[test]
    fn missing_reason_differs_from_null() {
        let read = |text: &str| serde_json::from_str::<Request>(text).map(|request| request.reason);
        assert_eq!(read(r#"{"reason":"a test"}"#).unwrap(), StaffReason(Some("a test".to_owned())));
        assert_eq!(read(r#"{"reason":null}"#).unwrap(), StaffReason(None));
        assert!(read("{}").unwrap_err().to_string().contains("missing field `reason`"));
        assert!(read(r#"{"reason":5}"#).unwrap_err().to_string().contains("expected a string"));
    }
}
