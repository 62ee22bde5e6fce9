//! Version of the API in every answer.

use axum::{
    http::{HeaderName, HeaderValue},
    response::Response,
};

const API_VERSION: HeaderName = HeaderName::from_static("dispatchq-version");

/// Adds the version of the OpenAPI document to an answer.
pub(super) async fn add_version(mut answer: Response) -> Response {
    answer.headers_mut().insert(API_VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    answer
}
