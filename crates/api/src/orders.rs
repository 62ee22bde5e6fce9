//! Requests of producers, drivers and staff about orders.

mod by_hand;
mod contact;
pub mod create;
pub mod driver_steps;
mod edit;
mod list;
mod payments;
mod takes;
pub mod test_clock;
pub mod tracking;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use foundation::core::Core;
use jobs::OrderId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use settings::Config;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) use self::list::parse_place;
use self::list::{OrderPage, OrderQuery};
use super::{
    auth::{ApiCaller, DRIVERS},
    body::{OrderPath, RawBody},
    error::ApiError,
    etag::etag_header,
    idempotency::{self, Answer, IdempotencyHeader},
    openapi::{CallErrors, example_cancelled, example_order},
};
use accounts::api_keys::AccountRole;
use app::App;
use model::{
    decide::{Decision, OrderRefusal, actions},
    details::OrderDetails,
    input,
    order::{EventReason, Order, OrderStatus, Snapshot},
    plain_text,
    view::OrderView,
};
use orders::{
    changed::Changed,
    details::{StoredContents, load_contents, load_details},
    order_store::load,
    query::{self, TimelineEvent},
    seen::Basis,
};

/// Roles that may read any order.
const READERS: [AccountRole; 5] =
    [AccountRole::Producer, AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];
/// Roles of staff that may read any order.
pub(super) const STAFF: [AccountRole; 4] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];

/// Roles that report payments.
const PRODUCERS: [AccountRole; 1] = [AccountRole::Producer];
const CANCELLERS: [AccountRole; 3] = [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Support];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(create::create_order, find_order))
        .routes(routes!(get_order, edit::edit_order))
        .routes(routes!(get_timeline))
        .routes(routes!(contact::show_contact))
        .routes(routes!(cancel_order))
        .routes(routes!(payments::record_payment))
        .routes(routes!(payments::change_refund))
        .routes(routes!(driver_steps::accept_offer))
        .routes(routes!(driver_steps::decline_offer))
        .routes(routes!(driver_steps::pick_up))
        .routes(routes!(driver_steps::complete_order))
        .routes(routes!(driver_steps::driver_cancel))
        .routes(routes!(by_hand::assign_order))
        .routes(routes!(by_hand::release_order))
        .routes(routes!(by_hand::redispatch_order))
        .routes(routes!(by_hand::hold_order))
        .routes(routes!(by_hand::resume_order))
        .routes(routes!(by_hand::explain_order))
        .routes(routes!(takes::take_order, takes::show_take))
        .routes(routes!(takes::leave_order))
}

/// Lists orders by a partner's job id, by filters, or by an id.
///
/// The newest order comes first. A producer gets its own orders, open and closed. Staff get open orders by default, and
/// with `closed=true` also the closed orders of the last 31 days. Without `closed`, closed orders are included as
/// follows. With an id or metadata: all orders with them. With `from` or `to`: orders created in this time, at most 31 days
/// unless an id is given. With only a closed `status`: orders of the last 24 hours. `closed` and `note` of the answer
/// tell which closed orders are included. A list that takes longer than 2 s is refused.
#[utoipa::path(get, path = "/", tag = "orders", params(OrderQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = OrderPage,
         example = json!({ "orders": [example_order()], "next_cursor": null, "closed": "none", "created_from": null,
                           "created_to": null, "note": "open orders only" })),
        CallErrors,
    ))]
async fn find_order(
    State(app): State<App>,
    caller: ApiCaller,
    lookup: Result<OrderQuery, ApiError>,
) -> Result<Json<OrderPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let mut wanted = lookup?;
    let Some(job_id) = wanted.job_id.take() else {
        let shared = app.config.http.producers_share_orders;
        let owner = caller.actor().producer_name().filter(|_| !shared).map(str::to_owned);
        return Ok(Json(list::list_orders(&app, wanted, owner, caller.scope()).await?));
    };
    let mut found = Vec::new();
    if let Some(problem) = input::find_foreign_id_problem(&job_id) {
        return Err(ApiError::invalid_parameter("job_id", format!("job_id {problem}")));
    }
    for id in query::with_job_id(&app.core.db, &job_id).await? {
        // An order may leave the scope between the two statements.
        let Some(snapshot) = load::load_order(&app.core.db, &id).await? else { continue };
        if caller.scope().is_none_or(|scope| scope.contains(&snapshot.order))
            && may_see(&app.config, &caller, &snapshot.order)
        {
            let details = load_details(&app.core.db, &snapshot.order).await?;
            found.push(OrderView::from(&snapshot).with_details(details));
        }
    }
    Ok(Json(OrderPage::complete(found)))
}

/// Returns an order.
///
/// A producer can read its own orders, and a driver the orders that the driver carries out. All others are answered
/// 404, here and in every change. A driver who has the order also gets its `contact`. `ETag` is the version of the
/// contents, for `If-Match` of a change.
#[utoipa::path(get, path = "/{id}", tag = "orders", params(OrderPath),
    extensions(("x-roles" = json!([&READERS[..], &DRIVERS].concat()))),
    responses(
        (status = 200, description = "success", body = OrderView,
         headers(("ETag" = String, description = "the version of the contents")),
         example = json!(example_order())),
        CallErrors,
    ))]
