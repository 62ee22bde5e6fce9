//! Lists of orders by filters, by any id, or by a partner's job id.

use std::collections::BTreeMap;

use axum::{
    extract::{FromRequestParts, Query},
    http::{Uri, request::Parts},
};
use chrono::{DateTime, Utc};
use model::{
    ids::{AreaId, DriverId, ServiceType},
    input::{self, Given, GivenTime},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema, openapi::Object};

use super::bounded_parameter;
use crate::{
    bindings::{next_cursor, page_size, word_schema},
    error::ApiError,
    filters,
    scope::retain_visible,
};
use app::App;
use model::{
    details::OrderDetails,
    order::{Order, OrderStatus, Snapshot},
    scope::Scope,
    view::OrderView,
};
use orders::details::load_all_details;
use orders::search::{self, ClosedOrders, OrderSearch, TimedPlace};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OrderQuery {
    /// The partner's job id. Other parameters are then ignored.
    #[param(min_length = 1, max_length = 128, example = "JOB-1")]
    pub(super) job_id: Option<String>,
    /// Only orders with this status.
    #[param(schema_with = status_schema)]
    status: Option<OrderStatus>,
    /// Only orders in this area.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    area: Option<Given<AreaId>>,
    /// Only orders of this service type.
    #[param(value_type = Option<String>)]
    service_type: Option<ServiceType>,
    /// Only orders of this driver.
    #[param(value_type = Option<String>)]
    driver: Option<DriverId>,
    /// Only orders of this customer.
    customer: Option<String>,
    /// True: also closed orders, of the last 31 days unless `from` and `to` are given. False: only open orders.
    closed: Option<bool>,
    /// Only orders that wait for a decision, or only orders that do not.
    held: Option<bool>,
    /// Only orders created at this time or later.
    #[param(value_type = Option<DateTime<Utc>>)]
    from: Option<GivenTime>,
    /// Only orders created before this time.
    #[param(value_type = Option<DateTime<Utc>>)]
    to: Option<GivenTime>,
    /// Only orders with this id: of the order, a job, a booking, the customer or the driver.
    #[param(max_length = 128)]
    q: Option<String>,
    /// Only orders with all of these values in their metadata, such as `metadata[crm_id]=7`.
    #[serde(default)]
    #[param(style = DeepObject, explode, required = false, example = json!({ "crm_id": "7" }))]
    metadata: BTreeMap<String, String>,
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[0-9]{1,15}\\.[A-Za-z0-9_-]{1,64}$")]
    cursor: Option<String>,
    /// Maximum number of orders per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

impl<S: Send + Sync> FromRequestParts<S> for OrderQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let (metadata, rest) = split_metadata(parts.uri.query().unwrap_or_default())?;
        let rest: Uri =
            format!("/?{rest}").parse().map_err(|_| ApiError::Malformed("the query is no text".to_owned()))?;
        let Query(query) = Query::<Self>::try_from_uri(&rest)?;
        Ok(Self { metadata, ..query })
    }
}

/// Splits the filters `metadata[KEY]=VALUE` from the other parameters of a query.
fn split_metadata(query: &str) -> Result<(BTreeMap<String, String>, String), ApiError> {
    let mut metadata = BTreeMap::new();
    let mut rest = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let Some(key) = name.strip_prefix("metadata[").and_then(|key| key.strip_suffix(']')) else {
            rest.append_pair(&name, &value);
            continue;
        };
        if metadata.insert(key.to_owned(), value.into_owned()).is_some() {
            return Err(ApiError::invalid_parameter(&name, format!("{name} must be given once")));
        }
    }
    let details = OrderDetails { metadata, ..OrderDetails::default() };
    match details.find_problem() {
        Some(problem) => Err(ApiError::invalid_parameter("metadata", problem.message)),
        None => Ok((details.metadata, rest.finish())),
    }
}

/// Closed orders that a list includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ClosedScope {
    /// No closed orders.
    None,
    /// All closed orders with the requested id.
    All,
    /// Closed orders created between `created_from` and `created_to`.
    Within,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OrderPage {
    pub(super) orders: Vec<OrderView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
    closed: ClosedScope,
    /// Earliest creation time of listed orders; null if the creation time does not matter.
    #[schema(required)]
    created_from: Option<DateTime<Utc>>,
    /// Listed orders were created before this time.
    #[schema(required)]
    created_to: Option<DateTime<Utc>>,
    /// Orders that the list omits, and how to request them.
    #[schema(required)]
    note: Option<&'static str>,
}

