//! Alerts for support, and their acknowledgement.

use axum::{
    Json,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
};
use jobs::{BindingId, OrderId};
use model::{input, messages};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    bindings::numbered_cursor,
    body::JsonBody,
    error::{ApiError, StaffError},
    openapi::{CallErrors, example_alert},
    orders::bounded_parameter,
    scope::retain_visible,
};
use accounts::api_keys::AccountRole;
use app::App;
use notify::alerts::{self, AlertFilter, AlertSelection, RaisedAlert};

const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 500;

const READERS: [AccountRole; 4] =
    [AccountRole::Viewer, AccountRole::Support, AccountRole::Dispatcher, AccountRole::Operator];
/// Roles that acknowledge alerts. Dispatchers acknowledge only the alerts for dispatchers.
const WRITERS: [AccountRole; 2] = [AccountRole::Support, AccountRole::Dispatcher];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_alerts)).routes(routes!(acknowledge_alert))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AlertListQuery {
    /// Only alerts that are not acknowledged.
    #[serde(default)]
    open: bool,
    /// Only alerts of this kind, such as MANUAL_REFUND_REQUIRED.
    kind: Option<String>,
    /// Only alerts about this order.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    order_id: Option<OrderId>,
    /// Only alerts about this binding.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    binding_id: Option<BindingId>,
    /// The `next` of the previous page.
    #[param(minimum = 0)]
    before: Option<i64>,
    /// Maximum number of alerts per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AlertPage {
    alerts: Vec<RaisedAlert>,
    /// Value of `before` for the next page; null on the last page.
    #[schema(required)]
    next: Option<i64>,
}

/// Lists alerts that require action by staff, newest first, page by page.
#[utoipa::path(get, path = "/", tag = "alerts", params(AlertListQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = AlertPage,
         example = json!({ "alerts": [example_alert()], "next": null })),
        CallErrors,
    ))]
async fn list_alerts(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<AlertListQuery>, QueryRejection>,
) -> Result<Json<AlertPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(wanted) = wanted?;
    let limit = wanted.limit.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(ApiError::invalid_parameter("limit", format!("limit must be 1 to {LARGEST_PAGE}")));
    }
    let filter = AlertFilter {
        open: wanted.open,
        kind: bounded_parameter("kind", wanted.kind)?,
        order: wanted.order_id,
        binding: wanted.binding_id,
        before: numbered_cursor("before", wanted.before)?,
        limit,
    };
    let mut alerts = alerts::list_alerts(&app.core.db, &filter).await?;
    retain_visible(&app, caller.scope(), &mut alerts, |alert| alert.order_id.as_deref()).await?;
    let is_full = u32::try_from(alerts.len()).is_ok_and(|n| n == limit);
    let next = alerts.last().filter(|_| is_full).map(|a| a.id);
    let alerts = alerts.into_iter().map(|alert| alert.link_tickets(&app.notify.channels)).collect();
    Ok(Json(AlertPage { alerts, next }))
}

#[derive(Debug, Deserialize, ToSchema)]
struct AcknowledgeRequest {
    /// Action that was or will be taken.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    note: String,
}

/// Acknowledges an alert.
///
/// A dispatcher acknowledges alerts about orders that wait for a dispatcher; support acknowledges all others. The
/// answer is the acknowledged alert. An alert that was acknowledged before stays unchanged, so repeating the request is
/// harmless.
#[utoipa::path(post, path = "/{id}/ack", tag = "alerts", extensions(("x-roles" = json!(WRITERS))),
    params(("id" = i64, Path, description = "the alert's id", example = 1)),
    request_body(content = AcknowledgeRequest, example = json!({ "note": "refunded by hand" })),
    responses((status = 200, description = "success", body = RaisedAlert, example = json!(example_alert())), CallErrors))]
async fn acknowledge_alert(
    State(app): State<App>,
    caller: ApiCaller,
    id: Result<Path<i64>, PathRejection>,
    JsonBody(body): JsonBody<AcknowledgeRequest>,
) -> Result<Json<RaisedAlert>, ApiError> {
    caller.require_role(&WRITERS)?;
    let Path(id) = id.map_err(|_| ApiError::NoSuchAlert)?;
    if let Some(problem) = input::REASON.find_problem(&body.note) {
        return Err(ApiError::invalid_member("note", format!("note {problem}")));
    }
    let note = body.note;
    if caller.role() == Some(AccountRole::Dispatcher) {
        let alert = alerts::load_alert(&app.core.db, id).await?.ok_or(ApiError::NoSuchAlert)?;
        if !messages::is_for_dispatchers(&alert.kind) {
            return Err(StaffError::NotYourAlert.into());
        }
    }
    let acked = alerts::acknowledge_alerts(&app.core.db, &AlertSelection::One(id), &caller.actor(), &note).await?;
    let alert = acked.into_iter().next().ok_or(ApiError::NoSuchAlert)?;
    Ok(Json(alert.link_tickets(&app.notify.channels)))
}
