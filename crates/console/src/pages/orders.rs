//! Page of orders, found by filters in the address or by any id.

use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Redirect, Response},
};

use super::{
    order_filter::OrderListQuery,
    roles::{BOOKERS, STAFF},
    rows::OrderRow,
    saved_filters::{SavedFilters, list_saved},
};
use crate::{
    catalogue::{Words, tr},
    form::{encode_component, read_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Code, group_digits},
};
use api::scope::retain_visible;
use app::App;
use desk::reports::page_changes::ChangeTopic;
use model::order::OrderStatus;
use orders::search::{self, ClosedOrders, OrderCounts, TimedPlace};

const PAGE: u32 = 50;
/// Seconds between refreshes. The stream reports a new order within one second, so the page shows it within three.
const REFRESH_S: u32 = 2;

/// Returns a count such as `17`, or `1,000+`.
fn describe_counts(counts: &OrderCounts) -> String {
    if counts.is_cut {
        return format!("{}+", group_digits(search::MOST_COUNTED.unsigned_abs()));
    }
    group_digits(counts.by_status.iter().map(|(_, orders)| orders.unsigned_abs()).sum())
}

struct StatusOption {
    word: &'static str,
    label: String,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "orders.html")]
struct OrdersPage {
    shell: Shell,
    filter: OrderListQuery,
    statuses: Vec<StatusOption>,
    service_types: Vec<String>,
    rows: Vec<OrderRow>,
    /// Text that explains which closed orders the list includes.
    note: Words,
    /// Number of matching orders, such as `1,000+`; `None` if counting took too long.
    count: Option<String>,
    /// Counts by status, each with the address of these orders.
    by_status: Vec<(Chip, String, String)>,
    /// Whether this person may create orders.
    may_create: bool,
    saved: SavedFilters,
    /// Address of this page. `next` is that of the next page.
    here: String,
    next: Option<String>,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<OrderListQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.showing(app);
    let filter: OrderListQuery = read_query(query)?;
    let search = filter.to_search()?;
    let after = match filter.cursor.as_str() {
        "" => None,
        cursor => Some(cursor.parse::<TimedPlace>().map_err(|error| PageError::Invalid(error.to_string()))?),
    };
    let (mut found, counts) = search::search_and_count(&app.orders, &search, after.as_ref(), PAGE).await?;
    retain_visible(&app, person.scope(), &mut found.orders, |order| Some(order.id.as_str())).await?;
    // If the searched id is exactly that of an order, redirects to the order.
    if let [order] = found.orders.as_slice()
        && search.any_id.as_deref() == Some(order.id.as_str())
        && filter.cursor.is_empty()
    {
        let address = format!("{}/orders/{}", app.config.console.path, encode_component(order.id.as_str()));
        return Ok(Redirect::to(&address).into_response());
    }
    let saved = list_saved(&app.core.db, &person, &filter.to_values()).await?;
    let is_full = u32::try_from(found.orders.len()).is_ok_and(|n| n == PAGE);
    let next = found.orders.last().filter(|_| is_full).map(|order| {
        let place = TimedPlace { at: order.created_at, id: order.id.clone() };
        filter.to_query(&place.to_string())
    });
    let note = match found.closed {
        ClosedOrders::None => tr("orders.open_orders_find_closed"),
        ClosedOrders::All => tr("orders.open_closed_orders_id"),
        ClosedOrders::Within { .. } if search.from.is_none() && search.to.is_none() => {
            tr("orders.orders_created_last_24")
        }
        ClosedOrders::Within { .. } => tr("orders.orders_created_time"),
    };
    let statuses = OrderStatus::ALL.into_iter().map(|status| StatusOption {
        word: status.as_str(),
        label: Code::of_status(status).text(),
        is_chosen: search.status == Some(status),
    });
    let refresh = if filter.cursor.is_empty() { REFRESH_S } else { 0 };
    let shell = Shell::for_person(&app.config, &person, "/orders", tr("common.orders"), filter.did.as_deref());
    let page = OrdersPage {
        shell: shell.live(refresh).follow(ChangeTopic::Orders).made_at(found.now),
        statuses: statuses.collect(),
        service_types: app.config.service_types.keys().map(ToString::to_string).collect(),
        rows: found.orders.into_iter().map(|order| OrderRow::new(order, found.now)).collect(),
        note,
        count: counts.as_ref().map(describe_counts),
        by_status: counts
            .iter()
            .flat_map(|counts| &counts.by_status)
            .map(|(status, orders)| filter.link_to(*status, *orders))
            .collect(),
        may_create: person.may(&BOOKERS) && person.scope().is_none(),
        saved,
        here: filter.to_query(&filter.cursor),
        next,
        filter: filter.with_filled_fields(&format!("{}/orders", app.config.console.path)),
    };
    render(&page)
}
