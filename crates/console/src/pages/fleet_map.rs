//! Page with the map of the fleet. The part of the earth is in the address, so zooming works without scripts.

use std::collections::HashMap;

use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use model::ids::{DriverId, LatLng};
use serde::Deserialize;

use super::{driver::driver_page, roles::STAFF};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, read_query, write_query},
    map::{FleetMark, MapView, MarkKind, MarkText, draw_fleet},
    page::{Shell, render},
    page_error::PageError,
    refusal::refused_filter,
    session::SignedIn,
    shown::{Code, describe_place, group_digits},
};
use app::App;
use desk::reports::{
    fleet_map::{self, MOST, MapBounds, MapDriver, MapOrder},
    page_changes::ChangeTopic,
};

const REFRESH_S: u32 = 10;
const PATH: &str = "/map";

/// Part of the earth that the address names. Without it the map shows the whole fleet.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MapQuery {
    /// Latitude and longitude of the centre.
    at: String,
    /// Width in kilometres.
    km: String,
}

impl MapQuery {
    fn view(&self) -> Result<Option<MapView>, PageError> {
        if self.at.trim().is_empty() && self.km.trim().is_empty() {
            return Ok(None);
        }
        let view = MapView::parse(&self.at, &self.km);
        view.map(Some).ok_or_else(|| PageError::Invalid(tr("fleet_map.invalid_view").into()))
    }
}

#[derive(Template)]
#[template(path = "fleet_map.html")]
struct FleetMapPage {
    shell: Shell,
    /// Address of this page below the console's path.
    here: String,
    /// Centre and width that the form shows.
    at: String,
    km: String,
    /// Links to other views, each with its symbol and its text.
    moves: Vec<(&'static str, Words, String)>,
    /// Texts about rows that are missing.
    notes: Vec<String>,
    /// HTML of the map; empty if there is nothing to show.
    figure: String,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<MapQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let query: MapQuery = read_query(query)?;
    let chosen = query.view()?;
    let bounds = chosen.map_or(MapBounds::EARTH, |view| view.bounds());
    let drivers = fleet_map::list_drivers(&app.core.db, &bounds).await?;
    let orders = fleet_map::list_orders(&app.core.db, &bounds).await?;
    let base = app.config.console.path.as_str();
    let marks = mark_all(&drivers.rows, &orders.rows);
    let describe = |mark: &FleetMark| match mark.kind {
        MarkKind::FreeDriver | MarkKind::BusyDriver => describe_driver(base, &drivers.rows[mark.row], mark.place),
        MarkKind::WaitingOrder | MarkKind::RunningOrder => describe_order(base, &orders.rows[mark.row]),
    };
    let view = chosen.or_else(|| MapView::fit(marks.iter().map(|mark| &mark.place)));
    let page = format!("{base}{PATH}");
    let rules = app.areas.rules.get();
    let figure = view.map(|view| {
        let areas: Vec<_> = rules.geofence.areas().iter().flat_map(model::area::Area::outlines).collect();
        draw_fleet(&page, &view, &marks, &areas, &describe)
    });
    let most = group_digits(MOST.unsigned_abs());
    let (at, km) = view.map(|view| view.texts()).unwrap_or_default();
    let shell = Shell::for_person(&app.config, &person, PATH, tr("fleet_map.title"), None);
    let page = FleetMapPage {
        here: format!("{PATH}{}", write_query(&[("at", &query.at), ("km", &query.km)])),
        at: refused_filter(&page, "at").unwrap_or(at),
        km: refused_filter(&page, "km").unwrap_or(km),
        moves: view.as_ref().map(list_moves).unwrap_or_default(),
        notes: [
            drivers.is_cut.then(|| fill!("fleet_map.drivers_cut", most)),
            orders.is_cut.then(|| fill!("fleet_map.orders_cut", most)),
        ]
        .into_iter()
        .flatten()
        .collect(),
        figure: figure.unwrap_or_default(),
        shell: shell.live(REFRESH_S).follow(ChangeTopic::Orders).made_at(app.core.database_clock.now()),
    };
    render(&page)
}

/// Returns the marks of drivers and orders. Orders come last, so that they are on top.
fn mark_all(drivers: &[MapDriver], orders: &[MapOrder]) -> Vec<FleetMark> {
    let place = |driver: &MapDriver| LatLng::new(driver.lat, driver.lng);
    let places: HashMap<&DriverId, LatLng> = drivers.iter().map(|driver| (&driver.id, place(driver))).collect();
    let drivers = drivers.iter().enumerate().map(|(row, driver)| FleetMark {
        kind: if driver.active_order.is_some() { MarkKind::BusyDriver } else { MarkKind::FreeDriver },
        place: place(driver),
        row,
        driver_at: None,
    });
    let orders = orders.iter().enumerate().map(|(row, order)| FleetMark {
        kind: if order.status.occupies_driver() { MarkKind::RunningOrder } else { MarkKind::WaitingOrder },
        place: order.pickup,
        row,
        driver_at: order.driver.as_ref().and_then(|driver| places.get(driver)).copied(),
    });
    drivers.chain(orders).collect()
}

fn describe_driver(base: &str, driver: &MapDriver, place: LatLng) -> MarkText {
    let (id, at) = (driver.id.as_str(), describe_place(place));
    let told = match &driver.active_order {
        Some(order) => fill!("fleet_map.driver_with_order", id, order, at),
        None => fill!("fleet_map.free_driver", id, at),
    };
    MarkText { id: id.to_owned(), href: driver_page(base, id), told }
}

fn describe_order(base: &str, order: &MapOrder) -> MarkText {
    let (id, state) = (order.id.as_str(), Code::of_status(order.status).text());
    let at = describe_place(order.pickup);
    let href = format!("{base}/orders/{}", encode_component(id));
    MarkText { id: id.to_owned(), href, told: fill!("fleet_map.order", id, state, at) }
}

/// Returns the links that zoom and move a view.
fn list_moves(view: &MapView) -> Vec<(&'static str, Words, String)> {
    vec![
        ("+", tr("fleet_map.zoom_in"), view.zoomed(0.5).query()),
        ("−", tr("fleet_map.zoom_out"), view.zoomed(2.0).query()),
        ("←", tr("fleet_map.west"), view.moved(-0.5, 0.0).query()),
        ("→", tr("fleet_map.east"), view.moved(0.5, 0.0).query()),
        ("↑", tr("fleet_map.north"), view.moved(0.0, -0.5).query()),
        ("↓", tr("fleet_map.south"), view.moved(0.0, 0.5).query()),
    ]
}
