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

use super::{auth::Caller, body::Body, error::ApiError};
use dispatch::{
    admission::{
        answer::{Answer, Language},
        check,
        decide::Asker,
    },
    app::App,
    orders::create::Location,
    people::api_keys::Role,
};

pub fn routes() -> Router<App> {
    Router::new().route("/availability-check", post(check_availability))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    pickup_location: Location,
    service_type: String,
    channel: Option<String>,
    user_id: Option<String>,
    /// An unknown one counts as none.
    loyalty_level: Option<String>,
}

async fn check_availability(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Body(question): Body<Question>,
) -> Result<Response, ApiError> {
    caller.must_be(&[Role::Producer])?;
    let Location { latitude, longitude } = question.pickup_location;
    if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
        return Err(ApiError::Invalid(format!("{latitude}, {longitude} is no place on earth")));
    }
    if !app.config.knows_service_type(&question.service_type) {
        return Err(ApiError::Invalid(format!("unknown service_type '{}'", question.service_type)));
    }
    let asker = Asker {
        channel: question.channel.as_deref(),
        user: question.user_id.as_deref(),
        loyalty: question.loyalty_level.as_ref().and_then(|level| level.parse().ok()),
    };
    let answer = check::advise(&app, (latitude, longitude), &question.service_type, asker).await;
    Ok(respond(&answer, language(&headers)))
}

/// What the caller reads.
pub(super) fn language(headers: &HeaderMap) -> Language {
    Language::accepted(headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()))
}

pub(super) fn respond(answer: &Answer, language: Language) -> Response {
    let status = StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let body = Json(answer.body(language));
    match answer.retry_after_sec() {
        Some(secs) => (status, [(RETRY_AFTER, secs.to_string())], body).into_response(),
        None => (status, body).into_response(),
    }
}
