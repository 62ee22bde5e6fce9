//! Requests of drivers about orders: answers to offers, and progress of the trip.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use model::{input::Given, texts::TextKey};
use serde::Deserialize;
use serde_json::{Value, json};
use settings::Config;
use utoipa::ToSchema;

use super::{
    super::{
        auth::{ApiCaller, DRIVERS},
        body::{JsonBody, OrderPath, RawBody},
        dispatcher::{self, LanguageHeader},
        error::ApiError,
        openapi::{CallErrors, example_order},
    },
    as_response, bounded_text, change_order, details_after_change, hide_from_stranger, load_order, order_json_for,
    view_with_contact,
};
use app::App;
use model::{
    decide::{Decision, OrderRefusal, actions},
    ids::{DriverId, OfferId},
    order::Snapshot,
    view::OrderView,
};
use orders::{accept, change::ChangeError, changed::Changed, seen::Basis};

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct OfferAnswer {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    driver_id: Given<DriverId>,
    #[schema(value_type = uuid::Uuid)]
    offer_id: OfferId,
    /// Reason why the driver declines.
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Accepts an offer: the driver gets the order.
///
/// If another driver was faster, the message is in the language of Accept-Language, or in the configured language of
/// drivers.
#[utoipa::path(post, path = "/{id}/accept", tag = "orders", params(OrderPath, LanguageHeader), extensions(("x-roles" = json!(DRIVERS))),
    request_body(content = OfferAnswer, example = json!({ "driver_id": "DRV-1", "offer_id": "019ba1c0-0000-7000-8000-000000000001" })),
    responses((status = 200, description = "success", body = OrderView, example = json!(example_order())), CallErrors))]
pub(super) async fn accept_offer(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    JsonBody(answer): JsonBody<OfferAnswer>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(Some(&answer.driver_id.0))?;
    let accepted = match accept::accept_offer_at_once(&app.orders, &id, &driver, answer.offer_id, &caller.actor()).await
    {
        Err(ChangeError::Refused(refusal @ (OrderRefusal::NoSuchOffer | OrderRefusal::NotYourOffer))) => {
            let hidden = hide_from_stranger(&caller, &load_order(&app.core, &id).await?, Decision::Refuse(refusal));
            return Err(match hidden {
                Decision::Refuse(refusal) => ChangeError::Refused(refusal).into(),
                Decision::Change(_) | Decision::Unchanged => ApiError::NoSuchOrder,
            });
        }
        accepted => accepted.map_err(|error| tell_late_driver(&app.config, &headers, error))?,
    };
    let details = details_after_change(&app.core, &accepted.after.order).await;
    Ok((StatusCode::OK, Json(json!(view_with_contact(&caller, &accepted.after, details)))))
}

/// Translates the refusal that another driver has the order. The error code does not change, because the other driver's
/// accept may still fail in Postgres.
fn tell_late_driver(config: &Config, headers: &HeaderMap, error: ChangeError) -> ApiError {
    match error {
        ChangeError::Refused(refusal @ (OrderRefusal::AlreadyAssigned | OrderRefusal::ReservationInProgress)) => {
            let texts = &config.texts;
            let language = dispatcher::accepted_language(headers, texts.driver_language);
            ApiError::TripTaken(refusal, texts.render(language, TextKey::TripTaken, &[]))
        }
        other => other.into(),
    }
}

/// Declines an offer.
#[utoipa::path(post, path = "/{id}/decline", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(DRIVERS))),
    request_body(content = OfferAnswer, example = json!({ "driver_id": "DRV-1", "offer_id": "019ba1c0-0000-7000-8000-000000000001", "reason": "flat tyre" })),
    responses((status = 200, description = "success", body = OrderView, example = json!(example_order())), CallErrors))]
pub(super) async fn decline_offer(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    JsonBody(answer): JsonBody<OfferAnswer>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(Some(&answer.driver_id.0))?;
    let reason = bounded_text("reason", answer.reason)?;
    let actor = caller.actor();
    let decide = |s: &Snapshot| {
        let decision = actions::decline_offer(s, &driver, answer.offer_id, reason.clone());
        hide_from_stranger(&caller, s, decision).signed_by(&actor)
    };
    let Changed { after, effects, .. } = app.orders.change(&id, Basis::Offer(answer.offer_id), decide).await?;
    effects.run(&app.orders).await;
    Ok((StatusCode::OK, Json(order_json_for(&app.core, &caller, &after).await)))
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct DriverStep {
    /// Id of the driver. Optional for a driver's own key.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    driver_id: Option<Given<DriverId>>,
}

/// Records that the passenger was picked up.
#[utoipa::path(post, path = "/{id}/pickup", operation_id = "pick_up_customer", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(DRIVERS))),
    request_body(content = Option<DriverStep>, example = json!({ "driver_id": "DRV-1" })),
    responses((status = 200, description = "success", body = OrderView, example = json!(example_order())), CallErrors))]
pub(super) async fn pick_up(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    RawBody { value, .. }: RawBody<DriverStep>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(value.driver_id.as_ref().map(|Given(id)| id))?;
    as_response(change_order(&app, &caller, &id, |s| actions::record_pickup(s, &driver)).await)
}

/// Records that the trip is complete.
#[utoipa::path(post, path = "/{id}/complete", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(DRIVERS))),
    request_body(content = Option<DriverStep>, example = json!({ "driver_id": "DRV-1" })),
    responses((status = 200, description = "success", body = OrderView, example = json!(example_order())), CallErrors))]
pub(super) async fn complete_order(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    RawBody { value, .. }: RawBody<DriverStep>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(value.driver_id.as_ref().map(|Given(id)| id))?;
    as_response(change_order(&app, &caller, &id, |s| actions::complete_trip(s, &driver)).await)
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct DriverCancel {
    /// Id of the driver. Optional for a driver's own key.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    driver_id: Option<Given<DriverId>>,
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Returns an order before the pickup.
///
/// The search for another driver starts.
#[utoipa::path(post, path = "/{id}/driver-cancel", operation_id = "return_order", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(DRIVERS))),
    request_body(content = Option<DriverCancel>, example = json!({ "driver_id": "DRV-1", "reason": "flat tyre" })),
    responses((status = 200, description = "success", body = OrderView, example = json!(example_order())), CallErrors))]
pub(super) async fn driver_cancel(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    RawBody { value, .. }: RawBody<DriverCancel>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(value.driver_id.as_ref().map(|Given(id)| id))?;
    let reason = bounded_text("reason", value.reason)?;
    as_response(change_order(&app, &caller, &id, |s| actions::cancel_by_driver(s, &driver, reason.clone())).await)
}
