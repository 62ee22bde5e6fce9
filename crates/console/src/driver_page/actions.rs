//! Forms of the driver page. They call the functions of the API's operations, so all rules are the same.

use api::{
    drivers::{LocationFix, change_availability, locate_driver},
    orders::driver_steps::{OfferAt, TripStep, accept, decline, record_step},
};
use app::App;
use axum::{
    extract::{Form, Path, State, rejection::FormRejection},
    http::StatusCode,
    response::Redirect,
};
use model::ids::OfferId;
use serde::Deserialize;

use super::{
    outcome::{page_error, report},
    session::SignedInDriver,
};
use crate::{
    form::read_form,
    page_error::PageError,
    pages::{new_order::reply_language, rows::parse_order},
};

#[derive(Debug, Deserialize)]
pub(super) struct DutyForm {
    available: bool,
}

/// Sets whether the driver is available for work.
pub(super) async fn set_duty(
    State(app): State<App>,
    driver: SignedInDriver,
    form: Result<Form<DutyForm>, FormRejection>,
) -> Result<Redirect, PageError> {
    let DutyForm { available } = read_form(form)?;
    let set = change_availability(&app.core, &driver.0, available).await;
    report(set, if available { "on_duty" } else { "off_duty" })
}

#[derive(Debug, Deserialize)]
pub(super) struct LocationForm {
    latitude: f64,
    longitude: f64,
}

/// Records the position of the browser, measured now.
pub(super) async fn record_location(
    State(app): State<App>,
    driver: SignedInDriver,
    form: Result<Form<LocationForm>, FormRejection>,
) -> Result<StatusCode, PageError> {
    let LocationForm { latitude, longitude } = read_form(form)?;
    let fix = LocationFix { latitude, longitude, located_at: None };
    locate_driver(&app.core, &driver.0, fix).await.map_err(page_error)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(super) struct OfferForm {
    offer_id: OfferId,
}

impl OfferForm {
    fn of_driver(self, driver: &SignedInDriver) -> OfferAt {
        OfferAt { driver: driver.0.clone(), offer_id: self.offer_id }
    }
}

pub(super) async fn accept_offer(
    State(app): State<App>,
    driver: SignedInDriver,
    path: Path<String>,
    form: Result<Form<OfferForm>, FormRejection>,
) -> Result<Redirect, PageError> {
    let (id, offer) = (parse_order(path)?, read_form(form)?.of_driver(&driver));
    report(accept(&app, &driver.caller(), &id, offer, reply_language()).await, "accepted")
}

pub(super) async fn decline_offer(
    State(app): State<App>,
    driver: SignedInDriver,
    path: Path<String>,
    form: Result<Form<OfferForm>, FormRejection>,
) -> Result<Redirect, PageError> {
    let (id, offer) = (parse_order(path)?, read_form(form)?.of_driver(&driver));
    report(decline(&app, &driver.caller(), &id, offer, None).await, "declined")
}

pub(super) async fn pick_up(
    State(app): State<App>,
    driver: SignedInDriver,
    path: Path<String>,
) -> Result<Redirect, PageError> {
    record(&app, &driver, path, TripStep::Pickup, "picked_up").await
}

pub(super) async fn complete_order(
    State(app): State<App>,
    driver: SignedInDriver,
    path: Path<String>,
) -> Result<Redirect, PageError> {
    record(&app, &driver, path, TripStep::Completion, "completed").await
}

#[derive(Debug, Deserialize)]
pub(super) struct ReturnForm {
    #[serde(default)]
    reason: String,
}

/// Gives the order back before the pickup. The reason may be empty.
pub(super) async fn return_order(
    State(app): State<App>,
    driver: SignedInDriver,
    path: Path<String>,
    form: Result<Form<ReturnForm>, FormRejection>,
) -> Result<Redirect, PageError> {
    let ReturnForm { reason } = read_form(form)?;
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    record(&app, &driver, path, TripStep::Return(reason), "returned").await
}

async fn record(
    app: &App,
    driver: &SignedInDriver,
    path: Path<String>,
    step: TripStep,
    done: &str,
) -> Result<Redirect, PageError> {
    let id = parse_order(path)?;
    report(record_step(app, &driver.caller(), &id, Some(&driver.0), step).await, done)
}
