//! Drivers for staff: `/api/v1/drivers`.

use axum::{
    Json,
    extract::{FromRequestParts, Query, Request, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode, request::Parts},
    response::Response,
};
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
use model::ids::{DriverId, ServiceType};
use orders::fleet::{
    driver_admin::{self, DriverChange, DriverError, DriverFilter, DriverRemoval},
    driver_index,
    drivers::{self, DriverRecord, NewDriver},
};

const WRITERS: [AccountRole; 1] = [AccountRole::Operator];
/// Admin passes wherever a role does.
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

/// The driver a path names, to be changed.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(super) struct ChangedDriverPath(
    /// the driver's id
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
    /// only those who drive for this service type
    #[param(value_type = Option<String>)]
    service_type: Option<ServiceType>,
    /// only those who want work, or only the others
    available: Option<bool>,
    /// only those who are disabled, or only the others
    disabled: Option<bool>,
    /// the `next_cursor` of the page before
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    cursor: Option<Given<DriverId>>,
    /// drivers of one page
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DriverPage {
    drivers: Vec<DriverRecord>,
    /// `cursor` of the next page; null on the last.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists drivers by id, page by page.
#[utoipa::path(get, path = "/", tag = "drivers", params(DriverListQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "done", body = DriverPage,
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

/// A driver to be added.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateDriverRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    id: Given<DriverId>,
    /// At least one; each is configured.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 64)]
    service_types: Vec<ServiceType>,
    latitude: f64,
    longitude: f64,
    /// The driver wants work at once. False if it is left out.
    #[serde(default)]
    available: bool,
    /// E.164, such as +628123456789: for offers by voice call.
    #[schema(pattern = "^\\+[1-9][0-9]{6,14}$")]
    phone: Option<String>,
    /// Why; kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Adds a driver.
#[utoipa::path(post, path = "/", tag = "drivers", params(IdempotencyHeader), extensions(("x-roles" = json!(WRITERS))),
    request_body(content = CreateDriverRequest,
        example = json!({ "id": "DRV-9", "service_types": ["RIDE"], "latitude": -6.2088, "longitude": 106.8456,
                          "reason": "signed the contract" })),
    responses(
        (status = 201, description = "done", body = DriverRecord,
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
    let CreateDriverRequest { id: Given(id), service_types, latitude, longitude, available, phone, reason } = value;
    let reason = reason.check(&caller)?;
    let key = idempotency::idempotency_key(&headers)?;
    let new = NewDriver { id, service_types, latitude, longitude, available, phone: Some(phone) };
    let work = async |work: WorkContext| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let made = match driver_admin::create_driver(&app.orders, &new, by).await {
            // It is the same driver, added by a request whose answer got lost.
            Err(DriverError::Exists(id)) if work.resumed => find_driver(&app, &id).await?,
            made => made?,
        };
        Ok::<_, ApiError>((StatusCode::CREATED, json!(made)))
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"create driver", &bytes], work).await
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DriverImport {
    /// Drivers that were written.
    imported: usize,
}

/// Adds drivers, or brings known ones up to date: all of them, or none.
///
/// The body has one JSON object per line, at most 16 MiB. What a line leaves out stays as it is; a new driver is available. Repeating is
/// harmless.
#[utoipa::path(post, path = "/import", tag = "drivers", params(ReasonQuery), extensions(("x-roles" = json!(WRITERS))),
    request_body(content = Object, content_type = "application/jsonl", description = "a driver per line",
        example = json!({ "id": "DRV-9", "service_types": ["RIDE"], "latitude": -6.2088, "longitude": 106.8456, "available": true })),
    responses((status = 200, description = "done", body = DriverImport, example = json!({ "imported": 1 })), CallErrors))]
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

async fn find_driver(app: &App, id: &DriverId) -> Result<DriverRecord, ApiError> {
    drivers::find_driver(&app.core.db, id).await?.ok_or(ApiError::NoSuchDriver)
}

/// What is to be another of a driver. What is left out stays.
#[derive(ToSchema)]
#[schema(as = DriverChangeRequest)]
#[expect(dead_code, reason = "describes the change; the service reads it")]
struct ChangeSchema {
    /// At least one; each is configured.
    #[schema(min_items = 1, max_items = 64)]
    service_types: Option<Vec<String>>,
    /// E.164; null removes it.
    #[schema(pattern = "^\\+[1-9][0-9]{6,14}$")]
    phone: Option<String>,
    /// Why; kept in the record.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChangeDriverRequest {
    reason: StaffReason,
    /// All other fields.
    #[serde(flatten)]
    change: Value,
}

/// Changes what a driver drives for, or the driver's phone number.
#[utoipa::path(patch, path = "/{id}", tag = "drivers", params(ChangedDriverPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = ChangeSchema,
        example = json!({ "service_types": ["RIDE", "RENT"], "reason": "has a larger car" })),
    responses(
        (status = 200, description = "done", body = DriverRecord,
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

/// Why something is done; kept in the record of it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DriverActionRequest)]
pub(super) struct DriverReason {
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// A request that says why, and no more.
type ReasonedCall = KeyedCall<ChangedDriverPath, DriverReason>;

/// Disables or enables a driver, once per Idempotency-Key. `name` is that of the request.
async fn set_disabled(call: ReasonedCall, name: &str, disabled: bool) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: ChangedDriverPath(id), value: DriverReason { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let reason = reason.check(caller)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        driver_admin::set_disabled(&app.core.db, &id, disabled, by).await?;
        Ok::<_, ApiError>((StatusCode::OK, json!(find_driver(app, &id).await?)))
    };
    request.run_once(name, id.as_bytes(), work).await
}

/// Gives a driver no more work, and refuses the driver's keys. An order that the driver has stays with the driver.
#[utoipa::path(post, path = "/{id}/disable", tag = "drivers", params(ChangedDriverPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = DriverReason, example = json!({ "reason": "complaints of customers" })),
    responses(
        (status = 200, description = "done", body = DriverRecord,
         example = json!(example_driver())),
        CallErrors,
    ))]
pub(super) async fn disable_driver(call: ReasonedCall) -> Result<Response, ApiError> {
    set_disabled(call, "disable driver", true).await
}

/// Lets a driver work again, once the driver says that work is wanted.
#[utoipa::path(post, path = "/{id}/enable", tag = "drivers", params(ChangedDriverPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = DriverReason, example = json!({ "reason": "all is clear" })),
    responses(
        (status = 200, description = "done", body = DriverRecord,
         example = json!(example_driver())),
        CallErrors,
    ))]
pub(super) async fn enable_driver(call: ReasonedCall) -> Result<Response, ApiError> {
    set_disabled(call, "enable driver", false).await
}

/// What was removed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RemovedDriver {
    #[schema(value_type = String)]
    removed: DriverId,
    /// Keys of the driver that were revoked.
    revoked_keys: usize,
}

/// Removes a driver and revokes the driver's keys. The history keeps the id.
#[utoipa::path(post, path = "/{id}/remove", tag = "drivers", params(ChangedDriverPath),
    extensions(("x-roles" = json!(ADMINS))),
    request_body(content = DriverReason, example = json!({ "reason": "left the fleet" })),
    responses(
        (status = 200, description = "done", body = RemovedDriver,
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

/// A driver without an order.
fn example_driver() -> Value {
    json!({ "id": "DRV-9", "service_types": ["RIDE"], "latitude": -6.2088, "longitude": 106.8456, "lat": -6.2088,
            "lng": 106.8456, "available": false,
            "idle_since": "2026-01-09T08:00:00Z", "active_order": null })
}
