//! What callers hear of an area: the body of the requirement on server busy.

use axum::{
    Json,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};

use super::error::Problem;
use dispatch::admission::answer::{AdmissionAnswer, ReplyLanguage};

pub(super) fn admission_response(answer: &AdmissionAnswer, language: ReplyLanguage) -> Response {
    let status = StatusCode::from_u16(answer.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let body = answer.json_body(language);
    let response = match answer.error_code() {
        Some(code) => Problem::new(status, code, &answer.message_in(language)).beside(body).into_response(),
        None => (status, Json(body)).into_response(),
    };
    match answer.retry_after_sec() {
        Some(secs) => ([(RETRY_AFTER, secs.to_string())], response).into_response(),
        None => response,
    }
}
