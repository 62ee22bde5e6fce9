//! The steps of orders, as a stream that producers read page by page.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use model::order::OrderStep;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    error::ApiError,
    openapi::{CallErrors, example_step},
};
use accounts::api_keys::AccountRole;
use app::App;
use orders::feed::{FeedCursor, FeedScope, StepEvent};

/// A connection that says nothing for longer is cut by proxies.
const LONGEST_WAIT_SEC: u64 = 50;

const MOST_EVENTS: u32 = 1_000;

/// Who may read steps: a producer those of its orders, staff all.
const READERS: [AccountRole; 4] =
    [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(read_events))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// `next` of the answer before; without it the stream begins with the oldest step that is kept
    #[param(pattern = "^[0-9]{1,20}-[0-9]{1,19}$", example = "812-4711")]
    after: Option<String>,
    /// events of one answer, at most
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: u32,
    /// seconds to wait for an event if there is none; 0 answers at once
    #[serde(default)]
    #[param(minimum = 0, maximum = 50)]
    wait: u64,
}

fn default_limit() -> u32 {
    100
}

#[derive(Debug, Serialize, ToSchema)]
struct EventPage {
    events: Vec<StepEvent>,
    /// What `after` of the next request is. It may move on while there are no events.
    #[schema(pattern = "^[0-9]{1,20}-[0-9]{1,19}$")]
    next: String,
}

/// Returns the steps of orders after a cursor, each once.
///
/// A producer reads those of its own orders, unless all producers share them; staff read all. With `wait` the answer comes as
/// soon as there is an event, and after that time in any case. The stream skips no event, however late its transaction is
/// committed. It may tell two steps of one order in another order than they happened: `data.seq` has the true one.
#[utoipa::path(get, path = "/", tag = "events", params(EventsQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "done", body = EventPage,
         example = json!({ "events": [example_step(OrderStep::Assigned)], "next": "812-4711" })),
        CallErrors,
    ))]
async fn read_events(
    State(app): State<App>,
    caller: ApiCaller,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Json<EventPage>, ApiError> {
    caller.require_role(&READERS)?;
    let Query(EventsQuery { after, limit, wait }) = query?;
    if !(1..=MOST_EVENTS).contains(&limit) {
        return Err(ApiError::invalid_parameter("limit", format!("limit must be 1 to {MOST_EVENTS}")));
    }
    if wait > LONGEST_WAIT_SEC {
        return Err(ApiError::invalid_parameter("wait", format!("wait must be 0 to {LONGEST_WAIT_SEC} seconds")));
    }
    let not_given = |_| ApiError::invalid_parameter("after", "after must be `next` of an answer");
    let after = after.map(|text| text.parse::<FeedCursor>()).transpose().map_err(not_given)?.unwrap_or_default();
    let scope = scope_of(&app, &caller);
    let wait = Duration::from_secs(wait);
    let page = app.orders.feed.wait_for_steps((&app.core.db, &app.core.loops), &scope, after, limit, wait).await?;
    if !wait.is_zero() {
        caller.confirm_key(&app).await?;
    }
    let ahead = || ApiError::invalid_parameter("after", "after lies ahead of this database; begin again without it");
    let page = page.ok_or_else(ahead)?;
    Ok(Json(EventPage { events: page.events, next: page.next.to_string() }))
}

/// A producer hears of its own orders, unless all producers share them.
fn scope_of(app: &App, caller: &ApiCaller) -> FeedScope {
    match caller.actor().producer_name() {
        Some(name) if !app.config.http.producers_share_orders => FeedScope::Producer(name.to_owned()),
        _ => FeedScope::All,
    }
}