impl OrderPage {
    /// Returns a page with all matching orders.
    pub(super) fn complete(orders: Vec<OrderView>) -> Self {
        let (next_cursor, created_from, created_to) = (None, None, None);
        Self { orders, next_cursor, closed: ClosedScope::All, created_from, created_to, note: None }
    }
}

/// Lists matching orders, newest first. With `owner`, only the orders of this producer. With `scope`, only its orders.
pub(super) async fn list_orders(
    app: &App,
    wanted: OrderQuery,
    owner: Option<String>,
    scope: Option<&Scope>,
) -> Result<OrderPage, ApiError> {
    let limit = page_size(wanted.limit)?;
    let after = parse_place(wanted.cursor.as_deref())?;
    let asked_for_time = wanted.from.is_some() || wanted.to.is_some();
    if let Some(problem) = wanted.q.as_deref().and_then(input::find_foreign_id_problem) {
        return Err(ApiError::invalid_parameter("q", format!("q {problem}")));
    }
    let area = wanted.area.map(|Given(area)| area);
    filters::check_area(app, "area", area.as_ref()).await?;
    filters::check_service_type(app, wanted.service_type.as_ref()).await?;
    let search = OrderSearch {
        status: wanted.status,
        area,
        service_type: wanted.service_type,
        driver: wanted.driver,
        customer: bounded_parameter("customer", wanted.customer)?,
        owner,
        closed: wanted.closed,
        held: wanted.held,
        from: wanted.from.map(GivenTime::time),
        to: wanted.to.map(GivenTime::time),
        any_id: wanted.q,
        metadata: wanted.metadata,
    };
    let mut found = search::search_orders(&app.orders, &search, after.as_ref(), limit).await?;
    retain_visible(app, scope, &mut found.orders, |order| Some(order.id.as_str())).await?;
    let next_cursor = next_cursor(&found.orders, limit, |order| {
        TimedPlace { at: order.created_at, id: order.id.clone() }.to_string()
    });
    let (closed, created_from, created_to, note) = match found.closed {
        ClosedOrders::None if wanted.closed.is_some() => (ClosedScope::None, None, None, None),
        ClosedOrders::None => {
            let note =
                "open orders only; request closed ones by status, by an id, or with from and to, at most 31 days";
            (ClosedScope::None, None, None, Some(note))
        }
        ClosedOrders::All => (ClosedScope::All, None, None, None),
        ClosedOrders::Within { from, to } if wanted.closed.is_some() => {
            let note = (wanted.closed == Some(true) && !asked_for_time)
                .then_some("orders of the last 31 days; request others with from and to, at most 31 days");
            let scope = if wanted.closed == Some(true) { ClosedScope::Within } else { ClosedScope::None };
            (scope, Some(from), to, note)
        }
        ClosedOrders::Within { from, to } => {
            let note = (!asked_for_time)
                .then_some("orders of the last 24 hours; request others with from and to, at most 31 days");
            (ClosedScope::Within, Some(from), to, note)
        }
    };
    let now = found.now;
    let mut details = load_all_details(&app.core.read_only, &found.orders).await?;
    let view = |order: Order| {
        let details = details.remove(&order.id).unwrap_or_default();
        OrderView::from(&Snapshot::from_order(order, now)).with_details(details)
    };
    let orders = found.orders.into_iter().map(view).collect();
    Ok(OrderPage { orders, next_cursor, closed, created_from, created_to, note })
}

/// Parses the cursor of a list that is sorted by time.
pub(crate) fn parse_place(cursor: Option<&str>) -> Result<Option<TimedPlace>, ApiError> {
    let place = cursor.map(str::parse::<TimedPlace>).transpose();
    place.map_err(|error| ApiError::invalid_parameter("cursor", error.to_string()))
}

fn status_schema() -> Object {
    word_schema(OrderStatus::ALL.map(OrderStatus::as_str))
}
