//! Requests of drivers' apps: position, availability and offers. `by_staff`: administration of drivers. `links`: one-time
//! links for the sign-in to the driver page.

mod by_staff;
mod links;

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use chrono::{DateTime, Utc};
use foundation::core::Core;
use model::input::GivenTime;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::links::{SIGN_IN_PATH, SignInLink, issue_link};
use super::{
    auth::{ApiCaller, DRIVERS},
    body::{DriverPath, JsonBody},
    error::ApiError,
    openapi::{CallErrors, example_location, example_place},
};
use accounts::api_keys::AccountRole;
use app::App;
use model::ids::{DriverId, LatLng};
use orders::{
    fleet::{
        driver_index::{self, DriverPlace},
        drivers::{self, DriverFix, DriverRecord, FixVerdict, LocatedDriver},
    },
    offers::{
        board::{self, KnownOffers, WaitOutcome},
        live::LiveOffer,
    },
};

/// Maximum wait. Proxies close a connection that is silent for longer.
const LONGEST_WAIT_SEC: u64 = 50;

/// Roles that may read every driver.
const READERS: [AccountRole; 4] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(by_staff::list_drivers, by_staff::create_driver))
        .routes(routes!(show_driver, by_staff::change_driver))
        .routes(routes!(set_location))
        .routes(routes!(set_available))
        .routes(routes!(wait_for_offers))
        .routes(routes!(by_staff::import_drivers))
        .routes(routes!(by_staff::disable_driver))
        .routes(routes!(by_staff::enable_driver))
        .routes(routes!(by_staff::remove_driver))
        .routes(routes!(links::create_link))
}

/// Checks access to a driver. A driver's key may read only its own driver; staff may read all.
fn may_see(caller: &ApiCaller, id: &DriverId) -> Result<(), ApiError> {
    match caller.driver_id() {
        Some(_) => caller.acting_driver(Some(id)).map(drop),
        None => caller.require_role(&READERS),
    }
}

/// Returns a driver.
#[utoipa::path(get, path = "/{id}", tag = "drivers", params(DriverPath),
    extensions(("x-roles" = json!([&DRIVERS[..], &READERS].concat()))),
    responses(
        (status = 200, description = "success", body = DriverRecord,
         example = json!({ "id": "DRV-1", "name": "Ana", "service_types": ["RIDE"], "skills": ["wheelchair"],
                           "latitude": -6.2088, "longitude": 106.8456,
                           "lat": -6.2088, "lng": 106.8456, "available": true,
                           "idle_since": "2026-01-09T08:00:00Z", "active_order": null })),
        CallErrors,
    ))]
async fn show_driver(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
) -> Result<Json<DriverRecord>, ApiError> {
    may_see(&caller, &id)?;
    let app = caller.reading(app);
    drivers::find_driver(&app.core.db, &id).await?.map(Json).ok_or(ApiError::NoSuchDriver)
}

/// Position and availability of a driver.
#[derive(Debug, Serialize, ToSchema)]
struct PlaceAnswer {
    #[schema(value_type = String)]
    driver_id: DriverId,
    latitude: f64,
    longitude: f64,
    available: bool,
}

/// A position measured by the driver's device.
#[derive(Debug, Deserialize, ToSchema)]
pub struct LocationFix {
    #[schema(minimum = -90, maximum = 90)]
    pub latitude: f64,
    #[schema(minimum = -180, maximum = 180)]
    pub longitude: f64,
    /// Time of the measurement: within the last 24 hours, at most a minute in the future. Default: the time of the
    /// request.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub located_at: Option<GivenTime>,
}

/// Last known position of the driver.
#[derive(Debug, Serialize, ToSchema)]
struct LocationAnswer {
    #[schema(value_type = String)]
    driver_id: DriverId,
    latitude: f64,
    longitude: f64,
    available: bool,
    /// Time of the position.
    located_at: Option<DateTime<Utc>>,
    /// False if a newer position was known and is kept.
    recorded: bool,
}

/// Records the driver's position.
///
/// A position older than the known one changes nothing: the answer has the newer position, and `recorded` is false.
#[utoipa::path(put, path = "/{id}/location", tag = "drivers", params(DriverPath), extensions(("x-roles" = json!(DRIVERS))),
    request_body(content = LocationFix,
        example = json!({ "latitude": -6.2088, "longitude": 106.8456 })),
    responses((status = 200, description = "success", body = LocationAnswer, example = json!(example_location())), CallErrors))]
async fn set_location(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
    JsonBody(fix): JsonBody<LocationFix>,
) -> Result<Json<LocationAnswer>, ApiError> {
    let id = caller.acting_driver(Some(&id))?;
    let LocatedDriver { place, located_at, verdict } = locate_driver(&app.core, &id, fix).await?;
    Ok(Json(LocationAnswer {
        driver_id: place.id,
        latitude: place.at.lat,
        longitude: place.at.lng,
        available: place.available,
        located_at,
        recorded: verdict == FixVerdict::Recorded,
    }))
}

