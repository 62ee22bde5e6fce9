//! Errors in the document: the meaning of each status, and its codes.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Value, json};
use utoipa::{
    IntoResponses, PartialSchema, ToSchema,
    openapi::{Components, ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type},
};

use super::text_header;
use crate::error::{
    ErrorReply, FieldProblem, MEDIA_TYPE,
    codes::{self, STATUSES},
};

/// Errors of most operations.
pub(crate) struct CallErrors;

impl IntoResponses for CallErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| status != StatusCode::PRECONDITION_FAILED)
    }
}

/// Errors of operations on resources with states and versions.
pub(crate) struct VersionErrors;

impl IntoResponses for VersionErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|_| true)
    }
}

/// Errors of operations on areas, which have versions but no orders.
pub(crate) struct AreaErrors;

impl IntoResponses for AreaErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| ![StatusCode::CONFLICT, StatusCode::GONE].contains(&status))
    }
}

/// Errors of operations without key and body.
pub(crate) struct ProbeErrors;

impl IntoResponses for ProbeErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| OF_PROBES.contains(&status))
    }
}

/// The errors of [`ProbeErrors`] and 404.
pub(crate) struct PageErrors;

impl IntoResponses for PageErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| status == StatusCode::NOT_FOUND || OF_PROBES.contains(&status))
    }
}

const OF_PROBES: [StatusCode; 5] = [
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::SERVICE_UNAVAILABLE,
];

fn refer_to(is_possible: impl Fn(StatusCode) -> bool) -> BTreeMap<String, RefOr<Response>> {
    let possible = STATUSES.iter().filter(|(status, _)| is_possible(*status));
    possible.map(|(status, _)| (status.as_str().to_owned(), Ref::from_response_name(status.as_str()).into())).collect()
}

/// Adds one description per status, to which operations refer.
pub(super) fn add_error_answers(components: &mut Components) {
    components.schemas.insert(ErrorReply::name().into_owned(), ErrorReply::schema());
    components.schemas.insert(FieldProblem::name().into_owned(), FieldProblem::schema());
    for (status, meaning) in STATUSES {
        let codes: Vec<_> = codes::with_status(status).map(|code| code.code).collect();
        let schema = Ref::from_schema_name(ErrorReply::name());
        let body = ContentBuilder::new().schema(Some(schema)).example(Some(example_error(status, meaning)));
        let mut answer = ResponseBuilder::new()
            .description(format!("{meaning} ({})", codes.join(", ")))
            .content(MEDIA_TYPE, body.build());
        if status == StatusCode::UNAUTHORIZED {
            answer = answer.header(
                "WWW-Authenticate",
                text_header("the required authentication: Bearer, or Signature for callbacks"),
            );
        }
        if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
            let secs = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).build();
            let wait = HeaderBuilder::new().schema(secs).description(Some("seconds to wait")).build();
            answer = answer.header("Retry-After", wait);
        }
        components.responses.insert(status.as_str().to_owned(), answer.build().into());
    }
}

/// Returns an error with the first code of the status.
fn example_error(status: StatusCode, meaning: &str) -> Value {
    let code = codes::with_status(status).next().unwrap_or(&codes::INTERNAL);
    let mut example = json!({
        "error_code": code.code,
        "message": meaning,
        "type": code.path(),
        "title": code.title,
        "status": status.as_u16(),
        "detail": meaning,
        "instance": "/api/v1/orders",
        "request_id": "019ba1c0-0000-7000-8000-000000000002",
    });
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        example["errors"] = json!([{ "pointer": "#/pickup/latitude", "detail": meaning }]);
    }
    example
}
