//! HTTP API of the partner: docs/PARTNER.md.

use std::{sync::Arc, time::Instant};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{ConnectInfo, DefaultBodyLimit, Path, Query, Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, RETRY_AFTER},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    core::{GateRefusal, SimulationCore},
    fate::{self, BookingEvent, BookingFate},
    faults::RequestFault,
    ledger::{BookOutcome, BookingOperation, CancelOutcome, LedgerFull, SimulatedBooking},
    lines::ConnectedCaller,
    serving::error_response,
};
use crate::seeded_rng::ChoiceSeed;

const MAX_BODY_BYTES: usize = 16 * 1024;
const LONGEST_KEY: usize = 255;

pub(super) fn booking_routes(core: &Arc<SimulationCore>) -> Router {
    Router::new()
        .route("/bookings", post(make_booking))
        .route("/bookings/{booking_id}/cancel", post(cancel_booking))
        .route("/bookings/{booking_id}/details", put(set_details))
        .route("/job-status", get(job_status))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .route_layer(middleware::from_fn_with_state(core.clone(), meet_faults))
        .with_state(core.clone())
}

/// Middleware of every request: outages, keys, rate limit and latency.
async fn meet_faults(State(core): State<Arc<SimulationCore>>, request: Request, next: Next) -> Response {
    let _running = core.begin_request();
    let key = request.headers().get(AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
    if let Err(refusal) = core.admit_request(key) {
        return match refusal {
            GateRefusal::Unavailable => error_response(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "we are down"),
            GateRefusal::Unauthorized => {
                error_response(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "Authorization: Bearer needs a valid key")
            }
            GateRefusal::TooMany(wait) => {
                let answer =
                    error_response(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", "too many requests; see Retry-After");
                ([(RETRY_AFTER, core.retry_after(wait))], answer).into_response()
            }
        };
    }
    // Latency simulates the network, so it does not depend on the booking.
    let latency = core.current_knobs().latency.draw_duration(&mut rand::rng());
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    next.run(request).await
}

/// Body of `POST /bookings`. Unknown fields are ignored.
#[derive(Debug, Serialize, Deserialize)]
struct BookingRequest {
    reference: String,
    order_id: String,
    attempt: u32,
    service_type: String,
    pickup: BookingPickup,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropoff: Option<BookingPickup>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BookingPickup {
    latitude: f64,
    longitude: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl BookingRequest {
    fn check_fields(&self, key: &str) -> Result<(), &'static str> {
        if self.reference != key {
            return Err("reference must equal the Idempotency-Key");
        }
        if self.order_id.is_empty() || self.service_type.is_empty() || self.attempt == 0 {
            return Err("order_id and service_type must not be empty, attempts count from 1");
        }
        if self.pickup.latitude.abs() > 90.0 || self.pickup.longitude.abs() > 180.0 {
            return Err("pickup must be a place on earth");
        }
        Ok(())
    }

    fn has_contents(&self) -> bool {
        self.pickup.address.is_some() || self.dropoff.is_some()
    }

    /// Returns a hash of the content that does not depend on how the JSON is written.
    fn content_fingerprint(&self) -> u64 {
        let text = serde_json::to_string(self).unwrap_or_default();
        ChoiceSeed::new(0, &[&text]).random_number()
    }
}

async fn make_booking(
    State(core): State<Arc<SimulationCore>>,
    ConnectInfo(caller): ConnectInfo<ConnectedCaller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    if key.is_empty() || key.len() > LONGEST_KEY {
        let message = "the header Idempotency-Key must have 1 to 255 characters";
        return error_response(StatusCode::BAD_REQUEST, "IDEMPOTENCY_KEY_MISSING", message);
    }
    let request: BookingRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(e) => return error_response(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", &e.to_string()),
    };
    if let Err(message) = request.check_fields(key) {
        return error_response(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", message);
    }
    let number = fate::booking_number(core.seed, key);
    let asked = core.lock_state().ledger.count_booking_request(number);
    let (nth, first) = match asked {
        Ok(asked) => asked,
        Err(LedgerFull) => {
            return error_response(StatusCode::SERVICE_UNAVAILABLE, "FULL", "too many bookings are in memory");
        }
    };
    if first {
        core.forget_later(number);
    }
    let fault = RequestFault::draw_fault(core.seed, key, BookingOperation::Book, nth, &core.current_knobs());
    let done = || {
        let booked = {
            let state = &mut *core.lock_state();
            let draw = || BookingFate::draw_fate(core.seed, key, &state.knobs);
            let booked = state.ledger.book_reference(number, key, request.content_fingerprint(), Instant::now(), draw);
            match booked {
                BookOutcome::New => {
                    state.counters.bookings += 1;
                    if request.has_contents() {
                        let contents = json!({ "pickup": request.pickup, "dropoff": request.dropoff, "contact": null });
                        state.ledger.set_details(number, contents);
                    }
                }
                BookOutcome::Again => state.counters.bookings_repeated += 1,
                BookOutcome::Differs => {}
            }
            booked
        };
        match booked {
            BookOutcome::New => {
                core.schedule_step(number);
                (StatusCode::CREATED, Json(json!({ "booking_id": fate::booking_id(number) }))).into_response()
            }
            BookOutcome::Again => Json(json!({ "booking_id": fate::booking_id(number) })).into_response(),
            BookOutcome::Differs => {
                let message = "this Idempotency-Key was used with another body";
                error_response(StatusCode::UNPROCESSABLE_ENTITY, "IDEMPOTENCY_KEY_REUSED", message)
            }
        }
    };
    with_fault(&core, &caller, fault, done).await
}

#[derive(Debug, Deserialize)]
struct JobStatusQuery {
    booking_id: String,
}

async fn job_status(
    State(core): State<Arc<SimulationCore>>,
    ConnectInfo(caller): ConnectInfo<ConnectedCaller>,
    query: Result<Query<JobStatusQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let Ok(Query(JobStatusQuery { booking_id })) = query else {
        return error_response(StatusCode::BAD_REQUEST, "MALFORMED", "expected /job-status?booking_id=B-...");
    };
    core.lock_state().counters.polls += 1;
    let Some((number, fault)) = fault_about(&core, &booking_id, BookingOperation::Poll) else { return no_such_path() };
    let done = || {
        core.lock_state()
            .ledger
            .find_booking(number)
            .map_or_else(no_such_path, |booking| status_response(number, booking))
    };
    with_fault(&core, &caller, fault, done).await
}

async fn cancel_booking(
    State(core): State<Arc<SimulationCore>>,
    ConnectInfo(caller): ConnectInfo<ConnectedCaller>,
    Path(id): Path<String>,
) -> Response {
    let Some((number, fault)) = fault_about(&core, &id, BookingOperation::Cancel) else { return no_such_path() };
    let done = || {
        let cancelled = {
            let state = &mut *core.lock_state();
            let cancelled = state.ledger.cancel_booking(number, Instant::now());
            match cancelled {
                CancelOutcome::Now => state.counters.cancels += 1,
                CancelOutcome::TripInProgress => state.counters.cancels_too_late += 1,
                CancelOutcome::Already | CancelOutcome::Unknown => {}
            }
            cancelled
        };
        match cancelled {
            CancelOutcome::Unknown => return no_such_path(),
            CancelOutcome::TripInProgress => {
                return error_response(StatusCode::CONFLICT, "TRIP_IN_PROGRESS", "a passenger is or was aboard");
            }
            CancelOutcome::Now => core.follow_up_event(number, BookingEvent::BookingCancelled),
            CancelOutcome::Already => {}
        }
        Json(json!({ "booking_id": fate::booking_id(number), "status": "cancelled" })).into_response()
    };
    with_fault(&core, &caller, fault, done).await
}

/// Body of `PUT /bookings/{booking_id}/details`.
#[derive(Debug, Deserialize)]
struct DetailsRequest {
    pickup: BookingPickup,
    dropoff: Option<BookingPickup>,
    contact: Option<Value>,
}

async fn set_details(
    State(core): State<Arc<SimulationCore>>,
    ConnectInfo(caller): ConnectInfo<ConnectedCaller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let request: DetailsRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(e) => return error_response(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", &e.to_string()),
    };
    let Some((number, fault)) = fault_about(&core, &id, BookingOperation::Details) else { return no_such_path() };
    let details = json!({ "pickup": request.pickup, "dropoff": request.dropoff, "contact": request.contact });
    let done = || {
        let state = &mut *core.lock_state();
        if !state.ledger.set_details(number, details) {
            return error_response(StatusCode::CONFLICT, "TRIP_IN_PROGRESS", "the booking is picked up, or has ended");
        }
        state.counters.details += 1;
        Json(json!({ "booking_id": fate::booking_id(number) })).into_response()
    };
    with_fault(&core, &caller, fault, done).await
}

/// Returns the booking's number and the fault of this request. `None` if the booking does not exist.
fn fault_about(
    core: &SimulationCore,
    booking_id: &str,
    operation: BookingOperation,
) -> Option<(u64, Option<RequestFault>)> {
    let number = fate::parse_booking_id(booking_id)?;
    let state = &mut *core.lock_state();
    let (reference, nth) = state.ledger.count_request(number, operation)?;
    Some((number, RequestFault::draw_fault(core.seed, &reference, operation, nth, &state.knobs)))
}

/// Answers a request, with its effect and answer changed by the fault.
async fn with_fault(
    core: &SimulationCore,
    caller: &ConnectedCaller,
    fault: Option<RequestFault>,
    done: impl FnOnce() -> Response,
) -> Response {
    let Some(fault) = fault else { return done() };
    {
        let counters = &mut core.lock_state().counters;
        *match fault {
            RequestFault::Error500 => &mut counters.errors_500,
            RequestFault::Error503 => &mut counters.errors_503,
            RequestFault::Hang => &mut counters.hangs,
            RequestFault::Reset => &mut counters.resets,
            RequestFault::LostAnswer => &mut counters.lost_answers,
        } += 1;
    }
    match fault {
        RequestFault::Error500 => {
            return error_response(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "something broke");
        }
        RequestFault::Error503 => return error_response(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "too busy"),
        RequestFault::Hang => {
            let hang = core.current_knobs().hang_duration;
            tokio::time::sleep(hang).await;
        }
        RequestFault::Reset => {}
        RequestFault::LostAnswer => drop(done()),
    }
    match caller.cut_connection().await {}
}

pub(super) fn status_response(number: u64, booking: &SimulatedBooking) -> Response {
    Json(status_json(number, booking)).into_response()
}

pub(super) fn status_json(number: u64, booking: &SimulatedBooking) -> Value {
    json!({
        "booking_id": fate::booking_id(number),
        "job_id": booking.job_id(),
        "status": booking.status.name(),
        "driver_id": booking.driver_id(),
    })
}

fn no_such_path() -> Response {
    error_response(StatusCode::NOT_FOUND, "BOOKING_NOT_FOUND", "no such booking")
}
