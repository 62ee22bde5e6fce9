//! Is there room? `POST /api/v1/dispatcher/availability-check`, as the requirement on server busy writes it.

use axum::{
    Json, Router,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT_LANGUAGE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
    routing::post,
};
use serde::Deserialize;

use super::{auth::ApiCaller, body::JsonBody, error::ApiError};
use dispatch::{
    accounts::api_keys::AccountRole,
    admission::{
        answer::{AdmissionAnswer, ReplyLanguage},
        check,
        decide::AdmissionCaller,
    },
    app::App,
    orders::create::OrderLocation,
};

pub fn routes() -> Router<App> {
    Router::new().route("/availability-check", post(check_availability))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AvailabilityRequest {
    pickup_location: OrderLocation,
    service_type: String,
    channel: Option<String>,
    user_id: Option<String>,
    /// An unknown one counts as none.
    loyalty_level: Option<String>,
}

async fn check_availability(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    JsonBody(question): JsonBody<AvailabilityRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&[AccountRole::Producer])?;
    let OrderLocation { latitude, longitude } = question.pickup_location;
    if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
        return Err(ApiError::Invalid(format!("{latitude}, {longitude} is no place on earth")));
    }
    if !app.config.knows_service_type(&question.service_type) {
        return Err(ApiError::Invalid(format!("unknown service_type '{}'", question.service_type)));
    }
    let asker = AdmissionCaller {
        channel: question.channel.as_deref(),
        user: question.user_id.as_deref(),
        loyalty: question.loyalty_level.as_ref().and_then(|level| level.parse().ok()),
    };
    let answer = check::preview_admission(&app, (latitude, longitude), &question.service_type, asker).await;
    Ok(admission_response(&answer, accepted_language(&headers)))
}

/// What the caller reads.
pub(super) fn accepted_language(headers: &HeaderMap) -> ReplyLanguage {
    ReplyLanguage::from_accept_language(headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()))
}

pub(super) fn admission_response(answer: &AdmissionAnswer, language: ReplyLanguage) -> Response {
    let status = StatusCode::from_u16(answer.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let body = Json(answer.json_body(language));
    match answer.retry_after_sec() {
        Some(secs) => (status, [(RETRY_AFTER, secs.to_string())], body).into_response(),
        None => (status, body).into_response(),
    }
}
