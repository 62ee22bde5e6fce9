//! Administration of drivers: `/api/v1/drivers`.

use axum::{
    Json,
    extract::{FromRequestParts, Query, Request, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode, request::Parts},
    response::Response,
};
use foundation::core::Core;
use model::input::Given;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::READERS;
use crate::{
    auth::ApiCaller,
    bindings::{next_cursor, page_size},
    body::{DriverPath, JsonBody, RawBody, ReasonQuery},
    error::{ApiError, StaffError},
    filters,
    idempotency::{self, IdempotencyHeader, WorkContext},
    json, json_lines,
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
    reason::{StaffReason, optional_reason_parameter},
};
use accounts::api_keys::AccountRole;
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::{
    ids::{DriverId, ServiceType},
    skills::{SkillSchema, SkillSet},
};
use orders::fleet::{
    driver_admin::{self, DriverChange, DriverError, DriverFilter, DriverRemoval},
    driver_index,
    drivers::{self, DriverRecord, NewDriver},
};

const WRITERS: [AccountRole; 1] = [AccountRole::Operator];
/// Empty, because admins pass every role check.
const ADMINS: [AccountRole; 0] = [];

impl From<DriverError> for ApiError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::NotFound => Self::NoSuchDriver,
            DriverError::Exists(id) => StaffError::DriverExists(id).into(),
            DriverError::Invalid(error) => error.into(),
            DriverError::Database(error) => Self::Database(error),
        }
    }
}

/// The driver that a path names, for changes.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(super) struct ChangedDriverPath(
    /// The driver's id.
    #[param(pattern = "^[A-Za-z0-9_-]{1,64}$", value_type = String, example = "DRV-9")]
    DriverId,
);

impl<S: Send + Sync> FromRequestParts<S> for ChangedDriverPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let DriverPath(id) = DriverPath::from_request_parts(parts, state).await?;
        Ok(Self(id))
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DriverListQuery {
    /// Only drivers for this service type.
    #[param(value_type = Option<String>)]
    service_type: Option<ServiceType>,
    /// Only drivers who are available, or only drivers who are not.
    available: Option<bool>,
    /// Only drivers who are disabled, or only drivers who are not.
    disabled: Option<bool>,
    /// The `next_cursor` of the previous page.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    cursor: Option<Given<DriverId>>,
    /// Maximum number of drivers per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DriverPage {
    drivers: Vec<DriverRecord>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists drivers by id, page by page.
#[utoipa::path(get, path = "/", tag = "drivers", params(DriverListQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = DriverPage,
         example = json!({ "drivers": [example_driver()], "next_cursor": null })),
        CallErrors,
    ))]
pub(super) async fn list_drivers(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<DriverListQuery>, QueryRejection>,
) -> Result<Json<DriverPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(DriverListQuery { service_type, available, disabled, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    filters::check_service_type(&app, service_type.as_ref()).await?;
    let filter = DriverFilter { service_type, available, disabled };
    let cursor = cursor.map(|Given(id)| id);
    let drivers = driver_admin::list_page(&app.core.db, &filter, cursor.as_ref(), limit).await?;
    let next_cursor = next_cursor(&drivers, limit, |driver| driver.id.to_string());
    Ok(Json(DriverPage { drivers, next_cursor }))
}

/// A driver to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateDriverRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    id: Given<DriverId>,
    /// At least one configured service type.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 64)]
    service_types: Vec<ServiceType>,
    latitude: f64,
    longitude: f64,
    /// Whether the driver is available immediately. Default: false.
    #[serde(default)]
    available: bool,
    /// Phone number in E.164, such as +628123456789, for offers by phone call.
    #[schema(pattern = "^\\+[1-9][0-9]{6,14}$")]
    phone: Option<String>,
    /// Name for people.
    #[schema(min_length = 1, max_length = 80, pattern = "^[^\\u0000]*$")]
    name: Option<String>,
    /// Labels of the driver, such as `wheelchair` or `van`. An order that requires other labels is not offered.
    #[schema(value_type = Option<Vec<SkillSchema>>)]
    skills: Option<SkillSet>,
    /// Reason, kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Creates a driver.
#[utoipa::path(post, path = "/", tag = "drivers", params(IdempotencyHeader), extensions(("x-roles" = json!(WRITERS))),
    request_body(content = CreateDriverRequest,
        example = json!({ "id": "DRV-9", "service_types": ["RIDE"], "skills": ["van"], "latitude": -6.2088,
                          "longitude": 106.8456, "reason": "signed the contract" })),
    responses(
        (status = 201, description = "success", body = DriverRecord,
         example = json!(example_driver())),
        CallErrors,
    ))]
