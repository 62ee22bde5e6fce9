//! Limits on waiting orders per area, overrides, and the flag that turns admission on.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, TimeDelta, Utc};
use model::input::GivenTime;
use serde::{Deserialize, Serialize};
use utoipa::{
    IntoParams, ToSchema,
    openapi::{Array, ArrayBuilder, ObjectBuilder, Type},
};

use super::{
    super::{
        auth::ApiCaller,
        body::{AreaPath, JsonBody, PatchBody},
        error::ApiError,
        etag::{etag_header, expected_version},
        openapi::{AreaErrors, example_area_limits, example_flag},
        reason::{optional_reason, optional_reason_parameter},
    },
    READERS, WRITERS,
};
use accounts::api_keys::AccountRole;
use app::App;
use areas::table::{
    ChangeAuthor, flag,
    limits::{self, LimitsChange, LimitsRow},
    overrides,
};
use model::{
    admission::limits::{AdmissionFlag, ForcedStatus},
    ids::{AreaId, ServiceType},
};

/// Roles that may override an area's count.
const DECIDERS: [AccountRole; 2] = [AccountRole::Operator, AccountRole::Dispatcher];

/// Sets an area's limits for a service type.
///
/// Among the limits are the number of waiting orders, the time that an order counts as waiting, and the lifetime of an
/// order. A member that the body omits stays unchanged. With null the installation's configuration applies again.
#[utoipa::path(put, path = "/areas/{area_id}/threshold", tag = "areas", extensions(("x-roles" = json!(WRITERS))),
    params(AreaPath,
           ("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the version that was read (ETag of GET); a different current version is answered 412")),
    request_body(content = LimitsChange,
        example = json!({ "service_type": "RIDE", "max_waiting_orders": 150, "waiting_timeout_sec": 300 })),
    responses(
        (status = 200, description = "success", body = LimitsRow,
         headers(("ETag" = String, description = "the version of the limits")),
         example = json!(example_area_limits())),
        AreaErrors,
    ))]
pub(super) async fn set_threshold(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    headers: HeaderMap,
    PatchBody { value: mut change, nulls }: PatchBody<LimitsChange>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    change.inherit = nulls.iter().filter_map(|name| name.parse().ok()).collect();
    if let Some(problem) = app.config.find_unknown_type(&change.service_type) {
        return Err(ApiError::invalid_member("service_type", problem));
    }
    let reason = optional_reason(change.reason.clone())?;
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let row = limits::set_limits(&app.core.db, &area, &change, expected_version(&headers)?, author).await?;
    Ok((etag_header(row.version), Json(row)).into_response())
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LimitsQuery {
    #[param(value_type = String, example = "RIDE")]
    service_type: ServiceType,
    /// Reason, kept in the audit record.
    #[param(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Removes all limits set for a service type in an area.
///
/// The installation's configuration applies again.
#[utoipa::path(delete, path = "/areas/{area_id}/threshold", tag = "areas", extensions(("x-roles" = json!(WRITERS))),
    params(AreaPath, LimitsQuery,
           ("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the version that was read (ETag of GET); a different current version is answered 412")),
    responses(
        (status = 200, description = "success", body = LimitsRow,
         headers(("ETag" = String, description = "the version of the limits")),
         example = json!(example_area_limits())),
        AreaErrors,
    ))]
