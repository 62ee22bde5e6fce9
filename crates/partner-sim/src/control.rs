//! Control API under `/_sim`, for callers on this machine: the state of the simulation, and its knobs.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State, rejection::JsonRejection},
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    api,
    core::SimulationCore,
    counters::SimulationCounters,
    fate::{booking_id, parse_booking_id},
    knobs::PartnerKnobs,
    serving::{admit_loopback, error_response},
};

/// Maximum number of open bookings listed in a report.
const MOST_NAMED: usize = 1000;

pub(super) fn control_routes(core: &Arc<SimulationCore>) -> Router {
    Router::new()
        .route("/_sim/state", get(show_state))
        .route("/_sim/bookings/{booking_id}", get(show_booking))
        .route("/_sim/knobs", get(show_knobs).post(turn_knobs))
        .route_layer(middleware::from_fn(admit_loopback))
        .with_state(core.clone())
}

/// State of the simulation.
#[derive(Debug, Clone, Serialize)]
pub struct SimulationReport {
    #[serde(flatten)]
    pub counters: SimulationCounters,
    /// Running requests of the partner API.
    pub running: u64,
    /// Number of open bookings: those that are neither completed nor cancelled nor left without a driver.
    pub open_bookings: usize,
    /// Ids of open bookings, 1,000 at most.
    pub open: Vec<String>,
    /// Bookings in memory: open ones, and finished ones that are not removed yet.
    pub known_bookings: usize,
    /// Callbacks that are in flight or waiting to be sent.
    pub callbacks_waiting: usize,
}

pub(super) fn simulation_report(core: &SimulationCore) -> SimulationReport {
    let state = core.lock_state();
    let open = state.ledger.open_bookings();
    SimulationReport {
        counters: state.counters.clone(),
        running: state.traffic.running_requests(),
        open_bookings: open.len(),
        open: open.iter().take(MOST_NAMED).map(|number| booking_id(*number)).collect(),
        known_bookings: state.ledger.len(),
        callbacks_waiting: core.callbacks.len(),
    }
}

async fn show_state(State(core): State<Arc<SimulationCore>>) -> Json<SimulationReport> {
    Json(simulation_report(&core))
}

/// Answers like `job-status`, but without key, limits and faults.
async fn show_booking(State(core): State<Arc<SimulationCore>>, Path(id): Path<String>) -> Response {
    let state = core.lock_state();
    match parse_booking_id(&id).and_then(|number| Some((number, state.ledger.find_booking(number)?))) {
        Some((number, booking)) => {
            let mut shown = api::status_json(number, booking);
            if let Some(details) = &booking.details {
                shown["details"] = details.clone();
            }
            Json(shown).into_response()
        }
        None => error_response(StatusCode::NOT_FOUND, "BOOKING_NOT_FOUND", "no such booking, or already removed"),
    }
}

async fn show_knobs(State(core): State<Arc<SimulationCore>>) -> Json<PartnerKnobs> {
    Json((*core.current_knobs()).clone())
}

/// Changes the knobs in the body. Answers with all knobs.
async fn turn_knobs(
    State(core): State<Arc<SimulationCore>>,
    body: Result<Json<Map<String, Value>>, JsonRejection>,
) -> Response {
    let Json(changes) = match body {
        Ok(changes) => changes,
        Err(rejection) => return error_response(StatusCode::BAD_REQUEST, "MALFORMED", &rejection.body_text()),
    };
    match core.change_knobs(|knobs| knobs.merge_changes(changes)) {
        Ok(()) => show_knobs(State(core)).await.into_response(),
        Err(message) => error_response(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", &message),
    }
}
