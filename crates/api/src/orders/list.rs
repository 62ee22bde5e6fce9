//! Orders found by filters, by any id, or by a partner's job id.

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
};
use app::App;
use model::{
    order::{OrderStatus, Snapshot},
    view::OrderView,
};
use orders::search::{self, ClosedOrders, OrderSearch, TimedPlace};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OrderQuery {
    /// the partner's job id; other parameters are then ignored
    #[param(min_length = 1, max_length = 128, example = "JOB-1")]
    pub(super) job_id: Option<String>,
    /// only in this state
    #[param(schema_with = status_schema)]
    status: Option<OrderStatus>,
    /// only of this area
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    area: Option<Given<AreaId>>,
    /// only of this service type
    #[param(value_type = Option<String>)]
    service_type: Option<ServiceType>,
    /// only of this driver
    #[param(value_type = Option<String>)]
    driver: Option<DriverId>,
    /// only of this customer
    customer: Option<String>,
    /// true: closed orders too, of the last 31 days unless from and to say otherwise; false: open orders alone
    closed: Option<bool>,
    /// only those a person must decide on, or only the others
    held: Option<bool>,
    /// only those created at this time or later
    #[param(value_type = Option<DateTime<Utc>>)]
    from: Option<GivenTime>,
    /// only those created before this time
    #[param(value_type = Option<DateTime<Utc>>)]
    to: Option<GivenTime>,
    /// only those that bear this id: of an order, a job, a booking, a customer or a driver
    #[param(max_length = 128)]
    q: Option<String>,
    /// the `next_cursor` of the page before
    #[param(pattern = "^[0-9]{1,15}\\.[A-Za-z0-9_-]{1,64}$")]
    cursor: Option<String>,
    /// orders of one page
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Which closed orders a list looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ClosedScope {
    /// None: it is about open orders.
    None,
    /// All that bear the id that was asked for.
    All,
    /// Those created between `created_from` and `created_to`.
    Within,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OrderPage {
    pub(super) orders: Vec<OrderView>,
    /// `cursor` of the next page; null on the last.
    #[schema(required)]
    next_cursor: Option<String>,
    closed: ClosedScope,
    /// The list begins with orders of this time; null: no matter when they were created.
    #[schema(required)]
    created_from: Option<DateTime<Utc>>,
    /// The list ends before this time.
    #[schema(required)]
    created_to: Option<DateTime<Utc>>,
    /// What was not looked at, and how to ask for it.
    #[schema(required)]
    note: Option<&'static str>,
}

impl OrderPage {
    /// All there are of these.
    pub(super) fn complete(orders: Vec<OrderView>) -> Self {
        let (next_cursor, created_from, created_to) = (None, None, None);
        Self { orders, next_cursor, closed: ClosedScope::All, created_from, created_to, note: None }
    }
}

/// Lists the orders that fit, the newest first. `owner`: only this producer's.
pub(super) async fn list_orders(app: &App, wanted: OrderQuery, owner: Option<String>) -> Result<OrderPage, ApiError> {
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
    };
    let found = search::search_orders(&app.orders, &search, after.as_ref(), limit).await?;
    let next_cursor = next_cursor(&found.orders, limit, |order| {
        TimedPlace { at: order.created_at, id: order.id.clone() }.to_string()
    });
    let (closed, created_from, created_to, note) = match found.closed {
        ClosedOrders::None if wanted.closed.is_some() => (ClosedScope::None, None, None, None),
        ClosedOrders::None => {
            let note =
                "open orders alone; ask for closed ones by status, by an id, or with from and to, at most 31 days";
            (ClosedScope::None, None, None, Some(note))
        }
        ClosedOrders::All => (ClosedScope::All, None, None, None),
        ClosedOrders::Within { from, to } if wanted.closed.is_some() => {
            let note = (wanted.closed == Some(true) && !asked_for_time)
                .then_some("those of the last 31 days; ask for others with from and to, at most 31 days");
            let scope = if wanted.closed == Some(true) { ClosedScope::Within } else { ClosedScope::None };
            (scope, Some(from), to, note)
        }
        ClosedOrders::Within { from, to } => {
            let note = (!asked_for_time)
                .then_some("those of the last 24 hours; ask for others with from and to, at most 31 days");
            (ClosedScope::Within, Some(from), to, note)
        }
    };
    let now = found.now;
    let orders = found.orders.into_iter().map(|order| OrderView::from(&Snapshot::from_order(order, now))).collect();
    Ok(OrderPage { orders, next_cursor, closed, created_from, created_to, note })
}

/// Reads a cursor of a list by time.
pub(crate) fn parse_place(cursor: Option<&str>) -> Result<Option<TimedPlace>, ApiError> {
    let place = cursor.map(str::parse::<TimedPlace>).transpose();
    place.map_err(|error| ApiError::invalid_parameter("cursor", error.to_string()))
}

fn status_schema() -> Object {
    word_schema(OrderStatus::ALL.map(OrderStatus::as_str))
}
