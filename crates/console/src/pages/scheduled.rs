//! Page of scheduled orders by the hour of their pickup, on the clock of the installation.

use std::collections::BTreeMap;

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use chrono::{DateTime, TimeDelta, Utc};
use model::{
    admission::schedule::AreaTimeZone,
    ids::{AreaId, DriverId},
    order::Order,
};
use serde::Deserialize;

use super::roles::STAFF;
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, optional_text, read_query, write_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, group_digits},
    table::{Cell, Field, TablePage, TableRow},
};
use app::App;
use desk::reports::page_changes::ChangeTopic;
use foundation::db;
use orders::search::{self, ScheduledFilter};

/// Time that the page covers from the current hour.
const AHEAD: TimeDelta = TimeDelta::days(7);
/// Maximum orders that one hour lists.
const MOST_ORDERS: u32 = 200;
const REFRESH_S: u32 = 10;

const HOUR_HEADINGS: [Words; 3] = [tr("common.pickup"), tr("common.orders"), tr("scheduled.without_driver")];
const ORDER_HEADINGS: [Words; 6] = [
    tr("common.order"),
    tr("common.pickup"),
    tr("common.state"),
    tr("common.service_type"),
    tr("common.area"),
    tr("common.driver"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ScheduledQuery {
    service_type: String,
    area: String,
    /// Start of an hour in seconds since 1970, to list its orders. Empty: all hours.
    hour: String,
}

impl ScheduledQuery {
    fn address(&self, hour: Option<DateTime<Utc>>) -> String {
        let hour = hour.map(|at| at.timestamp().to_string()).unwrap_or_default();
        let query = write_query(&[("service_type", &self.service_type), ("area", &self.area), ("hour", &hour)]);
        format!("/scheduled{query}")
    }

    fn hour(&self) -> Result<Option<DateTime<Utc>>, PageError> {
        if self.hour.is_empty() {
            return Ok(None);
        }
        let at = self.hour.parse().ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
        at.map(Some).ok_or_else(|| PageError::Invalid(tr("scheduled.hour_not_exist").into()))
    }

    fn to_filter(&self) -> Result<ScheduledFilter, PageError> {
        let text = |name: Words, value: &str| optional_text(name, Some(value));
        Ok(ScheduledFilter {
            service_type: text(tr("common.service_type"), &self.service_type)?.map(Into::into),
            area: text(tr("common.area"), &self.area)?.map(Into::into),
        })
    }
}

/// Scheduled orders of one local hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct HourCount {
    orders: u64,
    without_driver: u64,
}

fn hour_row(base: &str, query: &ScheduledQuery, zone: AreaTimeZone, at: DateTime<Utc>, count: HourCount) -> TableRow {
    let address = format!("{base}{}", query.address(Some(at)));
    let cells = vec![
        Cell::link(&address, &zone.describe_hour(at)),
        Cell::number(group_digits(count.orders)),
        Cell::number(group_digits(count.without_driver)),
    ];
    TableRow::plain(cells).open(address)
}

fn order_row(base: &str, order: Order) -> TableRow {
    let address = format!("{base}/orders/{}", encode_component(order.id.as_str()));
    let cells = vec![
        Cell::link(&address, order.id.as_str()),
        order.pickup_at.map_or_else(|| Cell::text(""), |at| Cell::html(Moment(at))),
        Cell::html(Chip::of_status(order.status)),
        Cell::text(&order.service_type),
        Cell::id(order.area_id.map(AreaId::into_string).unwrap_or_default()),
        Cell::id(order.driver_id.map(DriverId::into_string).unwrap_or_default()),
    ];
    TableRow::plain(cells).open(address)
}

/// Returns the counts by local hour. The database counts by quarter hours, because the hours of every time zone consist
/// of whole quarter hours.
async fn count_hours(
    app: &App,
    filter: &ScheduledFilter,
    now: DateTime<Utc>,
) -> Result<BTreeMap<DateTime<Utc>, HourCount>, PageError> {
    let zone = app.config.admission.time_zone;
    let from = zone.hour_start(now);
    let mut hours: BTreeMap<DateTime<Utc>, HourCount> = BTreeMap::new();
    for quarter in search::count_scheduled(&app.core.db, filter, (from, from + AHEAD)).await? {
        let hour = hours.entry(zone.hour_start(quarter.at)).or_default();
        hour.orders += quarter.orders.unsigned_abs();
        hour.without_driver += quarter.without_driver.unsigned_abs();
    }
    Ok(hours)
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<ScheduledQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.showing(app);
    let query: ScheduledQuery = read_query(query)?;
    let (filter, hour) = (query.to_filter()?, query.hour()?);
    let now = db::database_now(&app.core.db).await?;
    let (base, zone) = (app.config.console.path.as_str(), app.config.admission.time_zone);
    let (headings, rows, note): (&'static [Words], Vec<TableRow>, String) = match hour {
        Some(at) => {
            let span = (at, at + TimeDelta::hours(1));
            let found = search::list_scheduled(&app.core.db, &filter, span, MOST_ORDERS).await?;
            let is_cut = u32::try_from(found.len()).is_ok_and(|n| n == MOST_ORDERS);
            let (hour, most) = (zone.describe_hour(at), MOST_ORDERS);
            let note = if is_cut {
                fill!("scheduled.first_orders_hour", hour, most)
            } else {
                fill!("scheduled.orders_hour", hour)
            };
            (&ORDER_HEADINGS, found.into_iter().map(|order| order_row(base, order)).collect(), note)
        }
        None => {
            let hours = count_hours(&app, &filter, now).await?;
            let rows = hours.into_iter().map(|(at, count)| hour_row(base, &query, zone, at, count)).collect();
            let zone = zone.name();
            (&HOUR_HEADINGS, rows, fill!("scheduled.open_orders_next_days", zone))
        }
    };
    let known = app.config.service_types.keys().map(|name| (name.as_str(), name.as_str()));
    let types: Vec<(&str, &str)> = std::iter::once(("", tr("common.any").get())).chain(known).collect();
    let shell = Shell::for_person(&app.config, &person, "/scheduled", tr("common.scheduled"), None);
    let page = TablePage {
        note,
        filters: vec![
            Field::choice("service_type", tr("common.service_type"), &query.service_type, &types),
            Field::text("area", tr("common.area"), &query.area),
        ],
        if_empty: (tr("scheduled.no_scheduled_orders"), tr("scheduled.orders_pickup_time_appear")),
        ..TablePage::new(
            shell.live(REFRESH_S).follow(ChangeTopic::Orders).made_at(now),
            &query.address(hour),
            headings,
            rows,
        )
    };
    render(&page)
}