async fn get_order(State(app): State<App>, caller: ApiCaller, OrderPath(id): OrderPath) -> Result<Response, ApiError> {
    let app = caller.reading(app);
    let (view, version) = read_order(&app, &caller, &id).await?;
    Ok((etag_header(version), Json(view)).into_response())
}

/// Returns an order as this caller may see it, and the version of its contents.
pub async fn read_order(app: &App, caller: &ApiCaller, id: &OrderId) -> Result<(OrderView, i64), ApiError> {
    let mut snapshot = load_order(&app.core, id).await?;
    may_read(&app.config, caller, &snapshot.order)?;
    let StoredContents { contents, version } = load_contents(&app.core.db, &snapshot.order).await?;
    // The pickup must be that of the version, which may be newer than the order.
    (snapshot.order.pickup_lat, snapshot.order.pickup_lng) = (contents.pickup.lat, contents.pickup.lng);
    Ok((view_with_contact(caller, &snapshot, contents.details), version))
}

#[derive(Debug, Serialize, ToSchema)]
struct OrderTimeline {
    #[schema(value_type = String)]
    order_id: OrderId,
    events: Vec<TimelineEvent>,
}

/// Returns the events of an order, oldest first.
///
/// Drivers and producers see only the role of other people (`staff`, `driver`, `producer`), without their names and
/// free text.
#[utoipa::path(get, path = "/{id}/timeline", tag = "orders", params(OrderPath),
    extensions(("x-roles" = json!([&READERS[..], &DRIVERS].concat()))),
    responses(
        (status = 200, description = "success", body = OrderTimeline,
         example = json!({ "order_id": "ORD-1", "events": [{
             "seq": 1, "at": "2026-01-09T08:00:00Z", "from_status": null, "to_status": "DISPATCHING",
             "reason": "ORDER_CREATED", "actor": "producer:shop", "attempt_no": null, "detail": null }] })),
        CallErrors,
    ))]
async fn get_timeline(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
) -> Result<Json<OrderTimeline>, ApiError> {
    let app = caller.reading(app);
    let snapshot = load_order(&app.core, &id).await?;
    may_read(&app.config, &caller, &snapshot.order)?;
    let (events, reader) = (query::load_timeline(&app.core.db, &snapshot.order.id).await?, caller.actor());
    let events = events.into_iter().map(|event| event.as_seen_by(&reader)).collect();
    Ok(Json(OrderTimeline { order_id: snapshot.order.id, events }))
}

#[derive(Debug, Deserialize, ToSchema)]
struct CancelRequest {
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Cancels an order on behalf of the customer.
///
/// `trip_continues` is true if a partner's driver has picked up the passenger: the partner completes the trip although
/// the order is cancelled. `refund` is the refund due for a paid order.
#[utoipa::path(post, path = "/{id}/cancel", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(CANCELLERS))),
    request_body(content = Option<CancelRequest>, example = json!({ "reason": "found a lift" })),
    responses(
        (status = 200, description = "success", body = CancelledOrder,
         example = json!(example_cancelled())),
        CallErrors,
    ))]
async fn cancel_order(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<CancelRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&CANCELLERS)?;
    let reason = bounded_text("reason", value.reason)?;
    let key = idempotency::idempotency_key(&headers)?;
    let work = async |_| {
        let actor = caller.actor();
        let mut was_aboard = false;
        let changed = change_order(&app, &caller, &id, |s| {
            was_aboard = s.order.status == OrderStatus::PickedUp && s.order.partner.is_some();
            actions::cancel_order(s, &actor, reason.clone())
        });
        let (status, order) = changed.await?;
        let continues = was_aboard || was_picked_up_by_partner(&app.core, &id, &order).await?;
        let (trip_continues, note) = (continues.then_some(true), continues.then_some(TRIP_CONTINUES));
        Ok((status, json!(CancelledOrder { order, trip_continues, note })))
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"cancel", id.as_str().as_bytes(), &bytes], work)
        .await
}

/// A cancelled order.
#[derive(Debug, Serialize, ToSchema)]
struct CancelledOrder {
    #[serde(flatten)]
    #[schema(value_type = OrderView)]
    order: Value,
    /// True if a partner's driver has the passenger aboard and completes the trip; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    trip_continues: Option<bool>,
    /// Explanation of `trip_continues` for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    note: Option<&'static str>,
}

const TRIP_CONTINUES: &str = "The passenger was picked up: the partner completes the trip. `refund` is the refund due for a paid order; support decides on it.";

/// Returns whether a partner's driver had picked up the passenger before the cancellation, which may be an earlier one.
async fn was_picked_up_by_partner(core: &Core, id: &OrderId, cancelled: &Value) -> Result<bool, ApiError> {
    if cancelled["partner"].is_null() || cancelled["driver_id"].is_null() {
        return Ok(false);
    }
    let events = query::load_timeline(&core.db, id).await?;
    Ok(events.iter().any(|event| event.reason == EventReason::PickedUp.as_str()))
}