pub(super) async fn reset_threshold(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    which: Result<Query<LimitsQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let Query(LimitsQuery { service_type, reason }) = which?;
    let reason = optional_reason_parameter(reason)?;
    if let Some(problem) = app.config.find_unknown_type(&service_type) {
        return Err(ApiError::invalid_parameter("service_type", problem));
    }
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let change = LimitsChange::inherit_all(service_type);
    let row = limits::set_limits(&app.core.db, &area, &change, expected_version(&headers)?, author).await?;
    Ok((etag_header(row.version), Json(row)).into_response())
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum OverrideMode {
    ForceBusy,
    ForceAvailable,
    Auto,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct OverrideRequest {
    status: OverrideMode,
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
    /// End of the override. Default: until it is changed.
    #[schema(value_type = Option<DateTime<Utc>>)]
    expires_at: Option<GivenTime>,
    /// End of the override in seconds from now. Exclusive with `expires_at`.
    #[schema(minimum = 1, maximum = 315360000)]
    expires_in_sec: Option<u32>,
}

/// Maximum duration of an override with an end: ten years.
const LONGEST_SEC: u32 = 315_360_000;

impl OverrideRequest {
    fn end(&self, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, ApiError> {
        match (self.expires_at.map(GivenTime::time), self.expires_in_sec) {
            (Some(_), Some(_)) => {
                Err(ApiError::invalid_member("expires_in_sec", "give either expires_at or expires_in_sec"))
            }
            (Some(end), None) if end <= now => Err(ApiError::invalid_member("expires_at", "expires_at has passed")),
            (end, None) => Ok(end),
            (None, Some(secs)) if !(1..=LONGEST_SEC).contains(&secs) => {
                let rule = format!("expires_in_sec must be 1 to {LONGEST_SEC}");
                Err(ApiError::invalid_member("expires_in_sec", rule))
            }
            (None, Some(secs)) => Ok(Some(now + TimeDelta::seconds(secs.into()))),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct OverrideAnswer {
    #[schema(value_type = String)]
    area_id: AreaId,
    status: OverrideMode,
    reason: Option<String>,
    expires_at: Option<DateTime<Utc>>,
    version: i64,
}

/// Overrides the status of an area, regardless of its count.
#[utoipa::path(post, path = "/areas/{area_id}/override", tag = "areas", extensions(("x-roles" = json!(DECIDERS))),
    params(AreaPath,
           ("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the version of the override (override_version of the area); a different current version is answered 412")),
    request_body(content = OverrideRequest, example = json!({ "status": "FORCE_BUSY", "reason": "Banjir di area" })),
    responses(
        (status = 200, description = "success", body = OverrideAnswer,
         headers(("ETag" = String, description = "the version of the override")),
         example = json!({ "area_id": "JKT-PUSAT", "status": "FORCE_BUSY", "reason": "Banjir di area", "expires_at": null,
                           "version": 8 })),
        AreaErrors,
    ))]
pub(super) async fn set_override(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    headers: HeaderMap,
    JsonBody(request): JsonBody<OverrideRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&DECIDERS)?;
    let expires_at = request.end(app.core.database_clock.now())?;
    let reason = optional_reason(request.reason)?;
    let forced = match request.status {
        OverrideMode::ForceBusy => Some((ForcedStatus::ForceBusy, expires_at)),
        OverrideMode::ForceAvailable => Some((ForcedStatus::ForceAvailable, expires_at)),
        OverrideMode::Auto => None,
    };
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let version = overrides::set_override(&app.core.db, &area, forced, expected_version(&headers)?, author).await?;
    let body = OverrideAnswer { area_id: area, status: request.status, reason, expires_at, version };
    Ok((etag_header(version), Json(body)).into_response())
}

/// Returns the flag: whether areas refuse orders, and for which areas, channels and users.
#[utoipa::path(get, path = "/flag", tag = "areas", extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = AdmissionFlag,
         headers(("ETag" = String, description = "the version of the flag")),
         example = json!(example_flag())),
        AreaErrors,
    ))]
pub(super) async fn show_flag(State(app): State<App>, caller: ApiCaller) -> Result<Response, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let flag = flag::load_flag(&app.core.db).await?;
    Ok((etag_header(flag.version), Json(flag)).into_response())
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FlagRequest {
    enabled: bool,
    /// Areas that the flag applies to. Empty: all.
    #[serde(default)]
    #[schema(value_type = Vec<String>, schema_with = list_of_names)]
    enabled_areas: Vec<AreaId>,
    /// Channels that the flag applies to. Empty: all.
    #[serde(default)]
    #[schema(schema_with = list_of_names)]
    enabled_channels: Vec<String>,
    /// Percentage of users that the flag applies to.
    #[serde(default = "default_percentage")]
    #[schema(minimum = 0, maximum = 100, default = default_percentage)]
    percentage: i32,
    /// If true, thresholds refuse no request. Requests that a threshold would have refused are logged and recorded.
    #[serde(default)]
    shadow_mode: bool,
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

fn default_percentage() -> i32 {
    100
}

fn list_of_names() -> Array {
    ArrayBuilder::new()
        .items(ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[ -~]{1,64}$")))
        .description(Some("Empty: all."))
        .build()
}

/// Replaces the flag.
#[utoipa::path(put, path = "/flag", tag = "areas", extensions(("x-roles" = json!(WRITERS))),
    params(("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the version that was read (ETag of GET); a different current version is answered 412")),
    request_body(content = FlagRequest,
        example = json!({ "enabled": true, "enabled_areas": ["JKT-PUSAT"], "shadow_mode": true, "reason": "a trial" })),
    responses(
        (status = 200, description = "success", body = AdmissionFlag,
         headers(("ETag" = String, description = "the version of the flag")),
         example = json!(example_flag())),
        AreaErrors,
    ))]
pub(super) async fn set_flag(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    JsonBody(request): JsonBody<FlagRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let expected = expected_version(&headers)?;
    let flag = AdmissionFlag {
        enabled: request.enabled,
        enabled_areas: request.enabled_areas,
        enabled_channels: request.enabled_channels,
        percentage: request.percentage,
        shadow_mode: request.shadow_mode,
        version: 0,
    };
    let reason = optional_reason(request.reason)?;
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let flag = flag::set_flag(&app.core.db, &flag, expected, author).await?;
    Ok((etag_header(flag.version), Json(flag)).into_response())
}
