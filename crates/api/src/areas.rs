//! Administration of areas: `/api/v1/admin/dispatcher/areas`. Names and bodies follow the server-busy requirement,
//! 3.4.2.
//!
//! [`settings`]: limits, overrides and the flag. [`report`]: outcomes of admission requests. [`hours`]: figures from
//! which thresholds are proposed. A caller makes a change conditional on the version it read: `ETag` of the answer,
//! `If-Match` of the request.

mod hours;
mod report;
mod settings;

use axum::{
    Json,
    extract::{DefaultBodyLimit, FromRequest, Query, Request, State, rejection::QueryRejection},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouterExt},
    routes,
};

use super::{
    auth::ApiCaller,
    body::{AreaPath, LargestBody, ReasonQuery, WholeBody},
    error::ApiError,
    etag::{etag_header, expected_version},
    ignored_fields::IgnoredFields,
    json,
    json_lines::MAX_IMPORT_BYTES,
    openapi::{AreaErrors, example_area, example_area_limits, example_collection, example_flag, example_status},
    reason::optional_reason_parameter,
};
use accounts::api_keys::AccountRole;
use app::App;
use areas::{
    import::{self, AreaFile},
    table::{
        self, AuditEntry, ChangeAuthor, flag,
        geofences::{self, AreaRow},
        limits::{self, LimitsRow},
        overrides,
    },
};
use desk::reports::area_status::{self, AreaStatus};
use model::{admission::limits::AdmissionFlag, ids::AreaId};

const READERS: [AccountRole; 4] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];
/// Default number of changes per page.
const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 200;
const WRITERS: [AccountRole; 1] = [AccountRole::Operator];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_areas, import_areas).layer(DefaultBodyLimit::max(MAX_IMPORT_BYTES)))
        .routes(routes!(export_areas))
        .routes(routes!(show_area_status))
        .routes(routes!(report::show_area_report))
        .routes(routes!(hours::show_area_hours))
        .routes(routes!(settings::set_threshold, settings::reset_threshold))
        .routes(routes!(show_area, remove_area))
        .routes(routes!(settings::set_override))
        .routes(routes!(list_changes))
        .routes(routes!(list_all_changes))
        .routes(routes!(settings::show_flag, settings::set_flag))
}

#[derive(Debug, Serialize, ToSchema)]
struct AreaList {
    areas: Vec<AreaRow>,
    /// Limits set for areas. A null value means that the installation's configuration applies.
    limits: Vec<LimitsRow>,
}

/// Lists all areas and the limits set for them.
#[utoipa::path(get, path = "/areas", tag = "areas", extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = AreaList,
         headers(("ETag" = String, description = "the version of all areas")),
         example = json!({ "areas": [example_area()], "limits": [example_area_limits()] })),
        AreaErrors,
    ))]
async fn list_areas(State(app): State<App>, caller: ApiCaller) -> Result<Response, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    // The version is read first. If an area changes in between, the version is too old, and a change with this version
    // as `If-Match` is refused.
    let version = geofences::areas_version(&app.core.db).await?;
    let areas = geofences::list_areas(&app.core.db).await?;
    let limits = limits::list_limits(&app.core.db, None).await?;
    Ok((etag_header(version), Json(AreaList { areas, limits })).into_response())
}

/// Returns all areas as GeoJSON.
///
/// The collection has the form that `PUT` of the areas accepts.
#[utoipa::path(get, path = "/areas.geojson", tag = "areas", extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = Object, content_type = "application/geo+json",
         headers(("ETag" = String, description = "the version of all areas")),
         example = json!(example_collection())),
        AreaErrors,
    ))]
async fn export_areas(State(app): State<App>, caller: ApiCaller) -> Result<Response, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let version = geofences::areas_version(&app.core.db).await?;
    let collection = geofences::export_areas(&app.core.db).await?;
    let kind = [(CONTENT_TYPE, "application/geo+json")];
    Ok((etag_header(version), kind, collection.to_string()).into_response())
}

/// An area with its limits and status.
#[derive(Debug, Serialize, ToSchema)]
struct AreaOverview {
    area: AreaRow,
    /// Geometry as GeoJSON; null if only geohashes define the area.
    #[schema(required)]
    geometry: Option<Value>,
    /// Limits set for this area. A null value means that the installation's configuration applies. `effective` in
    /// `status` has the resulting values.
    limits: Vec<LimitsRow>,
    /// Version for `If-Match` of an override.
    override_version: i64,
    status: Vec<AreaStatus>,
}

