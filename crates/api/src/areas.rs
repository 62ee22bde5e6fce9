//! Areas for those who run them: `/api/v1/admin/dispatcher/areas`. Names and bodies of the requirement on server busy, 3.4.2.
//!
//! A caller changes what it read on condition that it was not changed since: `ETag` of the answer, `If-Match` of the request.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, FromRequest, Query, Request, State,
        rejection::{BytesRejection, QueryRejection},
    },
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{ETAG, IF_MATCH},
    },
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    auth::ApiCaller,
    body::{self, AreaPath, JsonBody},
    error::ApiError,
    orders::bounded_text,
};
use dispatch::{
    accounts::api_keys::AccountRole,
    admission::limits::{AdmissionFlag, ForcedStatus},
    app::App,
    areas::{
        import,
        table::{
            self, ChangeAuthor, flag, geofences,
            limits::{self, LimitsChange},
            overrides,
        },
    },
    reports::area_status,
};

const READERS: [AccountRole; 3] = [AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];
/// A country in detail.
const MAX_IMPORT_BYTES: usize = 16 * 1024 * 1024;
/// Changes of one page.
const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 200;
const WRITERS: [AccountRole; 1] = [AccountRole::Operator];

pub fn routes() -> Router<App> {
    Router::new()
        .route("/areas", get(list_areas).put(import_areas).layer(DefaultBodyLimit::max(MAX_IMPORT_BYTES)))
        .route("/areas/status", get(show_area_status))
        .route("/areas/{area_id}", get(show_area).delete(remove_area))
        .route("/areas/{area_id}/threshold", put(set_threshold))
        .route("/areas/{area_id}/override", post(set_override))
        .route("/areas/{area_id}/changes", get(list_changes))
        .route("/flag", get(show_flag).put(set_flag))
}

async fn list_areas(State(app): State<App>, caller: ApiCaller) -> Result<Response, ApiError> {
    caller.require_role(&READERS)?;
    // Read first: an area that changes in between is newer than the version says, and If-Match refuses.
    let version = geofences::areas_version(&app.db).await?;
    Ok((etag_header(version), Json(json!({ "areas": geofences::list_areas(&app.db).await? }))).into_response())
}

async fn show_area(State(app): State<App>, caller: ApiCaller, AreaPath(area): AreaPath) -> Result<Response, ApiError> {
    caller.require_role(&READERS)?;
    let found =
        geofences::list_areas(&app.db).await?.into_iter().find(|row| row.id == area).ok_or(ApiError::NoSuchArea)?;
    let limits = limits::list_limits(&app.db, Some(&area)).await?;
    let status: Vec<_> =
        area_status::area_statuses(&app).await?.into_iter().filter(|row| row.area_id == area).collect();
    let overridden = overrides::override_version(&app.db, &area).await?;
    let body = json!({ "area": found, "limits": limits, "override_version": overridden, "status": status });
    Ok((etag_header(found.version), Json(body)).into_response())
}

/// How every area stands, now.
async fn show_area_status(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&READERS)?;
    Ok(Json(json!({ "areas": area_status::area_statuses(&app).await?, "flag": flag::load_flag(&app.db).await? })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AreaChangesQuery {
    /// The `next` of the page before.
    before: Option<i64>,
    limit: Option<u32>,
}

/// `{"changes": [...], "next": id}`: newest first, with hashes in the place of geometries; `next` is null on the last page.
async fn list_changes(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    page: Result<Query<AreaChangesQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&READERS)?;
    let Query(AreaChangesQuery { before, limit }) = page.map_err(|e| ApiError::Invalid(e.body_text()))?;
    let limit = limit.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(ApiError::Invalid(format!("limit must be 1 to {LARGEST_PAGE}")));
    }
    let changes = table::list_changes(&app.db, Some(&area), before, limit).await?;
    let is_full = u32::try_from(changes.len()).is_ok_and(|n| n == limit);
    let next = changes.last().filter(|_| is_full).map(|change| change.id);
    Ok(Json(json!({ "changes": changes, "next": next })))
}