pub(super) async fn create_driver(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<CreateDriverRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let CreateDriverRequest {
        id: Given(id),
        service_types,
        latitude,
        longitude,
        available,
        phone,
        name,
        skills,
        reason,
    } = value;
    let reason = reason.check(&caller)?;
    let key = idempotency::idempotency_key(&headers)?;
    let new =
        NewDriver { id, service_types, latitude, longitude, available, phone: Some(phone), name: Some(name), skills };
    let work = async |work: WorkContext| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let made = match driver_admin::create_driver(&app.orders, &new, by).await {
            // An earlier request with this Idempotency-Key created the driver, and its answer was lost.
            Err(DriverError::Exists(id)) if work.resumed => find_driver(&app.core, &id).await?,
            made => made?,
        };
        Ok::<_, ApiError>((StatusCode::CREATED, json!(made)))
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"create driver", &bytes], work).await
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DriverImport {
    /// Number of drivers that were written.
    imported: usize,
}

/// Creates or updates drivers: all of the import, or none.
///
/// The body has one JSON object per line, at most 16 MiB. A member that a line omits stays unchanged; a new driver is
/// available. Repeating the import is harmless.
#[utoipa::path(post, path = "/import", tag = "drivers", params(ReasonQuery), extensions(("x-roles" = json!(WRITERS))),
    request_body(content = Object, content_type = "application/jsonl", description = "a driver per line",
        example = json!({ "id": "DRV-9", "service_types": ["RIDE"], "latitude": -6.2088, "longitude": 106.8456, "available": true,
                          "skills": ["wheelchair"] })),
    responses((status = 200, description = "success", body = DriverImport, example = json!({ "imported": 1 })), CallErrors))]
pub(super) async fn import_drivers(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<ReasonQuery>, QueryRejection>,
    request: Request,
) -> Result<Json<DriverImport>, ApiError> {
    caller.require_role(&WRITERS)?;
    let reason = optional_reason_parameter(wanted?.0.reason)?;
    let find_problem = |driver: &NewDriver| driver.find_problem(&app.config).map(|error| error.message);
    let new = json_lines::read_json_lines(request, |driver: &NewDriver| driver.id.to_string(), find_problem).await?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    driver_admin::import_drivers(&app.core.db, &new, by).await?;
    driver_index::invalidate_index(&app.orders).await;
    Ok(Json(DriverImport { imported: new.len() }))
}

async fn find_driver(core: &Core, id: &DriverId) -> Result<DriverRecord, ApiError> {
    drivers::find_driver(&core.db, id).await?.ok_or(ApiError::NoSuchDriver)
}

/// Changes of a driver. A member that the body omits stays unchanged.
#[derive(ToSchema)]
#[schema(as = DriverChangeRequest)]
#[expect(dead_code, reason = "describes the change; the service reads it")]
struct ChangeSchema {
    /// At least one configured service type.
    #[schema(min_items = 1, max_items = 64)]
    service_types: Option<Vec<String>>,
    /// Phone number in E.164; null removes it.
    #[schema(pattern = "^\\+[1-9][0-9]{6,14}$")]
    phone: Option<String>,
    /// Name for people; null removes it.
    #[schema(min_length = 1, max_length = 80, pattern = "^[^\\u0000]*$")]
    name: Option<String>,
    /// All labels of the driver; null or an empty list removes them.
    #[schema(value_type = Option<Vec<SkillSchema>>)]
    skills: Option<SkillSet>,
    /// Reason, kept in the record.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChangeDriverRequest {
    reason: StaffReason,
    /// All members except `reason`.
    #[serde(flatten)]
    change: Value,
}

/// Changes a driver's service types, labels, name or phone number.
///
/// A driver who loses a label keeps the offers and the order that require it.
#[utoipa::path(patch, path = "/{id}", tag = "drivers", params(ChangedDriverPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = ChangeSchema,
        example = json!({ "service_types": ["RIDE", "RENT"], "reason": "has a larger car" })),
    responses(
        (status = 200, description = "success", body = DriverRecord,
         example = json!(example_driver())),
        CallErrors,
    ))]
