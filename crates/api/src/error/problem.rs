//! Error bodies: the API's members and those of RFC 9457, and the members that depend on the request.
//!
//! A member that the requirement documents prescribe keeps its name and value. For this reason `status` of a busy area
//! is the word SERVER_BUSY. RFC 9457 (3.1) lets readers ignore a standard member of another type.

use axum::{
    body::Body,
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};
use utoipa::openapi::{Object, ObjectBuilder, Type, schema::SchemaType};

use super::{
    codes::{self, ErrorCode, error_code_schema},
    fields::FieldProblem,
};

/// Media type of all errors.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// An error. A refusal because an area has no room has the schema `ServerBusy` instead.
#[derive(utoipa::ToSchema)]
#[schema(as = ErrorBody)]
#[expect(dead_code, reason = "describes an answer whose members are put together one by one")]
pub(crate) struct ErrorReply {
    #[schema(schema_with = error_code_schema)]
    error_code: &'static str,
    /// Explanation for people.
    message: String,
    /// Path of this API that describes the code.
    #[schema(rename = "type", example = "/errors/ORDER_NOT_FOUND")]
    uri: String,
    /// Title of the code, the same for each error with this code.
    title: String,
    #[schema(schema_with = status_schema)]
    status: u16,
    /// Same text as `message`.
    detail: String,
    /// Path of the request.
    #[schema(nullable = false)]
    instance: Option<String>,
    /// Id of the request, as in the header `X-Request-Id`.
    #[schema(nullable = false)]
    request_id: Option<String>,
    /// Parts of the request that break a rule.
    #[schema(nullable = false)]
    errors: Option<Vec<FieldProblem>>,
}

pub(crate) fn status_schema() -> Object {
    ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![Type::Integer, Type::String]))
        .description(Some("HTTP status. For an area that takes no order, the word that the requirement prescribes."))
        .build()
}

/// An error body. The answer also carries it as an extension, so that [`name_request`] can complete it.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    status: StatusCode,
    members: Map<String, Value>,
}

impl Problem {
    /// Returns an error with the default status of its code.
    pub(crate) fn new(code: &ErrorCode, message: &str) -> Self {
        Self::with_status(code.status(), code, message)
    }

    pub(crate) fn with_status(status: StatusCode, code: &ErrorCode, message: &str) -> Self {
        let members = [
            ("error_code", json!(code.code)),
            ("message", json!(message)),
            ("type", json!(code.path())),
            ("title", json!(code.title)),
            ("status", json!(status.as_u16())),
            ("detail", json!(message)),
        ];
        Self { status, members: members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }

    /// Adds the parts of the request that break a rule.
    pub(crate) fn with_fields(mut self, fields: &[FieldProblem]) -> Self {
        self.members.insert("errors".to_owned(), json!(fields));
        self
    }

    /// Adds the members of `body`. They come first, and their values take precedence.
    pub(crate) fn beside(mut self, body: Value) -> Self {
        if let Value::Object(mut members) = body {
            for (name, value) in self.members {
                members.entry(name).or_insert(value);
            }
            self.members = members;
        }
        self
    }

    fn to_json(&self) -> String {
        serde_json::to_string(&self.members).expect("members with texts as names are JSON")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut answer = (self.status, [(CONTENT_TYPE, MEDIA_TYPE)], self.to_json()).into_response();
        answer.extensions_mut().insert(self);
        answer
    }
}

/// Adds the path and id of the request to an error. Returns other answers unchanged.
pub(crate) fn name_request(mut answer: Response, path: &str, id: &HeaderValue) -> Response {
    let Some(mut problem) = answer.extensions_mut().remove::<Problem>() else { return answer };
    problem.members.insert("instance".to_owned(), json!(path));
    problem.members.insert("request_id".to_owned(), json!(id.to_str().unwrap_or_default()));
    answer.headers_mut().remove(CONTENT_LENGTH);
    *answer.body_mut() = Body::from(problem.to_json());
    answer
}

/// Middleware that turns plain-text refusals of axum into API errors.
pub(crate) async fn adopt_refusal(answer: Response) -> Response {
    let status = answer.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_text = answer.headers().get(CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !is_error || !is_text {
        return answer;
    }
    let (code, message) = match status {
        StatusCode::NOT_FOUND => (&codes::NOT_FOUND, "the API has no such path"),
        StatusCode::METHOD_NOT_ALLOWED => (&codes::METHOD_NOT_ALLOWED, "this method is not allowed here"),
        StatusCode::REQUEST_TIMEOUT => (&codes::TOO_SLOW, "the request did not arrive in time"),
        StatusCode::PAYLOAD_TOO_LARGE => (&codes::TOO_LARGE, "the body is too large"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            (&codes::NOT_JSON, "the body must be JSON: Content-Type: application/json")
        }
        StatusCode::UNPROCESSABLE_ENTITY => (&codes::INVALID, "the request is invalid"),
        StatusCode::SERVICE_UNAVAILABLE => (&codes::UNAVAILABLE, "the request cannot be served now; try again"),
        status if status.is_client_error() => (&codes::MALFORMED, "the request cannot be read"),
        _ => (&codes::INTERNAL, "internal error; the log has the details"),
    };
    let (mut parts, _) = answer.into_parts();
    let (adopted, body) = Problem::with_status(status, code, message).into_response().into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.extend(adopted.headers);
    parts.extensions.extend(adopted.extensions);
    Response::from_parts(parts, body)
}