/// Changes the order on behalf of the caller.
async fn change_order(
    app: &App,
    caller: &ApiCaller,
    id: &OrderId,
    mut decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<Answer, ApiError> {
    let actor = caller.actor();
    let decide = |s: &Snapshot| {
        if may_see(&app.config, caller, &s.order) {
            hide_from_stranger(caller, s, decide(s)).signed_by(&actor)
        } else {
            Decision::Refuse(OrderRefusal::NoSuchOrder)
        }
    };
    let Changed { after, effects, .. } = app.orders.change(id, Basis::Fresh, decide).await?;
    effects.run(&app.orders).await;
    Ok((StatusCode::OK, order_json_for(&app.core, caller, &after).await))
}

fn as_response(answer: Result<Answer, ApiError>) -> Result<(StatusCode, Json<Value>), ApiError> {
    answer.map(|(status, body)| (status, Json(body)))
}

async fn load_order(core: &Core, id: &OrderId) -> Result<Snapshot, ApiError> {
    load::load_order(&core.db, id).await?.ok_or(ApiError::NoSuchOrder)
}

/// Returns whether the caller may know of the order. A producer may know only of its own orders, unless all producers
/// share them.
fn may_see(config: &Config, caller: &ApiCaller, order: &Order) -> bool {
    match caller.actor().producer_name() {
        Some(name) => config.http.producers_share_orders || order.owner.as_deref() == Some(name),
        None => true,
    }
}

/// Hides another driver's order from a driver: the refusal is that of a missing order. A driver with an offer for the
/// order gets the real refusal.
fn hide_from_stranger(caller: &ApiCaller, s: &Snapshot, decision: Decision) -> Decision {
    let (Some(driver), Decision::Refuse(refusal)) = (caller.driver_id(), &decision) else { return decision };
    let is_own = s.order.driver_id.as_ref() == Some(driver);
    let is_hidden = match refusal {
        OrderRefusal::NotYourOrder => true,
        OrderRefusal::NoSuchOffer | OrderRefusal::NotYourOffer => {
            !is_own && s.offers.iter().all(|offer| offer.driver_id != *driver)
        }
        _ => false,
    };
    if is_hidden { Decision::Refuse(OrderRefusal::NoSuchOrder) } else { decision }
}

/// Checks that the caller may read the order. A driver may read the driver's own orders, a producer those it created.
fn may_read(config: &Config, caller: &ApiCaller, order: &Order) -> Result<(), ApiError> {
    match caller.driver_id() {
        Some(driver) if order.driver_id.as_ref() == Some(driver) => Ok(()),
        None => {
            caller.require_role(&READERS)?;
            if may_see(config, caller, order) { Ok(()) } else { Err(ApiError::NoSuchOrder) }
        }
        Some(_) => Err(ApiError::NoSuchOrder),
    }
}

/// Checks a query parameter by the rules of [`bounded_text`].
pub(super) fn bounded_parameter(name: &str, value: Option<String>) -> Result<Option<String>, ApiError> {
    match value.as_deref().and_then(|text| plain_text::find_problem(text, 500)) {
        Some(problem) => Err(ApiError::invalid_parameter(name, format!("{name} {problem}"))),
        None => Ok(value),
    }
}

/// Checks free text: one line with a maximum length.
pub(super) fn bounded_text(name: &str, value: Option<String>) -> Result<Option<String>, ApiError> {
    if let Some(problem) = value.as_deref().and_then(|text| plain_text::find_problem(text, 500)) {
        return Err(ApiError::invalid_member(name, format!("{name} {problem}")));
    }
    Ok(value)
}

/// Returns the order as this caller may see it after a change. A driver who returned the order sees less of it.
async fn order_json_for(core: &Core, caller: &ApiCaller, snapshot: &Snapshot) -> Value {
    let details = details_after_change(core, &snapshot.order).await;
    json!(view_for(caller, OrderView::from(snapshot).with_details(details)))
}

/// Returns the contents of an order whose change is committed. An error must not make the change look failed.
async fn details_after_change(core: &Core, order: &Order) -> OrderDetails {
    load_details(&core.db, order).await.unwrap_or_else(|error| {
        tracing::warn!(order.id = %order.id, %error, "The answer to a change lacks the contents of its order, because they could not be read.");
        OrderDetails::default()
    })
}

/// Returns the order as this caller may see it, with its contact for the driver who has it.
fn view_with_contact(caller: &ApiCaller, snapshot: &Snapshot, details: OrderDetails) -> OrderView {
    let contact = details.contact.clone().filter(|_| caller.driver_id().is_some());
    view_for(caller, OrderView { contact, ..OrderView::from(snapshot).with_details(details) })
}

fn view_for(caller: &ApiCaller, view: OrderView) -> OrderView {
    match caller.driver_id() {
        Some(driver) => view.as_seen_by(driver),
        None => view,
    }
}