pub(super) async fn change_driver(
    call: KeyedCall<ChangedDriverPath, ChangeDriverRequest>,
) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: ChangedDriverPath(id), value: ChangeDriverRequest { reason, change } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let reason = reason.check(caller)?;
    let change: DriverChange = json::read_member("", change)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let changed = driver_admin::change_driver(&app.orders, &id, &change, by).await?;
        Ok::<_, ApiError>((StatusCode::OK, json!(changed)))
    };
    request.run_once("change driver", id.as_bytes(), work).await
}

/// Reason for an action. It is kept in the audit record.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DriverActionRequest)]
pub(super) struct DriverReason {
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    pub(super) reason: StaffReason,
}

/// A request about a driver that contains only a reason.
type ReasonedCall = KeyedCall<ChangedDriverPath, DriverReason>;

/// Disables or enables a driver, once per Idempotency-Key. `name` identifies the kind of request.
async fn set_disabled(call: ReasonedCall, name: &str, disabled: bool) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: ChangedDriverPath(id), value: DriverReason { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let reason = reason.check(caller)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        driver_admin::set_disabled(&app.core.db, &id, disabled, by).await?;
        Ok::<_, ApiError>((StatusCode::OK, json!(find_driver(&app.core, &id).await?)))
    };
    request.run_once(name, id.as_bytes(), work).await
}

/// Disables a driver: the driver gets no offers, and the driver's keys are refused.
///
/// Sessions and links of the driver page end. The driver keeps an order that is in progress.
#[utoipa::path(post, path = "/{id}/disable", tag = "drivers", params(ChangedDriverPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = DriverReason, example = json!({ "reason": "complaints of customers" })),
    responses(
        (status = 200, description = "success", body = DriverRecord,
         example = json!(example_driver())),
        CallErrors,
    ))]
pub(super) async fn disable_driver(call: ReasonedCall) -> Result<Response, ApiError> {
    set_disabled(call, "disable driver", true).await
}

/// Enables a driver again.
///
/// The driver gets offers once the app reports the driver as available.
#[utoipa::path(post, path = "/{id}/enable", tag = "drivers", params(ChangedDriverPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = DriverReason, example = json!({ "reason": "all is clear" })),
    responses(
        (status = 200, description = "success", body = DriverRecord,
         example = json!(example_driver())),
        CallErrors,
    ))]
pub(super) async fn enable_driver(call: ReasonedCall) -> Result<Response, ApiError> {
    set_disabled(call, "enable driver", false).await
}

/// A removed driver.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RemovedDriver {
    #[schema(value_type = String)]
    removed: DriverId,
    /// Number of revoked keys.
    revoked_keys: usize,
}

/// Removes a driver and revokes the driver's keys.
///
/// Sessions and links of the driver page end. The history keeps the driver's id.
#[utoipa::path(post, path = "/{id}/remove", tag = "drivers", params(ChangedDriverPath),
    extensions(("x-roles" = json!(ADMINS))),
    request_body(content = DriverReason, example = json!({ "reason": "left the fleet" })),
    responses(
        (status = 200, description = "success", body = RemovedDriver,
         example = json!({ "removed": "DRV-9", "revoked_keys": 1 })),
        CallErrors,
    ))]
pub(super) async fn remove_driver(
    State(app): State<App>,
    caller: ApiCaller,
    ChangedDriverPath(id): ChangedDriverPath,
    JsonBody(DriverReason { reason }): JsonBody<DriverReason>,
) -> Result<Json<RemovedDriver>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = reason.check(&caller)?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    match driver_admin::remove_driver(&app.core.db, &id, by).await? {
        DriverRemoval::Removed { keys } => Ok(Json(RemovedDriver { removed: id, revoked_keys: keys })),
        DriverRemoval::Busy { order } => Err(StaffError::DriverHasOrder(id, order).into()),
        DriverRemoval::NoSuchDriver => Err(ApiError::NoSuchDriver),
    }
}

/// Returns a driver without an order.
fn example_driver() -> Value {
    json!({ "id": "DRV-9", "service_types": ["RIDE"], "skills": ["van"], "latitude": -6.2088, "longitude": 106.8456, "lat": -6.2088,
            "lng": 106.8456, "available": false,
            "idle_since": "2026-01-09T08:00:00Z", "active_order": null })
}