/// Returns an area with its geometry, limits and current status.
#[utoipa::path(get, path = "/areas/{area_id}", tag = "areas", params(AreaPath), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = AreaOverview,
         headers(("ETag" = String, description = "the version of the area")),
         example = json!({ "area": example_area(), "geometry": example_collection()["features"][0]["geometry"],
                           "limits": [example_area_limits()], "override_version": 0, "status": [example_status()] })),
        AreaErrors,
    ))]
async fn show_area(State(app): State<App>, caller: ApiCaller, AreaPath(area): AreaPath) -> Result<Response, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let (found, geometry) = geofences::find_area(&app.core.db, &area).await?.ok_or(ApiError::NoSuchArea)?;
    let limits = limits::list_limits(&app.core.db, Some(&area)).await?;
    let status: Vec<_> =
        area_status::area_statuses(&app.desk).await?.into_iter().filter(|row| row.area_id == area).collect();
    let overridden = overrides::override_version(&app.core.db, &area).await?;
    let etag = etag_header(found.version);
    let body = AreaOverview { area: found, geometry, limits, override_version: overridden, status };
    Ok((etag, Json(body)).into_response())
}

#[derive(Debug, Serialize, ToSchema)]
struct StatusReport {
    areas: Vec<AreaStatus>,
    flag: AdmissionFlag,
}

/// Returns the current status of every area.
///
/// Each area is listed once per service type, with the effective values.
#[utoipa::path(get, path = "/areas/status", tag = "areas", extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = StatusReport,
         example = json!({ "areas": [example_status()], "flag": example_flag() })),
        AreaErrors,
    ))]
async fn show_area_status(State(app): State<App>, caller: ApiCaller) -> Result<Json<StatusReport>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let areas = area_status::area_statuses(&app.desk).await?;
    Ok(Json(StatusReport { areas, flag: flag::load_flag(&app.core.db).await? }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AreaChangesQuery {
    /// The `next` of the previous page.
    before: Option<i64>,
    /// Maximum number of changes per page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AreaChangePage {
    changes: Vec<AuditEntry>,
    /// Value of `before` for the next page; null on the last page.
    #[schema(required)]
    next: Option<i64>,
}

/// Lists the changes of an area with actor and reason.
///
/// The changes are sorted newest first, page by page. A SHA-256 (`geometry_sha256`) replaces each geometry.
#[utoipa::path(get, path = "/areas/{area_id}/changes", tag = "areas", params(AreaPath, AreaChangesQuery),
    extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = AreaChangePage,
         example = json!({ "changes": [{
             "id": 7, "at": "2026-01-09T08:00:00Z", "actor": "operator:budi", "what": "limits", "area_id": "JKT-PUSAT",
             "before": null, "after": { "max_waiting_orders": 100 }, "reason": "first guess" }], "next": null })),
        AreaErrors,
    ))]
async fn list_changes(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    page: Result<Query<AreaChangesQuery>, QueryRejection>,
) -> Result<Json<AreaChangePage>, ApiError> {
    list_changes_of(app, &caller, Some(&area), page).await
}

/// Lists the changes of all areas and of the flag with actor and reason.
///
/// The changes are sorted newest first, page by page. A SHA-256 (`geometry_sha256`) replaces each geometry.
#[utoipa::path(get, path = "/changes", tag = "areas", params(AreaChangesQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = AreaChangePage,
         example = json!({ "changes": [{
             "id": 7, "at": "2026-01-09T08:00:00Z", "actor": "operator:budi", "what": "limits", "area_id": "JKT-PUSAT",
             "before": null, "after": { "max_waiting_orders": 100 }, "reason": "first guess" }], "next": null })),
        AreaErrors,
    ))]
async fn list_all_changes(
    State(app): State<App>,
    caller: ApiCaller,
    page: Result<Query<AreaChangesQuery>, QueryRejection>,
) -> Result<Json<AreaChangePage>, ApiError> {
    list_changes_of(app, &caller, None, page).await
}

