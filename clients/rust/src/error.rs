//! Errors of the API as values.

use std::fmt;

use reqwest::{StatusCode, header::HeaderMap};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Error answer of the API.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// No answer, also after the retries.
    #[error("the request failed: {0}")]
    Network(#[from] reqwest::Error),
    /// The answer, or the body of the request, is not the expected JSON.
    #[error("the JSON is not as expected: {0}")]
    Json(#[from] serde_json::Error),
    /// The address of the server. Its text is not printed, because it may have a password, or be the key.
    #[error("the address of the server is not a URL")]
    Url,
}

impl Error {
    /// Returns the error answer of the API, if there is one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }
}

/// Error answer of the API (RFC 9457).
#[derive(Debug, Clone, Default)]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// Code that programs match on. Absent if the answer is not from the API, but from a proxy.
    pub error_code: Option<String>,
    pub message: String,
    pub type_: Option<String>,
    pub title: Option<String>,
    pub detail: Option<String>,
    pub instance: Option<String>,
    pub request_id: Option<String>,
    /// Seconds of the header `Retry-After`.
    pub retry_after: Option<u64>,
    pub errors: Vec<FieldProblem>,
    /// Every member. Empty if the answer is not JSON.
    pub body: Map<String, Value>,
}

/// A part of the request and the rule that it breaks. One of `pointer`, `parameter` and `header` names the part.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct FieldProblem {
    pub detail: String,
    pub pointer: Option<String>,
    pub parameter: Option<String>,
    pub header: Option<String>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.error_code.as_deref().unwrap_or_default(), self.message)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    pub(crate) fn new(status: StatusCode, headers: &HeaderMap, content: &[u8]) -> Self {
        let body: Map<String, Value> = serde_json::from_slice(content).unwrap_or_default();
        let word = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let errors = body.get("errors").cloned().map(serde_json::from_value).and_then(Result::ok);
        Self {
            status: status.as_u16(),
            error_code: word("error_code"),
            message: word("message").unwrap_or_else(|| status.canonical_reason().unwrap_or_default().to_owned()),
            type_: word("type"),
            title: word("title"),
            detail: word("detail"),
            instance: word("instance"),
            request_id: word("request_id").or_else(|| header("x-request-id").map(str::to_owned)),
            retry_after: header("retry-after").and_then(|seconds| seconds.parse().ok()),
            errors: errors.unwrap_or_default(),
            body,
        }
    }

    /// Returns whether another try may have another answer.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.status, 429 | 502 | 503 | 504) || self.error_code.as_deref() == Some("IDEMPOTENCY_KEY_IN_USE")
    }
}
