//! `POST /dev/advance`: the test clock of `dispatchq dev`. It is not part of the API: no other process serves it.

use axum::{Json, Router, extract::State, middleware::map_response, routing::post};
use jobs::OrderId;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::{
        auth::ApiCaller,
        body::JsonBody,
        error::{self, ApiError},
    },
    may_see, order_json_for,
};
use accounts::api_keys::AccountRole;
use app::App;
use model::decide::test_clock::ClockTarget;
use orders::test_clock;

const MOVERS: [AccountRole; 3] = [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Operator];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdvanceRequest {
    order: String,
    to: ClockTarget,
}

/// Returns the route of the test clock. It has its own layer for errors, because it is served next to the API.
pub fn test_clock_routes() -> Router<App> {
    Router::new().route("/dev/advance", post(advance_order)).layer(map_response(error::adopt_refusal))
}

/// Lets time pass for one order until the named time, and answers with the order.
async fn advance_order(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(AdvanceRequest { order, to }): JsonBody<AdvanceRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&MOVERS)?;
    let id: OrderId = order.parse().map_err(|_| ApiError::NoSuchOrder)?;
    let after = test_clock::advance_order(&app.orders, &id, to, |order| may_see(&app.config, &caller, order)).await?;
    Ok(Json(order_json_for(&app.core, &caller, &after).await))
}
