//! The stream of order events, which producers read page by page.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use model::order::OrderStep;
use serde::{Deserialize, Serialize};
use settings::Config;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    error::ApiError,
    openapi::{CallErrors, example_step},
};
use accounts::api_keys::AccountRole;
use app::App;
use orders::feed::{self, FeedCursor, FeedScope, StepEvent};

/// Maximum wait. Proxies close a connection that is silent for longer.
const LONGEST_WAIT_SEC: u64 = 50;

const MOST_EVENTS: u32 = 1_000;

/// Roles that may read events. A producer reads the events of its own orders; staff read all.
const READERS: [AccountRole; 4] =
    [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(read_events))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// The `next` of the previous answer. Without it the stream starts with the oldest kept event.
    #[param(pattern = "^[0-9]{1,20}-[0-9]{1,19}$", example = "812-4711")]
    after: Option<String>,
    /// Maximum number of events per answer.
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: u32,
    /// Seconds to wait if there is no event; 0 returns immediately.
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
    /// Value of `after` for the next request. It may advance although there are no events.
    #[schema(pattern = "^[0-9]{1,20}-[0-9]{1,19}$")]
    next: String,
}

/// Returns the events of orders after a cursor, each once.
///
/// A producer reads the events of its own orders, or of all orders if the producers share them. Staff read all events.
/// With `wait` the request returns as soon as there is an event, and after that time in any case. The stream skips no
/// event, however late its transaction commits. Two events of one order may arrive in another order than they happened;
/// `data.seq` has the true order.
#[utoipa::path(get, path = "/", tag = "events", params(EventsQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = EventPage,
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
    let scope = scope_of(&app.config, &caller);
    let wait = Duration::from_secs(wait);
    let reach = (&app.core.db, &app.core.loops);
    let page = feed::wait_for_steps(&app.orders.feed, reach, &scope, after, limit, wait).await?;
    if !wait.is_zero() {
        caller.confirm_key(&app).await?;
    }
    let ahead = || ApiError::invalid_parameter("after", "after is ahead of this database; start again without it");
    let page = page.ok_or_else(ahead)?;
    Ok(Json(EventPage { events: page.events, next: page.next.to_string() }))
}

/// Returns the events that a caller may read. A producer reads its own orders, unless all producers share them.
fn scope_of(config: &Config, caller: &ApiCaller) -> FeedScope {
    match caller.actor().producer_name() {
        Some(name) if !config.http.producers_share_orders => FeedScope::Producer(name.to_owned()),
        _ => FeedScope::All,
    }
}
