//! What callers hear of an area: the body of the requirement on server busy.

use axum::{
    Json,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use utoipa::ToSchema;

use super::error::{
    Problem,
    codes::{self, busy_code_schema},
    status_schema,
};
use model::admission::answer::{AdmissionAnswer, NearbyArea, ReplyLanguage};

/// Why an order finds no room now. The members of an area are those of a refusal; a customer whose level bypasses the threshold is told
/// `max_with_bypass` in the place of `retry_after_sec`. `AdmissionAnswer` and `Problem` write it.
#[derive(ToSchema)]
#[schema(as = ServerBusy)]
#[expect(dead_code, reason = "describes an answer whose members follow the requirement")]
pub(super) struct BusyReply {
    /// SERVER_BUSY where an area takes no order; else UNAVAILABLE, or the HTTP status.
    #[schema(schema_with = status_schema)]
    status: u16,
    #[schema(schema_with = busy_code_schema)]
    error_code: &'static str,
    #[schema(nullable = false)]
    area_id: Option<String>,
    /// Orders that wait.
    #[schema(nullable = false)]
    current_waiting: Option<i64>,
    #[schema(nullable = false)]
    threshold: Option<i64>,
    /// As the header Retry-After.
    #[schema(nullable = false)]
    retry_after_sec: Option<u64>,
    /// Loyal customers are taken while fewer wait than this.
    #[schema(nullable = false)]
    max_with_bypass: Option<i64>,
    #[schema(nullable = false)]
    loyalty_level: Option<String>,
    #[schema(nullable = false)]
    bypassed: Option<bool>,
    /// What is wrong, for people.
    message: String,
    /// Why a person has closed the area.
    #[schema(nullable = false)]
    reason: Option<String>,
    #[schema(nullable = false)]
    oldest_waiting_since: Option<DateTime<Utc>>,
    /// The nearest areas that have room.
    #[schema(nullable = false)]
    nearby_areas: Option<Vec<NearbyArea>>,
    /// Where the code is described: a path of this API.
    #[schema(rename = "type", example = "/errors/DISPATCHER_AREA_THRESHOLD_REACHED")]
    uri: String,
    /// The code in words, the same at each occurrence.
    title: String,
    /// As `message`.
    detail: String,
    /// The path of the request.
    #[schema(nullable = false)]
    instance: Option<String>,
    /// As the header X-Request-Id.
    #[schema(nullable = false)]
    request_id: Option<String>,
}

pub(super) fn admission_response(answer: &AdmissionAnswer, language: ReplyLanguage) -> Response {
    let status = StatusCode::from_u16(answer.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let body = answer.json_body(language);
    let response = match answer.error_code() {
        Some(code) => Problem::new(codes::of(code), &answer.message_in(language)).beside(body).into_response(),
        None => (status, Json(body)).into_response(),
    };
    match answer.retry_after_sec() {
        Some(secs) => ([(RETRY_AFTER, secs.to_string())], response).into_response(),
        None => response,
    }
}
