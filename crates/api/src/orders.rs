//! What producers and drivers do with orders.

use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::{get, post},
};
use jobs::OrderId;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    auth::ApiCaller,
    body::{JsonBody, OrderPath, RawBody},
    dispatcher,
    error::ApiError,
    idempotency::{self, Answer, WorkContext},
};
use dispatch::{
    accounts::api_keys::AccountRole,
    app::App,
    orders::{
        Decision, Order, OrderRefusal, PaymentStatus, Snapshot, accept, actions,
        create::{self, CreateError, NewOrder},
        query, store, update,
        view::OrderView,
    },
    plain_text,
};

/// Who may look at any order.
const READERS: [AccountRole; 4] =
    [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];

pub fn routes() -> Router<App> {
    Router::new()
        .route("/", post(create_order).get(find_order))
        .route("/{id}", get(get_order))
        .route("/{id}/timeline", get(get_timeline))
        .route("/{id}/cancel", post(cancel_order))
        .route("/{id}/payment", post(record_payment))
        .route("/{id}/refund", post(change_refund))
        .route("/{id}/accept", post(accept_offer))
        .route("/{id}/decline", post(decline_offer))
        .route("/{id}/pickup", post(pick_up))
        .route("/{id}/complete", post(complete_order))
        .route("/{id}/driver-cancel", post(driver_cancel))
}

async fn create_order(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    RawBody { bytes, value: new }: RawBody<NewOrder>,
) -> Result<Response, ApiError> {
    caller.require_role(&[AccountRole::Producer])?;
    let key = idempotency::idempotency_key(&headers)?;
    let language = dispatcher::accepted_language(&headers);
    let work = async |work: WorkContext| {
        let id = new.order_id.clone().unwrap_or_else(|| NewOrder::id_of(work.id));
        let snapshot = match create::create_order(&app, id, &new, &caller.actor()).await {
            // It is the same order, made by a request whose answer got lost.
            Err(CreateError::Exists(id)) if work.resumed => {
                let made = load_order(&app, &id).await?;
                if !new.matches_order(&made.order) || !may_see(&app, &caller, &made.order) {
                    return Err(CreateError::Exists(id).into());
                }
                made
            }
            Err(CreateError::Refused(answer)) => return Err(ApiError::NoRoom(answer, language)),
            other => other?,
        };
        Ok((StatusCode::CREATED, order_json(&snapshot)))
    };
    idempotency::run_once(&app.db, &caller, key.as_deref(), &[b"create", &bytes], work).await
}

#[derive(Debug, Deserialize)]
struct JobIdQuery {
    job_id: String,
}

/// The orders that have this partner's job id, the newest first; usually one.
async fn find_order(
    State(app): State<App>,
    caller: ApiCaller,
    lookup: Result<Query<JobIdQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&READERS)?;
    let Query(JobIdQuery { job_id }) =
        lookup.map_err(|_| ApiError::Invalid("say which: /api/v1/orders?job_id=...".to_owned()))?;
    let mut found = Vec::new();
    for id in query::with_job_id(&app.db, &job_id).await? {
        let snapshot = load_order(&app, &id).await?;
        if may_see(&app, &caller, &snapshot.order) {
            found.push(order_json(&snapshot));
        }
    }
    Ok(Json(json!({ "orders": found })))
}

async fn get_order(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
) -> Result<Json<Value>, ApiError> {
    let snapshot = load_order(&app, &id).await?;
    may_read(&app, &caller, &snapshot.order)?;
    Ok(Json(order_json(&snapshot)))
}

