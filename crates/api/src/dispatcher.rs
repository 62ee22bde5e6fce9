//! Admission advice: `POST /api/v1/dispatcher/availability-check`, as the server-busy requirement prescribes it.

use axum::{
    extract::State,
    http::{HeaderMap, header::ACCEPT_LANGUAGE},
    response::Response,
};
use model::input;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    body::JsonBody,
    busy::{self, BusyReply},
    error::ApiError,
    openapi::{CallErrors, example_busy},
};
use accounts::api_keys::AccountRole;
use app::App;
use areas::admission::check;
use model::{
    admission::{answer::ReplyLanguage, decide::AdmissionCaller},
    ids::ServiceType,
    location::OrderLocation,
};

const ASKERS: [AccountRole; 1] = [AccountRole::Producer];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(check_availability))
}

/// Describes the header for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header; `accepted_language` reads it")]
pub(super) struct LanguageHeader {
    /// Language of messages: `id`, `en` or `vi`.
    #[param(rename = "Accept-Language", pattern = "^[ -~]*$")]
    accept_language: Option<String>,
}

/// An area with room.
#[derive(ToSchema)]
#[schema(as = Availability)]
#[expect(dead_code, reason = "describes an answer whose fields follow the requirement")]
struct AvailabilityReply {
    status: AvailabilityStatus,
    #[schema(required)]
    area_id: Option<String>,
    /// Number of orders that wait in the area.
    #[schema(nullable = false)]
    current_waiting: Option<i64>,
    #[schema(nullable = false)]
    threshold: Option<i64>,
    #[schema(nullable = false)]
    estimated_wait_time_sec: Option<u64>,
    #[schema(nullable = false)]
    bypassed: Option<bool>,
    #[schema(nullable = false)]
    bypass_reason: Option<String>,
    #[schema(nullable = false)]
    message: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "describes an answer")]
enum AvailabilityStatus {
    Available,
}

#[derive(Debug, Deserialize, ToSchema)]
struct AvailabilityRequest {
    /// `pickup_location`, the former name, is also accepted.
    #[serde(alias = "pickup_location")]
    pickup: OrderLocation,
    #[schema(value_type = String)]
    service_type: ServiceType,
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]([ -~]{0,62}[!-~])?$")]
    channel: Option<String>,
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]([ -~]{0,62}[!-~])?$")]
    /// `user_id`, the former name, is also accepted.
    #[serde(alias = "user_id")]
    customer_id: Option<String>,
    /// Loyalty level. An unknown level counts as none.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]([ -~]{0,62}[!-~])?$")]
    loyalty_level: Option<String>,
}

/// Checks whether an order at this pickup would be admitted.
///
/// The answer is advice and up to 0.1 s old. The creation of the order decides.
#[utoipa::path(post, path = "/availability-check", tag = "areas", params(LanguageHeader),
    extensions(("x-roles" = json!(ASKERS))),
    request_body(content = AvailabilityRequest,
        example = json!({ "pickup": { "latitude": -6.2088, "longitude": 106.8456 }, "service_type": "RIDE",
                          "channel": "MYBB", "customer_id": "CUS-1", "loyalty_level": "VOYAGER" })),
    responses(
        (status = 200, description = "success", body = AvailabilityReply,
         example = json!({ "status": "AVAILABLE", "area_id": "JKT-PUSAT", "current_waiting": 45, "threshold": 100,
                           "estimated_wait_time_sec": 120 })),
        CallErrors,
        (status = 503, description = "no room, or admission cannot be checked; try again later", body = BusyReply,
         content_type = "application/problem+json",
         headers(("Retry-After" = u64, description = "seconds to wait")),
         example = json!(example_busy())),
    ))]
async fn check_availability(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    JsonBody(question): JsonBody<AvailabilityRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&ASKERS)?;
    let OrderLocation { latitude, longitude } = question.pickup;
    if !question.pickup.as_lat_lng().is_on_earth() {
        return Err(ApiError::invalid_member("pickup", format!("{latitude}, {longitude} is no place on earth")));
    }
    if !app.config.knows_service_type(&question.service_type) {
        return Err(ApiError::invalid_member(
            "service_type",
            format!("unknown service_type '{}'", question.service_type),
        ));
    }
    for (name, rule, value) in [
        ("channel", input::CHANNEL, question.channel.as_deref()),
        ("customer_id", input::CUSTOMER_ID, question.customer_id.as_deref()),
        ("loyalty_level", input::LOYALTY_LEVEL, question.loyalty_level.as_deref()),
    ] {
        if let Some(problem) = value.and_then(|value| rule.find_problem(value)) {
            return Err(ApiError::invalid_member(name, format!("{name} {problem}")));
        }
    }
    let asker = AdmissionCaller {
        channel: question.channel.as_deref(),
        user: question.customer_id.as_deref(),
        loyalty: question.loyalty_level.as_ref().and_then(|level| level.parse().ok()),
    };
    let answer =
        check::preview_admission(&app.areas, question.pickup.as_lat_lng(), &question.service_type, asker).await;
    Ok(busy::admission_response(&answer, accepted_language(&headers, ReplyLanguage::default())))
}

/// Returns the language that the request accepts, or `otherwise` if it accepts none that has texts.
pub(super) fn accepted_language(headers: &HeaderMap, otherwise: ReplyLanguage) -> ReplyLanguage {
    let header = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    ReplyLanguage::from_accept_language(header, otherwise)
}
