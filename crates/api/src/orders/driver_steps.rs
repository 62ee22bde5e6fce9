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
        idempotency::Answer,
        openapi::{CallErrors, example_order},
    },
    as_response, bounded_text, change_order, details_after_change, hide_from_stranger, load_order, order_json_for,
    view_with_contact,
};
use app::App;
use jobs::OrderId;
use model::{
    admission::answer::ReplyLanguage,
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
    let OfferAnswer { driver_id: Given(driver), offer_id, .. } = answer;
    let language = dispatcher::accepted_language(&headers, app.config.texts.driver_language);
    let order = accept(&app, &caller, &id, OfferAt { driver, offer_id }, language).await?;
    Ok((StatusCode::OK, Json(json!(order))))
}

/// An offer and the driver who answers it.
#[derive(Debug)]
pub struct OfferAt {
    pub driver: DriverId,
    pub offer_id: OfferId,
}

/// Accepts an offer on behalf of its driver. Returns the order with its contact. `language` is the language of the
/// refusal that another driver has the order.
pub async fn accept(
    app: &App,
    caller: &ApiCaller,
    id: &OrderId,
    OfferAt { driver, offer_id }: OfferAt,
    language: ReplyLanguage,
) -> Result<OrderView, ApiError> {
    let driver = caller.acting_driver(Some(&driver))?;
    let accepted = match accept::accept_offer_at_once(&app.orders, id, &driver, offer_id, &caller.actor()).await {
        Err(ChangeError::Refused(refusal @ (OrderRefusal::NoSuchOffer | OrderRefusal::NotYourOffer))) => {
            let hidden = hide_from_stranger(caller, &load_order(&app.core, id).await?, Decision::Refuse(refusal));
            return Err(match hidden {
                Decision::Refuse(refusal) => ChangeError::Refused(refusal).into(),
                Decision::Change(_) | Decision::Unchanged => ApiError::NoSuchOrder,
            });
        }
        accepted => accepted.map_err(|error| tell_late_driver(&app.config, language, error))?,
    };
    let details = details_after_change(&app.core, &accepted.after.order).await;
    Ok(view_with_contact(caller, &accepted.after, details))
}

/// Translates the refusal that another driver has the order. The error code does not change, because the other driver's
/// accept may still fail in Postgres.
fn tell_late_driver(config: &Config, language: ReplyLanguage, error: ChangeError) -> ApiError {
    match error {
        ChangeError::Refused(refusal @ (OrderRefusal::AlreadyAssigned | OrderRefusal::ReservationInProgress)) => {
            ApiError::TripTaken(refusal, config.texts.render(language, TextKey::TripTaken, &[]))
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
    let OfferAnswer { driver_id: Given(driver), offer_id, reason } = answer;
    as_response(decline(&app, &caller, &id, OfferAt { driver, offer_id }, reason).await)
}

/// Declines an offer on behalf of its driver.
pub async fn decline(
    app: &App,
    caller: &ApiCaller,
    id: &OrderId,
    OfferAt { driver, offer_id }: OfferAt,
    reason: Option<String>,
) -> Result<Answer, ApiError> {
    let driver = caller.acting_driver(Some(&driver))?;
    let reason = bounded_text("reason", reason)?;
    let actor = caller.actor();
    let decide = |s: &Snapshot| {
        let decision = actions::decline_offer(s, &driver, offer_id, reason.clone());
        hide_from_stranger(caller, s, decision).signed_by(&actor)
    };
    let Changed { after, effects, .. } = app.orders.change(id, Basis::Offer(offer_id), decide).await?;
    effects.run(&app.orders).await;
    Ok((StatusCode::OK, order_json_for(&app.core, caller, &after).await))
}

/// Step of a driver's trip.
#[derive(Debug, Clone)]
pub enum TripStep {
    Pickup,
    Completion,
    /// The driver gives the order back before the pickup, with a reason.
    Return(Option<String>),
}

/// Records a step of the trip on behalf of its driver. `named` may be absent for a driver's own key.
pub async fn record_step(
    app: &App,
    caller: &ApiCaller,
    id: &OrderId,
    named: Option<&DriverId>,
    step: TripStep,
) -> Result<Answer, ApiError> {
    let driver = caller.acting_driver(named)?;
    let step = match step {
        TripStep::Return(reason) => TripStep::Return(bounded_text("reason", reason)?),
        step => step,
    };
    let decide = |s: &Snapshot| match &step {
        TripStep::Pickup => actions::record_pickup(s, &driver),
        TripStep::Completion => actions::complete_trip(s, &driver),
        TripStep::Return(reason) => actions::cancel_by_driver(s, &driver, reason.clone()),
    };
    change_order(app, caller, id, decide).await
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
    let driver = value.driver_id.as_ref().map(|Given(id)| id);
    as_response(record_step(&app, &caller, &id, driver, TripStep::Pickup).await)
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
    let driver = value.driver_id.as_ref().map(|Given(id)| id);
    as_response(record_step(&app, &caller, &id, driver, TripStep::Completion).await)
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
    let DriverCancel { driver_id, reason } = value;
    let driver = driver_id.as_ref().map(|Given(id)| id);
    as_response(record_step(&app, &caller, &id, driver, TripStep::Return(reason)).await)
}
