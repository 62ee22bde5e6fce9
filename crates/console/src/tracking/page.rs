//! The page of one order: its state in words, the driver's first name and place.
//!
//! The page contains neither an id nor the token. The script requests the page again every ten seconds and replaces its
//! live part.

use api::{client::ClientAddress, orders::tracking::TRACKING_PATH};
use app::App;
use askama::Template;
use axum::{
    extract::{Extension, Path, State, rejection::PathRejection},
    response::Response,
};
use model::order::OrderStatus;
use orders::tracking::order::{GRID_M, TrackedDriver, TrackedOrder, find_tracked};

use super::map::draw_driver;
use crate::{
    assets,
    catalogue::{Words, fill, tr},
    language::Language,
    map::offset_m,
    page::render,
    page_error::PageError,
    shown::describe_distance,
};

/// Data of the frame around the page and its error pages.
pub(super) struct TrackingShell {
    pub(super) language: Language,
    pub(super) title: String,
    pub(super) base: &'static str,
    pub(super) icon: &'static str,
    pub(super) styles: [&'static str; 2],
    pub(super) script: &'static str,
}

impl TrackingShell {
    pub(super) fn new(title: String) -> Self {
        Self {
            language: Language::current(),
            title,
            base: TRACKING_PATH,
            icon: assets::icon_name(),
            styles: [assets::style_name(), assets::driver_style_name()],
            script: assets::tracking_script_name(),
        }
    }

    /// Returns a text of a template in the language of the request.
    pub(super) fn tr(&self, key: &'static str) -> &'static str {
        tr(key).get()
    }
}

/// Has no `Debug`, because the driver's name appears in no log.
#[derive(Template)]
#[template(path = "track.html")]
struct TrackingPage {
    shell: TrackingShell,
    detail: String,
    /// Empty if the place of the driver is unknown.
    map: String,
}

/// Shows an open order. An unknown link, the link of an ended order and an address over its limit get the same answer.
pub(super) async fn show_order(
    State(app): State<App>,
    Extension(address): Extension<ClientAddress>,
    token: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let is_within_limit = app.accounts.limits.count_tracking(address.network());
    let order = match token {
        Ok(Path(token)) if is_within_limit => find_order(&app, &token).await?,
        _ => None,
    };
    render(&build_page(order.ok_or_else(no_such_link)?))
}

/// Returns the open order of a token.
async fn find_order(app: &App, token: &str) -> Result<Option<TrackedOrder>, sqlx::Error> {
    let db = &app.core.pages;
    match app.orders.tracking.load_key(db).await?.read_token(token) {
        Some(order) => find_tracked(db, &order).await,
        None => Ok(None),
    }
}

/// Refuses a link, and all methods that change something.
pub(super) fn no_such_link() -> PageError {
    PageError::NotFound(tr("tracking.no_such_link"))
}

fn build_page(TrackedOrder { status, pickup, driver }: TrackedOrder) -> TrackingPage {
    let title = describe_state(status, driver.as_ref());
    let (detail, map) = match &driver {
        Some(driver) if status == OrderStatus::DriverAssigned => {
            let (east, north) = offset_m(pickup, driver.place);
            (describe_way(east.hypot(north)), draw_driver(pickup, driver.place, &title))
        }
        Some(driver) if status == OrderStatus::PickedUp => {
            (tr("tracking.good_trip").into(), draw_driver(pickup, driver.place, &title))
        }
        _ => (describe_wait(status).into(), String::new()),
    };
    TrackingPage { shell: TrackingShell::new(title), detail, map }
}

/// Returns the state in words.
fn describe_state(status: OrderStatus, driver: Option<&TrackedDriver>) -> String {
    let name = driver.and_then(|driver| driver.first_name.as_deref());
    match (status, name) {
        (OrderStatus::DriverAssigned, Some(name)) => fill!("tracking.name_on_the_way", name),
        (OrderStatus::DriverAssigned, None) => tr("tracking.driver_on_the_way").into(),
        (OrderStatus::PickedUp, Some(name)) => fill!("tracking.on_trip_with", name),
        (OrderStatus::PickedUp, None) => tr("tracking.on_trip").into(),
        (OrderStatus::Scheduled, _) => tr("tracking.scheduled").into(),
        (OrderStatus::Compensating, _) => tr("tracking.ending").into(),
        _ => tr("tracking.searching").into(),
    }
}

/// Returns how far the driver is from the pickup. Distances near the size of the grid have one text.
fn describe_way(metres: f64) -> String {
    if metres < 2.0 * GRID_M {
        return tr("tracking.almost_there").into();
    }
    let distance = describe_distance(metres);
    fill!("tracking.distance_to_pickup", distance)
}

/// Returns a sentence about a state without a place.
fn describe_wait(status: OrderStatus) -> Words {
    match status {
        OrderStatus::Scheduled => tr("tracking.scheduled_explained"),
        OrderStatus::Pending => tr("tracking.takes_longer"),
        OrderStatus::DriverAssigned => tr("tracking.place_unknown"),
        OrderStatus::PickedUp => tr("tracking.good_trip"),
        OrderStatus::Compensating => tr("tracking.ending_explained"),
        _ => tr("tracking.searching_explained"),
    }
}