async fn get_timeline(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
) -> Result<Json<Value>, ApiError> {
    let snapshot = load_order(&app, &id).await?;
    may_read(&app, &caller, &snapshot.order)?;
    let mut events = query::load_timeline(&app.db, &snapshot.order.id).await?;
    if let Some(driver) = &caller.0.driver_id {
        events = events.into_iter().map(|event| event.as_seen_by(driver)).collect();
    }
    Ok(Json(json!({ "order_id": snapshot.order.id, "events": events })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    reason: Option<String>,
}

async fn cancel_order(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<CancelRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&[AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Support])?;
    let reason = bounded_text("reason", value.reason)?;
    let key = idempotency::idempotency_key(&headers)?;
    let work = async |_| {
        let actor = caller.actor();
        change_order(&app, &caller, &id, |s| actions::cancel_order(s, &actor, reason.clone())).await
    };
    idempotency::run_once(&app.db, &caller, key.as_deref(), &[b"cancel", id.as_str().as_bytes(), &bytes], work).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaymentEventRequest {
    /// The producer's own id of the event: the same again changes nothing.
    event_id: String,
    payment_status: PaymentStatus,
}

async fn record_payment(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    RawBody { bytes, value: event }: RawBody<PaymentEventRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&[AccountRole::Producer])?;
    let event_id = &event.event_id;
    if event_id.is_empty() || event_id.len() > 128 || !plain_text::is_plain(event_id) {
        return Err(ApiError::Invalid("event_id must have 1 to 128 printable characters".to_owned()));
    }
    let key = idempotency::idempotency_key(&headers)?;
    let work = async |_| {
        let actor = caller.actor();
        change_order(&app, &caller, &id, |s| actions::record_payment(s, &actor, event_id, &event.payment_status)).await
    };
    idempotency::run_once(&app.db, &caller, key.as_deref(), &[b"payment", id.as_str().as_bytes(), &bytes], work).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundStep {
    action: RefundAction,
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RefundAction {
    Start,
    Done,
}

async fn change_refund(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    JsonBody(step): JsonBody<RefundStep>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    caller.require_role(&[AccountRole::Support])?;
    let note = bounded_text("note", step.note)?;
    let actor = caller.actor();
    let changed = match step.action {
        RefundAction::Start => {
            change_order(&app, &caller, &id, |s| actions::start_refund(s, &actor, note.clone())).await
        }
        RefundAction::Done => {
            change_order(&app, &caller, &id, |s| actions::finish_refund(s, &actor, note.clone())).await
        }
    };
    as_response(changed)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfferAnswer {
    driver_id: String,
    offer_id: Uuid,
    /// Why the driver declines.
    reason: Option<String>,
}

async fn accept_offer(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    JsonBody(answer): JsonBody<OfferAnswer>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(Some(&answer.driver_id))?;
    let accepted = accept::accept_offer(&app, &id, &driver, answer.offer_id, &caller.actor()).await?;
    Ok((StatusCode::OK, Json(order_json(accepted.snapshot()))))
}

async fn decline_offer(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    JsonBody(answer): JsonBody<OfferAnswer>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(Some(&answer.driver_id))?;
    let reason = bounded_text("reason", answer.reason)?;
    let actor = caller.actor();
    let decide = |s: &Snapshot| actions::decline_offer(s, &driver, answer.offer_id, reason.clone()).signed_by(&actor);
    let declined = update::update_for_offer(&app, &id, answer.offer_id, decide).await?;
    Ok((StatusCode::OK, Json(order_json_for(&caller, declined.snapshot()))))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverStep {
    /// May be left out by a driver's own key.
    driver_id: Option<String>,
}

async fn pick_up(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    RawBody { value, .. }: RawBody<DriverStep>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(value.driver_id.as_deref())?;
    as_response(change_order(&app, &caller, &id, |s| actions::record_pickup(s, &driver)).await)
}

async fn complete_order(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    RawBody { value, .. }: RawBody<DriverStep>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(value.driver_id.as_deref())?;
    as_response(change_order(&app, &caller, &id, |s| actions::complete_trip(s, &driver)).await)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverCancel {
    driver_id: Option<String>,
    reason: Option<String>,
}

async fn driver_cancel(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    RawBody { value, .. }: RawBody<DriverCancel>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let driver = caller.acting_driver(value.driver_id.as_deref())?;
    let reason = bounded_text("reason", value.reason)?;
    as_response(change_order(&app, &caller, &id, |s| actions::cancel_by_driver(s, &driver, reason.clone())).await)
}

/// Changes the order in the caller's name.
async fn change_order(
    app: &App,
    caller: &ApiCaller,
    id: &OrderId,
    mut decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<Answer, ApiError> {
    let actor = caller.actor();
    let decide = |s: &Snapshot| {
        if may_see(app, caller, &s.order) {
            decide(s).signed_by(&actor)
        } else {
            Decision::Refuse(OrderRefusal::NoSuchOrder)
        }
    };
    let changed = update::update_order(app, id, decide).await?;
    Ok((StatusCode::OK, order_json_for(caller, changed.snapshot())))
}

fn as_response(answer: Result<Answer, ApiError>) -> Result<(StatusCode, Json<Value>), ApiError> {
    answer.map(|(status, body)| (status, Json(body)))
}

async fn load_order(app: &App, id: &OrderId) -> Result<Snapshot, ApiError> {
    store::load_order(&app.db, id).await?.ok_or(ApiError::NoSuchOrder)
}

/// Returns whether the caller may know of the order: a producer of its own orders only, unless all producers share them.
fn may_see(app: &App, caller: &ApiCaller, order: &Order) -> bool {
    match caller.actor().producer_name() {
        Some(name) => app.config.http.producers_share_orders || order.owner.as_deref() == Some(name),
        None => true,
    }
}

/// A driver sees the orders that are the driver's own, a producer those it created.
fn may_read(app: &App, caller: &ApiCaller, order: &Order) -> Result<(), ApiError> {
    match &caller.0.driver_id {
        Some(driver) if order.driver_id.as_ref() == Some(driver) => Ok(()),
        None => {
            caller.require_role(&READERS)?;
            if may_see(app, caller, order) { Ok(()) } else { Err(ApiError::NoSuchOrder) }
        }
        Some(_) => Err(ApiError::NoSuchOrder),
    }
}

/// Free text as people write it, on one line and bounded.
pub(super) fn bounded_text(name: &str, value: Option<String>) -> Result<Option<String>, ApiError> {
    if let Some(problem) = value.as_deref().and_then(|text| plain_text::find_problem(text, 500)) {
        return Err(ApiError::Invalid(format!("{name} {problem}")));
    }
    Ok(value)
}

fn order_json(snapshot: &Snapshot) -> Value {
    json!(OrderView::from(snapshot))
}

/// The order as this caller may see it after a change: a driver who gave it back has no part in it any more.
fn order_json_for(caller: &ApiCaller, snapshot: &Snapshot) -> Value {
    let view = OrderView::from(snapshot);
    json!(match &caller.0.driver_id {
        Some(driver) => view.as_seen_by(driver),
        None => view,
    })
}
