//! What drivers' apps do: say where the driver is and whether work is wanted, and wait for offers.

use std::{collections::BTreeSet, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    routing::{get, put},
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    auth::ApiCaller,
    body::{DriverPath, JsonBody},
    error::ApiError,
};
use dispatch::{
    accounts::api_keys::AccountRole,
    app::App,
    fleet::{
        driver_index::{self, DriverPlace},
        drivers::{self, DriverRecord},
    },
    offers::board::WaitOutcome,
};

/// A connection that says nothing for longer is cut by proxies.
const LONGEST_WAIT_SEC: u64 = 50;

pub fn routes() -> Router<App> {
    Router::new()
        .route("/{id}", get(show_driver))
        .route("/{id}/location", put(set_location))
        .route("/{id}/availability", put(set_available))
        .route("/{id}/offers", get(wait_for_offers))
}

/// A driver's key sees its own driver only; staff see all.
fn may_see(caller: &ApiCaller, id: &str) -> Result<(), ApiError> {
    match &caller.0.driver_id {
        Some(_) => caller.acting_driver(Some(id)).map(drop),
        None => caller.require_role(&[AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator]),
    }
}

async fn show_driver(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
) -> Result<Json<DriverRecord>, ApiError> {
    may_see(&caller, &id)?;
    drivers::find_driver(&app.db, &id).await?.map(Json).ok_or(ApiError::NoSuchDriver)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverLocation {
    latitude: f64,
    longitude: f64,
}

async fn set_location(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
    JsonBody(DriverLocation { latitude, longitude }): JsonBody<DriverLocation>,
) -> Result<Json<Value>, ApiError> {
    let id = caller.acting_driver(Some(&id))?;
    if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
        return Err(ApiError::Invalid(format!("{latitude}, {longitude} is no place on earth")));
    }
    let place = drivers::move_to(&app.db, &id, latitude, longitude).await?;
    answer_with_place(&app, place).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AvailabilityChange {
    available: bool,
}

async fn set_available(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
    JsonBody(AvailabilityChange { available }): JsonBody<AvailabilityChange>,
) -> Result<Json<Value>, ApiError> {
    let id = caller.acting_driver(Some(&id))?;
    let place = drivers::set_available(&app.db, &id, available).await?;
    answer_with_place(&app, place).await
}

/// Postgres has it; the index is told.
async fn answer_with_place(app: &App, place: Option<DriverPlace>) -> Result<Json<Value>, ApiError> {
    let place = place.ok_or(ApiError::NoSuchDriver)?;
    driver_index::upsert_driver(app, &place).await;
    Ok(Json(json!({
        "driver_id": place.id,
        "latitude": place.lat,
        "longitude": place.lng,
        "available": place.available,
    })))
}

#[derive(Debug, Deserialize)]
struct OffersQuery {
    /// Seconds to wait for an offer if there is none; 0 answers at once.
    #[serde(default)]
    wait_sec: u64,
    /// Ids of the offers the app has already, with commas between them.
    #[serde(default)]
    known: String,
}

/// What the driver is being asked. With `wait_sec` the answer comes as soon as that is something else than what is known:
/// a new offer, or one that is gone; and after that time in any case.
async fn wait_for_offers(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
    wait: Result<Query<OffersQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    may_see(&caller, &id)?;
    let Query(OffersQuery { wait_sec, known }) =
        wait.map_err(|_| ApiError::Invalid(format!("wait_sec must be 0 to {LONGEST_WAIT_SEC} seconds")))?;
    if wait_sec > LONGEST_WAIT_SEC {
        return Err(ApiError::Invalid(format!("wait_sec must be 0 to {LONGEST_WAIT_SEC} seconds")));
    }
    let known = known.split(',').filter(|id| !id.is_empty()).map(str::parse).collect::<Result<BTreeSet<Uuid>, _>>();
    let known = known.map_err(|_| ApiError::Invalid("known must be offer ids with commas between them".to_owned()))?;
    if !drivers::driver_exists(&app.db, &id).await? {
        return Err(ApiError::NoSuchDriver);
    }
    let WaitOutcome::Offers(offers) =
        app.offers.wait_for_offers((&app.db, &app.loops), &id, &known, Duration::from_secs(wait_sec)).await?
    else {
        return Err(ApiError::SentAway);
    };
    Ok(Json(json!({ "driver_id": id, "offers": offers })))
}
