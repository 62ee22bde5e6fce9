//! Body of a refusal because an area is full or disabled, as the server-busy requirement prescribes it.

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

/// Refusal of an order by admission.
///
/// For a customer whose loyalty level bypasses the threshold, `max_with_bypass` replaces `retry_after_sec`.
#[derive(ToSchema)]
#[schema(as = ServerBusy)]
#[expect(dead_code, reason = "describes an answer whose members follow the requirement")]
pub(super) struct BusyReply {
    /// `SERVER_BUSY` if an area takes no order; otherwise `UNAVAILABLE` or the HTTP status.
    #[schema(schema_with = status_schema)]
    status: u16,
    #[schema(schema_with = busy_code_schema)]
    error_code: &'static str,
    #[schema(nullable = false)]
    area_id: Option<String>,
    /// Number of orders that wait in the area.
    #[schema(nullable = false)]
    current_waiting: Option<i64>,
    #[schema(nullable = false)]
    threshold: Option<i64>,
    /// Seconds until the next attempt, as in the header `Retry-After`.
    #[schema(nullable = false)]
    retry_after_sec: Option<u64>,
    /// Number of waiting orders below which an order of a loyal customer is still taken.
    #[schema(nullable = false)]
    max_with_bypass: Option<i64>,
    #[schema(nullable = false)]
    loyalty_level: Option<String>,
    #[schema(nullable = false)]
    bypassed: Option<bool>,
    /// Explanation for people.
    message: String,
    /// Reason given by the person who disabled the area.
    #[schema(nullable = false)]
    reason: Option<String>,
    #[schema(nullable = false)]
    oldest_waiting_since: Option<DateTime<Utc>>,
    /// The nearest areas with room.
    #[schema(nullable = false)]
    nearby_areas: Option<Vec<NearbyArea>>,
    /// Path of this API that describes the code.
    #[schema(rename = "type", example = "/errors/DISPATCHER_AREA_THRESHOLD_REACHED")]
    uri: String,
    /// Title of the code, the same for each error with this code.
    title: String,
    /// Same text as `message`.
    detail: String,
    /// Path of the request.
    #[schema(nullable = false)]
    instance: Option<String>,
    /// Id of the request, as in the header `X-Request-Id`.
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
