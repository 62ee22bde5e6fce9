//! Which part of a request breaks which rule.

use axum::extract::rejection::QueryRejection;
use model::{field_error::FieldError, json_words::plain_error};
use serde::Serialize;

use super::ApiError;

/// A part of a request and the rule it breaks. One of `pointer`, `parameter` and `header` names the part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FieldProblem {
    /// A member of the body, as a JSON Pointer (RFC 6901) in a URI fragment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "#/pickup/latitude")]
    pointer: Option<String>,
    /// A parameter of the query or the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "limit")]
    parameter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "If-Match")]
    header: Option<String>,
    /// The rule, for people.
    detail: String,
}

impl FieldProblem {
    /// `path`: the member's names and indices with slashes between them, such as `pickup/latitude`; empty: the body as a whole.
    pub(crate) fn in_body(path: &str, detail: &str) -> Self {
        let pointer = if path.is_empty() { "#".to_owned() } else { format!("#/{path}") };
        Self { pointer: Some(pointer), parameter: None, header: None, detail: detail.to_owned() }
    }
}

impl ApiError {
    /// A member of the body breaks a rule; `path` as in [`FieldProblem::in_body`].
    pub(crate) fn invalid_member(path: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::InvalidField { field: Box::new(FieldProblem::in_body(path, &message)), message }
    }

    /// A parameter of the query or the path breaks a rule.
    pub(crate) fn invalid_parameter(name: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let field =
            FieldProblem { pointer: None, parameter: Some(name.to_owned()), header: None, detail: message.clone() };
        Self::InvalidField { field: Box::new(field), message }
    }

    /// A header breaks a rule.
    pub(crate) fn invalid_header(name: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let field =
            FieldProblem { pointer: None, parameter: None, header: Some(name.to_owned()), detail: message.clone() };
        Self::InvalidField { field: Box::new(field), message }
    }

    /// A body that is JSON and not what it should be. `text` is what axum says of it.
    pub(super) fn from_body_text(text: String) -> Self {
        let (path, rule) = split_rejection(&text);
        let field = FieldProblem::in_body(&path.join("/"), &plain_error(rule));
        Self::InvalidField { field: Box::new(field), message: plain_error(&text) }
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::invalid_member(error.field, error.message)
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let message = plain_error(&text);
        let (path, rule) = split_rejection(&text);
        if path.is_empty() {
            return Self::Invalid(message);
        }
        let (parameter, detail) = (path.join("."), plain_error(rule));
        let field = FieldProblem { pointer: None, parameter: Some(parameter), header: None, detail };
        Self::InvalidField { field: Box::new(field), message }
    }
}

/// Splits a text such as "Failed to deserialize ..: pickup.latitude: invalid type: .. at line 1 column 9" into the names on the
/// way to the field and the rule. A field that is missing is named by the rule alone.
fn split_rejection(text: &str) -> (Vec<&str>, &str) {
    let (_, rest) = text.split_once(": ").unwrap_or(("", text));
    let (path, rule) = rest.split_once(": ").filter(|(path, _)| is_path(path)).unwrap_or(("", rest));
    let mut names: Vec<_> = path.split(['.', '[', ']']).filter(|name| !name.is_empty()).collect();
    names.extend(rule.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()));
    (names, rule.split(" at line ").next().unwrap_or(rule))
}

fn is_path(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b))
}