async fn list_changes_of(
    app: App,
    caller: &ApiCaller,
    area: Option<&AreaId>,
    page: Result<Query<AreaChangesQuery>, QueryRejection>,
) -> Result<Json<AreaChangePage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(AreaChangesQuery { before, limit }) = page?;
    let limit = limit.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(ApiError::invalid_parameter("limit", format!("limit must be 1 to {LARGEST_PAGE}")));
    }
    let changes = table::list_changes(&app.core.db, area, before, limit).await?;
    let is_full = u32::try_from(changes.len()).is_ok_and(|n| n == limit);
    let next = changes.last().filter(|_| is_full).map(|change| change.id);
    Ok(Json(AreaChangePage { changes, next }))
}

#[derive(Debug, Serialize, ToSchema)]
struct ImportAnswer {
    /// Number of areas that were written, or would be written in a check.
    imported: u64,
    /// Number of areas that were removed.
    removed: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ImportQuery {
    /// Removes the areas that are not in the collection.
    #[serde(default)]
    replace: bool,
    /// Validates the collection and writes nothing.
    #[serde(default)]
    check: bool,
    /// Reason, kept in the audit record.
    #[param(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Creates or updates areas.
///
/// Areas that are not in the collection stay unchanged, unless `replace` is set.
#[utoipa::path(put, path = "/areas", tag = "areas", extensions(("x-roles" = json!(WRITERS))),
    params(ImportQuery,
           ("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the version of all areas (ETag of GET); a different current version is answered 412")),
    request_body(content = Object,
        description = "a GeoJSON FeatureCollection of polygons with the property area_id, and optionally name, priority, geohashes, service_type and time_zone",
        example = json!(example_collection())),
    responses((status = 200, description = "success", body = ImportAnswer, example = json!({ "imported": 1, "removed": 0 })), AreaErrors))]
async fn import_areas(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<ImportQuery>, QueryRejection>,
    headers: HeaderMap,
    mut request: Request,
) -> Result<Json<ImportAnswer>, ApiError> {
    caller.require_role(&WRITERS)?;
    let Query(ImportQuery { replace, check, reason }) = wanted?;
    let reason = optional_reason_parameter(reason)?;
    let expected = expected_version(&headers)?;
    let ignored = request.extensions().get::<IgnoredFields>().cloned();
    request.extensions_mut().insert(LargestBody(MAX_IMPORT_BYTES));
    let WholeBody(bytes) = WholeBody::from_request(request, &()).await?;
    json::without_nul(&bytes)?;
    let config = app.config.clone();
    // Parsing a large file takes seconds and would block other requests.
    let parsed = tokio::task::spawn_blocking(move || {
        let text = std::str::from_utf8(&bytes).map_err(|error| not_utf8(&bytes[..error.valid_up_to()]))?;
        let file = import::parse_file(text, |service_type| config.find_unknown_type(service_type));
        file.map_err(|error| ApiError::invalid_member(error.path(), error.to_string()))
    });
    let AreaFile { areas, ignored: unread } =
        parsed.await.map_err(|_| ApiError::invalid_member("", "the areas cannot be checked"))??;
    if let Some(ignored) = ignored {
        ignored.add(unread);
    }
    if check {
        return Ok(Json(ImportAnswer { imported: areas.len() as u64, removed: 0 }));
    }
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let (imported, removed) = geofences::import_areas(&app.core.db, &areas, replace, expected, author).await?;
    Ok(Json(ImportAnswer { imported, removed }))
}

#[derive(Debug, Serialize, ToSchema)]
struct RemovalAnswer {
    /// Id of the area.
    #[schema(value_type = String)]
    removed: AreaId,
}

/// Removes an area.
#[utoipa::path(delete, path = "/areas/{area_id}", tag = "areas", extensions(("x-roles" = json!(WRITERS))),
    params(AreaPath, ReasonQuery,
           ("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the version of the area (ETag of GET); a different current version is answered 412")),
    responses((status = 200, description = "success", body = RemovalAnswer, example = json!({ "removed": "JKT-PUSAT" })),
              AreaErrors))]
async fn remove_area(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    wanted: Result<Query<ReasonQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Json<RemovalAnswer>, ApiError> {
    caller.require_role(&WRITERS)?;
    let reason = optional_reason_parameter(wanted?.0.reason)?;
    let author = ChangeAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    geofences::remove_area(&app.core.db, &area, expected_version(&headers)?, author).await?;
    Ok(Json(RemovalAnswer { removed: area }))
}

/// The refusal of a body that is no text, of which the bytes in `before` can be read.
fn not_utf8(before: &[u8]) -> ApiError {
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    ApiError::Malformed(format!("line {line} of the body is not UTF-8 text"))
}
