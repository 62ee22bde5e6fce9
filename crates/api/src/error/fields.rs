//! Parts of a request that break a rule.

use axum::extract::rejection::QueryRejection;
use model::{field_error::FieldError, json_words::plain_error, plain_text};
use serde::Serialize;
use serde_path_to_error::Segment;

use super::ApiError;

/// A part of a request and the rule it breaks. One of `pointer`, `parameter` and `header` names the part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FieldProblem {
    /// Member of the body, as a JSON Pointer (RFC 6901) in a URI fragment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "#/pickup/latitude")]
    pointer: Option<String>,
    /// Parameter of the query or the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "limit")]
    parameter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "If-Match")]
    header: Option<String>,
    /// The broken rule, for people.
    detail: String,
}

/// A named part of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldPart {
    /// A member of the body.
    Member(&'static str),
    Header(&'static str),
}

impl FieldProblem {
    pub(crate) fn in_part(part: FieldPart, detail: &str) -> Self {
        match part {
            FieldPart::Member(name) => Self::in_body(name, detail),
            FieldPart::Header(name) => Self::in_header(name, detail),
        }
    }

    /// Returns a problem in the body. `path` has the member's names and indices separated by slashes, such as
    /// `pickup/latitude`. An empty path means the whole body.
    pub(crate) fn in_body(path: &str, detail: &str) -> Self {
        let pointer = if path.is_empty() { "#".to_owned() } else { format!("#/{path}") };
        Self { pointer: Some(pointer), parameter: None, header: None, detail: detail.to_owned() }
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn in_header(name: &str, detail: &str) -> Self {
        Self { pointer: None, parameter: None, header: Some(name.to_owned()), detail: detail.to_owned() }
    }

    fn in_parameter(name: &str, detail: &str) -> Self {
        Self { pointer: None, parameter: Some(name.to_owned()), header: None, detail: detail.to_owned() }
    }

    /// Returns a problem for the member that starts `message`, as the services' messages do. If the first word is not a
    /// member, the problem is about the whole body.
    pub(super) fn named_by(message: &str) -> Self {
        let word = message.split([' ', ':']).next().unwrap_or_default();
        let is_member = word.contains('_') || MEMBERS.contains(&word);
        Self::in_body(if is_member { word } else { "" }, message)
    }
}

/// Member names without `_` that start messages of services.
const MEMBERS: [&str; 11] =
    ["id", "name", "role", "channel", "email", "phone", "reason", "note", "config", "latitude", "longitude"];

impl ApiError {
    /// Returns the member of the body that the error names, such as `contact/phone`.
    pub fn broken_member(&self) -> Option<String> {
        let pointer = self.broken_field()?.pointer?;
        pointer.strip_prefix("#/").map(str::to_owned)
    }

    /// Returns an error about a member of the body; `path` as in [`FieldProblem::in_body`].
    pub(crate) fn invalid_member(path: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::InvalidField { field: Box::new(FieldProblem::in_body(path, &message)), message }
    }

    /// Returns an error about a parameter of the query or the path.
    pub(crate) fn invalid_parameter(name: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::InvalidField { field: Box::new(FieldProblem::in_parameter(name, &message)), message }
    }

    /// Returns an error about a header.
    pub(crate) fn invalid_header(name: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::InvalidField { field: Box::new(FieldProblem::in_header(name, &message)), message }
    }

    /// Returns an error about a JSON body of the wrong shape. `within` names the member that was read, or is empty for
    /// the whole body.
    pub(crate) fn from_json_error(within: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let text = error.inner().to_string();
        let rule = text.split(" at line ").next().unwrap_or(&text);
        let mut names: Vec<String> = Vec::from_iter((!within.is_empty()).then(|| within.to_owned()));
        for segment in error.path() {
            match segment {
                Segment::Seq { index } => names.push(index.to_string()),
                Segment::Map { key } => names.push(escape_pointer(key)),
                // The name of an enum variant is not a member of the body.
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        let named = named_in(rule).filter(|name| names.last().is_none_or(|last| last != name)).map(escape_pointer);
        names.extend(named);
        let (path, rule) = (names.join("/"), plain_error(rule));
        let message = if path.is_empty() { rule.clone() } else { format!("{}: {rule}", names.join(".")) };
        Self::InvalidField { field: Box::new(FieldProblem::in_body(&path, &rule)), message }
    }
}

/// Escapes a member's name for a JSON Pointer: truncated, and without control characters that a terminal interprets.
fn escape_pointer(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    plain_text::escape_controls(&short).replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
impl ApiError {
    /// Returns the member that the error names.
    pub(crate) fn broken_pointer(&self) -> Option<String> {
        self.broken_field().and_then(|field| field.pointer)
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
        let (_, rest) = text.split_once(": ").unwrap_or(("", &text));
        let (path, rule) = rest.split_once(": ").filter(|(path, _)| is_path(path)).unwrap_or(("", rest));
        let parameter = if path.is_empty() { named_in(rule).unwrap_or("query") } else { path };
        // A query has parameters; only a body has members.
        let detail = plain_error(rule).replacen("there is no member '", "there is no parameter '", 1);
        let message = format!("{parameter}: {detail}");
        Self::InvalidField { field: Box::new(FieldProblem::in_parameter(&escape_pointer(parameter), &detail)), message }
    }
}

/// Returns the field named by the rule about a missing, unknown or repeated field.
fn named_in(rule: &str) -> Option<&str> {
    let named = ["missing field `", "unknown field `", "duplicate field `"];
    let rest = named.iter().find_map(|lead| rule.strip_prefix(lead))?;
    rest.split('`').next()
}

fn is_path(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b))
}
