//! Manual actions of dispatchers on orders, each with a reason, and the explanation of an order.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use model::input::Given;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    super::{
        auth::ApiCaller,
        body::OrderPath,
        error::ApiError,
        idempotency::{IdempotencyHeader, WorkContext},
        keyed_call::{KeyedCall, KeyedRequest},
        openapi::{CallErrors, example_order},
        reason::StaffReason,
    },
    STAFF, load_order, order_json_for,
};
use accounts::api_keys::AccountRole;
use app::App;
use desk::{
    explain::gather,
    operator::order::{self, OrderAction},
};
use model::{ids::DriverId, view::OrderView};
use orders::change::ChangeError;

/// Roles that decide on orders that wait for a person.
pub(super) const DISPATCHERS: [AccountRole; 2] = [AccountRole::Dispatcher, AccountRole::Operator];

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AssignRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    driver_id: Given<DriverId>,
    /// Reason, kept in the order's history.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Reason for an action. It is kept in the order's history.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OrderActionRequest)]
pub(super) struct ReasonRequest {
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// A request about an order that contains only a reason.
type ReasonedCall = KeyedCall<OrderPath, ReasonRequest>;

/// Runs the action once per Idempotency-Key.
async fn act_once(call: ReasonedCall, action: OrderAction) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: OrderPath(id), value: ReasonRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&DISPATCHERS)?;
    let reason = reason.check(caller)?;
    let actor = caller.actor();
    let work = async |work: WorkContext| {
        let acted = order::act_on_order(&app.desk, &id, &action, &actor, reason.as_deref()).await;
        // An earlier request with this Idempotency-Key may have run the action, and its answer was lost.
        let is_ours = match &acted {
            Err(ChangeError::Refused(_)) if work.resumed => {
                order::was_carried_out(&app.core, &id, &action, &actor).await?
            }
            _ => false,
        };
        let body = if is_ours {
            order_json_for(&app.core, caller, &load_order(&app.core, &id).await?).await
        } else {
            order_json_for(&app.core, caller, &acted?).await
        };
        Ok::<_, ApiError>((StatusCode::OK, body))
    };
    request.run_once(action.as_str(), id.as_str().as_bytes(), work).await
}

/// Assigns an order to a driver.
///
/// Live offers of the order are withdrawn. A review ends.
#[utoipa::path(post, path = "/{id}/assign", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = AssignRequest, example = json!({ "driver_id": "DRV-1", "reason": "asked by phone" })),
    responses(
        (status = 200, description = "success", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn assign_order(call: KeyedCall<OrderPath, AssignRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject, value: AssignRequest { driver_id: Given(driver_id), reason } } = call;
    act_once(KeyedCall { request, subject, value: ReasonRequest { reason } }, OrderAction::Assign(driver_id)).await
}

/// Takes an order from its driver.
///
/// The search continues within the remaining lifetime. The driver is notified and gets no further offer for this order.
#[utoipa::path(post, path = "/{id}/release", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "the driver does not answer" })),
    responses(
        (status = 200, description = "success", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn release_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Release).await
}

/// Restarts the search for a driver.
///
/// A review ends.
#[utoipa::path(post, path = "/{id}/redispatch", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "more drivers are out now" })),
    responses(
        (status = 200, description = "success", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn redispatch_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Redispatch).await
}

/// Puts an order under review.
///
/// Its timers stop until the order is resumed or another decision is made.
#[utoipa::path(post, path = "/{id}/hold", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "the customer calls back" })),
    responses(
        (status = 200, description = "success", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn hold_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Hold).await
}

/// Ends the review of an order.
///
/// The order continues.
#[utoipa::path(post, path = "/{id}/resume", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "the customer called" })),
    responses(
        (status = 200, description = "success", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn resume_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Resume).await
}

/// Explains an order, its next jobs, and the possible actions of staff.
///
/// The answer has `order`, `why`, `next` (jobs with their state), `to_do`, `offers`, `ranking` (the considered drivers
/// with rank and reason), `bookings` and `timeline`.
#[utoipa::path(get, path = "/{id}/explain", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(STAFF))),
    responses((status = 200, description = "success", body = Object, example = json!(example_explanation())), CallErrors))]
pub(super) async fn explain_order(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&STAFF)?;
    let app = caller.reading(app);
    let explained = gather::explain_order(&app.desk, &id).await?.ok_or(ApiError::NoSuchOrder)?;
    Ok(Json(json!(explained)))
}

fn example_explanation() -> Value {
    json!({
        "order": example_order(),
        "why": "It looks for a driver: attempt 1 asks one driver until 08:02:00.",
        "next": [{
            "job": "timeout:ORD-1:1", "queue": "dispatch-timeout-queue", "does": "ends the attempt",
            "at": "2026-01-09T08:02:00Z", "state": "waiting", "due": "2026-01-09T08:02:00Z",
        }],
        "to_do": [],
        "offers": [],
        "ranking": null,
        "bookings": [],
        "timeline": [],
    })
}
