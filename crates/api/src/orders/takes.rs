//! Desk claims on orders that wait for a person. A claim informs other staff; it is not a lock.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, Utc};
use foundation::core::Core;
use jobs::OrderId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    super::{
        auth::ApiCaller,
        body::OrderPath,
        error::{ApiError, StaffError},
        idempotency::{IdempotencyHeader, WorkContext},
        keyed_call::{KeyedCall, KeyedRequest},
        openapi::CallErrors,
        reason::optional_reason,
    },
    STAFF,
    by_hand::DISPATCHERS,
    load_order,
};
use ::desk::operator::desk::{self, OrderTake, TakeError};
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::decide::OrderRefusal;

/// States in which an order can be claimed, for refusals.
const WAITING: &str = "PENDING, or any state while the order is under review or its trip is overdue";

/// The person who has claimed an order, if there is one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OrderTake)]
pub(super) struct TakeView {
    #[schema(value_type = String)]
    order_id: OrderId,
    /// Role and key name of the person, such as `dispatcher:anna`; null if the order is not claimed.
    #[schema(required)]
    taken_by: Option<String>,
    /// Time when the claim expires.
    #[schema(required)]
    ends_at: Option<DateTime<Utc>>,
}

impl TakeView {
    fn new(order_id: OrderId, take: Option<OrderTake>) -> Self {
        let (taken_by, ends_at) = take.map(|take| (take.taken_by, take.ends_at)).unzip();
        Self { order_id, taken_by, ends_at }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OrderTakeRequest)]
pub(super) struct TakeRequest {
    /// Reason, kept in the audit record.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

fn example_take() -> Value {
    json!({ "order_id": "ORD-1", "taken_by": "dispatcher:anna", "ends_at": "2026-01-09T08:10:00Z" })
}

async fn find_take(core: &Core, id: &OrderId) -> Result<Option<OrderTake>, sqlx::Error> {
    Ok(desk::list_takes(&core.db, &[id.as_str()]).await?.into_iter().next())
}

/// Returns the claim on an order that waits for a person.
#[utoipa::path(get, path = "/{id}/take", tag = "orders", params(OrderPath), operation_id = "show_order_take",
    extensions(("x-roles" = json!(STAFF))),
    responses((status = 200, description = "success", body = TakeView, example = json!(example_take())), CallErrors))]
pub(super) async fn show_take(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
) -> Result<Json<TakeView>, ApiError> {
    caller.require_role(&STAFF)?;
    let app = caller.reading(app);
    load_order(&app.core, &id).await?;
    let take = find_take(&app.core, &id).await?;
    Ok(Json(TakeView::new(id, take)))
}

/// Claims an order for the caller, which other staff can see.
///
/// The order must be PENDING or under review, or its trip overdue. The claim replaces that of another person and lasts
/// ten minutes. It is not a lock: others can still decide on the order.
#[utoipa::path(post, path = "/{id}/take", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = Option<TakeRequest>, example = json!({ "reason": "I call the customer" })),
    responses((status = 200, description = "success", body = TakeView, example = json!(example_take())), CallErrors))]
pub(super) async fn take_order(call: KeyedCall<OrderPath, TakeRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: OrderPath(id), value: TakeRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&DISPATCHERS)?;
    let reason = optional_reason(reason)?;
    let actor = caller.actor();
    let work = async |work: WorkContext| {
        let earlier = if work.resumed { find_take(&app.core, &id).await? } else { None };
        // An earlier request with this Idempotency-Key may have made the claim, and its answer was lost.
        let take = match earlier.filter(|take| take.taken_by == actor.to_string()) {
            Some(take) => take,
            None => {
                let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
                match desk::take_order(&app.core.db, &id, by).await {
                    Ok(take) => take,
                    Err(error) => return Err(refuse_take(&app.core, &id, error).await?),
                }
            }
        };
        Ok::<_, ApiError>((StatusCode::OK, json!(TakeView::new(id.clone(), Some(take)))))
    };
    request.run_once("take", id.as_str().as_bytes(), work).await
}

/// Ends the caller's claim on an order.
#[utoipa::path(post, path = "/{id}/leave", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(DISPATCHERS))),
    request_body(content = Option<TakeRequest>, example = json!({ "reason": "the customer does not answer" })),
    responses(
        (status = 200, description = "success", body = TakeView,
         example = json!({ "order_id": "ORD-1", "taken_by": null, "ends_at": null })),
        CallErrors,
    ))]
pub(super) async fn leave_order(call: KeyedCall<OrderPath, TakeRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: OrderPath(id), value: TakeRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&DISPATCHERS)?;
    let reason = optional_reason(reason)?;
    let actor = caller.actor();
    let work = async |work: WorkContext| {
        let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
        match desk::leave_order(&app.core.db, &id, by).await {
            Ok(()) => {}
            // An earlier request with this Idempotency-Key most likely ended the claim, and its answer was lost.
            Err(TakeError::NotYours) if work.resumed => {}
            Err(error) => return Err(refuse_take(&app.core, &id, error).await?),
        }
        // Another person may have claimed the order in the meantime.
        Ok::<_, ApiError>((StatusCode::OK, json!(TakeView::new(id.clone(), find_take(&app.core, &id).await?))))
    };
    request.run_once("leave", id.as_str().as_bytes(), work).await
}

/// Returns the error for a claim that could not be made or ended. Fails if the order does not exist.
async fn refuse_take(core: &Core, id: &OrderId, error: TakeError) -> Result<ApiError, ApiError> {
    if let TakeError::Database(error) = error {
        return Ok(error.into());
    }
    let status = load_order(core, id).await?.order.status;
    Ok(match error {
        TakeError::NotYours => StaffError::NotOnOrder.into(),
        _ if status.is_closed() => OrderRefusal::OrderFinished(status).into(),
        _ => OrderRefusal::WrongState { status, allowed: WAITING }.into(),
    })
}
