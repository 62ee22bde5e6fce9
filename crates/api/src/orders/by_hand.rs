//! What dispatchers do with orders by hand, each with a reason; and why an order is as it is.

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
    STAFF, load_order, order_json,
};
use accounts::api_keys::AccountRole;
use app::App;
use desk::{
    explain::gather,
    operator::order::{self, OrderAction},
};
use model::{ids::DriverId, view::OrderView};
use orders::commit::ChangeError;

/// Who decides on orders that wait for a person.
pub(super) const DISPATCHERS: [AccountRole; 2] = [AccountRole::Dispatcher, AccountRole::Operator];

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AssignRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    driver_id: Given<DriverId>,
    /// Why; kept in the order's history.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Why something is done; kept in the order's history.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OrderActionRequest)]
pub(super) struct ReasonRequest {
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// A request that says why, and no more.
type ReasonedCall = KeyedCall<OrderPath, ReasonRequest>;

/// Does what is asked, once per Idempotency-Key.
async fn act_once(call: ReasonedCall, action: OrderAction) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: OrderPath(id), value: ReasonRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&DISPATCHERS)?;
    let reason = reason.check(caller)?;
    let actor = caller.actor();
    let work = async |work: WorkContext| {
        let acted = order::act_on_order(&app.desk, &id, &action, &actor, reason.as_deref()).await;
        // The answer of the request that did it may have got lost.
        let is_ours = match &acted {
            Err(ChangeError::Refused(_)) if work.resumed => {
                order::was_carried_out(&app.core, &id, &action, &actor).await?
            }
            _ => false,
        };
        let body = if is_ours { order_json(&load_order(app, &id).await?) } else { order_json(acted?.snapshot()) };
        Ok::<_, ApiError>((StatusCode::OK, body))
    };
    request.run_once(action.as_str(), id.as_str().as_bytes(), work).await
}

/// Gives an order to a driver.
///
/// Drivers who were asked are asked no more; a review ends.
#[utoipa::path(post, path = "/{id}/assign", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = AssignRequest, example = json!({ "driver_id": "DRV-1", "reason": "asked by phone" })),
    responses(
        (status = 200, description = "done", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn assign_order(call: KeyedCall<OrderPath, AssignRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject, value: AssignRequest { driver_id: Given(driver_id), reason } } = call;
    act_once(KeyedCall { request, subject, value: ReasonRequest { reason } }, OrderAction::Assign(driver_id)).await
}

/// Takes an order from its driver; the search goes on within the lifetime left.
///
/// The driver is told, and is not asked for this order again.
#[utoipa::path(post, path = "/{id}/release", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "the driver does not answer" })),
    responses(
        (status = 200, description = "done", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn release_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Release).await
}

/// Restarts the search for a driver; a review ends.
#[utoipa::path(post, path = "/{id}/redispatch", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "more drivers are out now" })),
    responses(
        (status = 200, description = "done", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn redispatch_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Redispatch).await
}

/// Puts an order under review: its timers stop until it is resumed, or decided on otherwise.
#[utoipa::path(post, path = "/{id}/hold", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "the customer calls back" })),
    responses(
        (status = 200, description = "done", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn hold_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Hold).await
}

/// Ends the review of an order: it goes on.
#[utoipa::path(post, path = "/{id}/resume", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = ReasonRequest, example = json!({ "reason": "the customer called" })),
    responses(
        (status = 200, description = "done", body = OrderView,
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn resume_order(call: ReasonedCall) -> Result<Response, ApiError> {
    act_once(call, OrderAction::Resume).await
}

/// Explains an order: why it is as it is, what happens next and when, who holds it, what staff can do.
///
/// `order`, `why`, `next` (jobs with their standing), `to_do`, `offers`, `ranking` (who was looked at, in which order and why),
/// `bookings`, `timeline`.
#[utoipa::path(get, path = "/{id}/explain", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(STAFF))),
    responses((status = 200, description = "done", body = Object, example = json!(example_explanation())), CallErrors))]
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