/// A GeoJSON FeatureCollection; areas that are there stay unless they are in it.
async fn import_areas(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    // Before the body is read, for it is large.
    caller.require_role(&WRITERS)?;
    let expected = expected_version(&headers)?;
    let bytes = Bytes::from_request(request, &()).await.map_err(|e: BytesRejection| match e.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge(MAX_IMPORT_BYTES),
        _ => ApiError::Malformed(e.body_text()),
    })?;
    body::without_nul(&bytes)?;
    // Shapes are checked pair by pair of their edges: that would hold up other requests.
    let parsed = tokio::task::spawn_blocking(move || {
        let text = std::str::from_utf8(&bytes).map_err(|_| ApiError::Malformed("the body is not UTF-8".to_owned()))?;
        import::parse(text).map_err(|error| ApiError::Invalid(format!("{error:#}")))
    });
    let areas = parsed.await.map_err(|_| ApiError::Invalid("the areas cannot be checked".to_owned()))??;
    let author = ChangeAuthor { actor: &caller.actor(), reason: None };
    let (imported, _) = geofences::import_areas(&app.db, &areas, false, expected, author).await?;
    Ok(Json(json!({ "imported": imported })))
}

async fn remove_area(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&WRITERS)?;
    let author = ChangeAuthor { actor: &caller.actor(), reason: None };
    geofences::remove_area(&app.db, &area, expected_version(&headers)?, author).await?;
    Ok(Json(json!({ "removed": area })))
}

async fn set_threshold(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    headers: HeaderMap,
    JsonBody(change): JsonBody<LimitsChange>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    if !app.config.knows_service_type(&change.service_type) {
        return Err(ApiError::Invalid(format!("unknown service_type '{}'", change.service_type)));
    }
    let reason = bounded_text("reason", change.reason.clone())?;
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let row = limits::set_limits(&app.db, &area, &change, expected_version(&headers)?, author).await?;
    Ok((etag_header(row.version), Json(json!(row))).into_response())
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum OverrideMode {
    ForceBusy,
    ForceAvailable,
    Auto,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideRequest {
    status: OverrideMode,
    reason: Option<String>,
    expires_at: Option<DateTime<Utc>>,
}

async fn set_override(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    headers: HeaderMap,
    JsonBody(request): JsonBody<OverrideRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&[AccountRole::Operator, AccountRole::Dispatcher])?;
    if request.expires_at.is_some_and(|end| end <= app.rules.database_now()) {
        return Err(ApiError::Invalid("expires_at has passed".to_owned()));
    }
    let reason = bounded_text("reason", request.reason)?;
    let forced = match request.status {
        OverrideMode::ForceBusy => Some((ForcedStatus::ForceBusy, request.expires_at)),
        OverrideMode::ForceAvailable => Some((ForcedStatus::ForceAvailable, request.expires_at)),
        OverrideMode::Auto => None,
    };
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let version = overrides::set_override(&app.db, &area, forced, expected_version(&headers)?, author).await?;
    let status = forced.map_or("AUTO", |(status, _)| status.as_str());
    let body = json!({
        "area_id": area, "status": status, "reason": reason, "expires_at": request.expires_at, "version": version
    });
    Ok((etag_header(version), Json(body)).into_response())
}

async fn show_flag(State(app): State<App>, caller: ApiCaller) -> Result<Response, ApiError> {
    caller.require_role(&READERS)?;
    let flag = flag::load_flag(&app.db).await?;
    Ok((etag_header(flag.version), Json(json!(flag))).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlagRequest {
    enabled: bool,
    #[serde(default)]
    enabled_areas: Vec<String>,
    #[serde(default)]
    enabled_channels: Vec<String>,
    #[serde(default = "default_percentage")]
    percentage: i32,
    #[serde(default)]
    shadow_mode: bool,
    reason: Option<String>,
}

fn default_percentage() -> i32 {
    100
}

async fn set_flag(
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
    let reason = bounded_text("reason", request.reason)?;
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let flag = flag::set_flag(&app.db, &flag, expected, author).await?;
    Ok((etag_header(flag.version), Json(json!(flag))).into_response())
}

fn etag_header(version: i64) -> [(HeaderName, String); 1] {
    [(ETAG, format!("\"{version}\""))]
}

/// The version a request insists on.
fn expected_version(headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let version = value.to_str().ok().and_then(|text| text.trim().trim_matches('"').parse().ok());
    version.map(Some).ok_or_else(|| ApiError::Invalid("If-Match must be a version, such as \"3\"".to_owned()))
}
