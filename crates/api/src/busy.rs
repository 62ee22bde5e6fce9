//! What callers hear of an area: the body of the requirement on server busy.

use axum::{
    Json,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};

use dispatch::admission::answer::{AdmissionAnswer, ReplyLanguage};

pub(super) fn admission_response(answer: &AdmissionAnswer, language: ReplyLanguage) -> Response {
    let status = StatusCode::from_u16(answer.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let body = Json(answer.json_body(language));
    match answer.retry_after_sec() {
        Some(secs) => (status, [(RETRY_AFTER, secs.to_string())], body).into_response(),
        None => (status, body).into_response(),
    }
}