/// Checks and records the position of a driver, in Postgres and in the index.
pub async fn locate_driver(core: &Core, id: &DriverId, fix: LocationFix) -> Result<LocatedDriver, ApiError> {
    let LocationFix { latitude, longitude, located_at } = fix;
    let place = LatLng::new(latitude, longitude);
    if !place.is_on_earth() {
        let member = if (-90.0..=90.0).contains(&latitude) { "longitude" } else { "latitude" };
        return Err(ApiError::invalid_member(member, format!("{latitude}, {longitude} is no place on earth")));
    }
    let moved = drivers::move_to(&core.db, id, DriverFix { place, at: located_at.map(GivenTime::time) }).await?;
    let located = moved.ok_or(ApiError::NoSuchDriver)?;
    if located.verdict == FixVerdict::OutOfRange {
        let rule = "located_at must lie within the last 24 hours, at most a minute ahead of the server's clock";
        return Err(ApiError::invalid_member("located_at", rule));
    }
    driver_index::upsert_driver(core, &located.place).await;
    Ok(located)
}

#[derive(Debug, Deserialize, ToSchema)]
struct AvailabilityChange {
    available: bool,
}

/// Records whether the driver is available for work.
#[utoipa::path(put, path = "/{id}/availability", operation_id = "set_availability", tag = "drivers", params(DriverPath),
    extensions(("x-roles" = json!(DRIVERS))),
    request_body(content = AvailabilityChange, example = json!({ "available": true })),
    responses((status = 200, description = "success", body = PlaceAnswer, example = json!(example_place())), CallErrors))]
async fn set_available(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
    JsonBody(AvailabilityChange { available }): JsonBody<AvailabilityChange>,
) -> Result<Json<PlaceAnswer>, ApiError> {
    let id = caller.acting_driver(Some(&id))?;
    let place = change_availability(&app.core, &id, available).await?;
    Ok(Json(PlaceAnswer {
        driver_id: place.id,
        latitude: place.at.lat,
        longitude: place.at.lng,
        available: place.available,
    }))
}

/// Records whether the driver is available, in Postgres and then in the index.
pub async fn change_availability(core: &Core, id: &DriverId, available: bool) -> Result<DriverPlace, ApiError> {
    let place = drivers::set_available(&core.db, id, available).await?.ok_or(ApiError::NoSuchDriver)?;
    driver_index::upsert_driver(core, &place).await;
    Ok(place)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OffersQuery {
    /// Seconds to wait for a change; 0 returns immediately.
    #[serde(default)]
    #[param(minimum = 0, maximum = 50)]
    wait_sec: u64,
    /// Ids of the offers that the caller already knows, separated by commas. An id may be followed by a colon and the
    /// `version` of the offer, so that a change of its order before this request is not missed.
    #[serde(default)]
    known: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct OfferList {
    #[schema(value_type = String)]
    driver_id: DriverId,
    offers: Vec<LiveOffer>,
}

/// Parses the offers that an app knows: `ID` or `ID:VERSION`, separated by commas.
pub fn parse_known(known: &str) -> Result<KnownOffers, ApiError> {
    let parse = |text: &str| match text.split_once(':') {
        Some((id, version)) => Some((id.parse().ok()?, Some(version.parse().ok()?))),
        None => Some((text.parse().ok()?, None)),
    };
    let known: Option<KnownOffers> = known.split(',').filter(|id| !id.is_empty()).map(parse).collect();
    known.ok_or_else(|| ApiError::invalid_parameter("known", "known must be offer ids separated by commas"))
}

/// Lists the live offers of a driver.
///
/// With `wait_sec` the request returns as soon as the offers differ from the known ones: an offer was added or removed, or
/// its order was changed.
/// It returns after that time in any case.
#[utoipa::path(get, path = "/{id}/offers", operation_id = "await_offers", tag = "drivers", params(DriverPath, OffersQuery),
    extensions(("x-roles" = json!([&DRIVERS[..], &READERS].concat()))),
    responses(
        (status = 200, description = "success", body = OfferList,
         example = json!({ "driver_id": "DRV-1", "offers": [{
             "offer_id": "019ba1c0-0000-7000-8000-000000000001", "order_id": "ORD-1", "service_type": "RIDE",
             "attempt_no": 1, "distance_m": 420.0, "pickup": { "latitude": -6.2088, "longitude": 106.8456 },
             "pickup_latitude": -6.2088, "pickup_longitude": 106.8456,
             "offered_at": "2026-01-09T08:00:00Z", "expires_at": "2026-01-09T08:02:00Z", "version": 0 }] })),
        CallErrors,
    ))]
async fn wait_for_offers(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
    wait: Result<Query<OffersQuery>, QueryRejection>,
) -> Result<Json<OfferList>, ApiError> {
    may_see(&caller, &id)?;
    let app = caller.reading(app);
    let Query(OffersQuery { wait_sec, known }) = wait?;
    if wait_sec > LONGEST_WAIT_SEC {
        return Err(ApiError::invalid_parameter(
            "wait_sec",
            format!("wait_sec must be 0 to {LONGEST_WAIT_SEC} seconds"),
        ));
    }
    let known = parse_known(&known)?;
    if !drivers::driver_exists(&app.core.db, &id).await? {
        return Err(ApiError::NoSuchDriver);
    }
    let reach = (&app.core.db, &app.core.loops);
    let wait = Duration::from_secs(wait_sec);
    let WaitOutcome::Offers(offers) = board::wait_for_offers(&app.orders.offers, reach, &id, &known, wait).await?
    else {
        return Err(ApiError::SentAway);
    };
    if wait_sec > 0 {
        caller.confirm_key(&app).await?;
    }
    Ok(Json(OfferList { driver_id: id, offers }))
}
