//! What a partner answers: docs/PARTNER.md.

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
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    core::{Core, Refusal},
    fate::{self, Event, Fate},
    faults::Fault,
    ledger::{Booked, Booking, Cancelled, Full, Operation},
    lines::Caller,
};
use crate::seeded_rng::ChoiceSeed;

const MAX_BODY_BYTES: usize = 16 * 1024;
const LONGEST_KEY: usize = 255;

pub(super) fn routes(core: &Arc<Core>) -> Router {
    Router::new()
        .route("/bookings", post(make_booking))
        .route("/bookings/{booking_id}/cancel", post(cancel_booking))
        .route("/job-status", get(job_status))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .route_layer(middleware::from_fn_with_state(core.clone(), meet_faults))
        .with_state(core.clone())
}

/// What every request passes first.
async fn meet_faults(State(core): State<Arc<Core>>, request: Request, next: Next) -> Response {
    let _running = core.begin();
    let key = request.headers().get(AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
    if let Err(refusal) = core.admit(key) {
        return match refusal {
            Refusal::Unavailable => error(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "we are down"),
            Refusal::Unauthorized => {
                error(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "Authorization: Bearer needs a valid key")
            }
            Refusal::TooMany(wait) => {
                let answer = error(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", "too many requests; see Retry-After");
                ([(RETRY_AFTER, core.retry_after(wait))], answer).into_response()
            }
        };
    }
    // Latency is the network's: it hangs on no booking.
    let latency = core.knobs().latency.draw(&mut rand::rng());
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    next.run(request).await
}

/// The body of `POST /bookings`. Fields it does not know are left alone, as by any partner.
#[derive(Debug, Serialize, Deserialize)]
struct BookingRequest {
    reference: String,
    order_id: String,
    attempt: u32,
    service_type: String,
    pickup: Pickup,
}

#[derive(Debug, Serialize, Deserialize)]
struct Pickup {
    latitude: f64,
    longitude: f64,
}

impl BookingRequest {
    fn check(&self, key: &str) -> Result<(), &'static str> {
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

    /// The same for the same request, however it is written.
    fn fingerprint(&self) -> u64 {
        let text = serde_json::to_string(self).unwrap_or_default();
        ChoiceSeed::new(0, &[&text]).number()
    }
}

async fn make_booking(
    State(core): State<Arc<Core>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    if key.is_empty() || key.len() > LONGEST_KEY {
        let message = "the header Idempotency-Key must have 1 to 255 characters";
        return error(StatusCode::BAD_REQUEST, "IDEMPOTENCY_KEY_MISSING", message);
    }
    let request: BookingRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(e) => return error(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", &e.to_string()),
    };
    if let Err(message) = request.check(key) {
        return error(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", message);
    }
    let number = fate::booking_number(core.seed, key);
    let asked = core.state().ledger.ask_to_book(number);
    let (nth, first) = match asked {
        Ok(asked) => asked,
        Err(Full) => {
            return error(StatusCode::SERVICE_UNAVAILABLE, "FULL", "too many bookings are open or not forgotten yet");
        }
    };
    if first {
        core.forget_later(number);
    }
    let fault = Fault::draw(core.seed, key, Operation::Book, nth, &core.knobs());
    let done = || {
        let booked = {
            let state = &mut *core.state();
            let draw = || Fate::draw(core.seed, key, &state.knobs);
            let booked = state.ledger.book(number, key, request.fingerprint(), Instant::now(), draw);
            match booked {
                Booked::New => state.counters.bookings += 1,
                Booked::Again => state.counters.bookings_repeated += 1,
                Booked::Differs => {}
            }
            booked
        };
        match booked {
            Booked::New => {
                core.schedule_step(number);
                (StatusCode::CREATED, Json(json!({ "booking_id": booking_id(number) }))).into_response()
            }
            Booked::Again => Json(json!({ "booking_id": booking_id(number) })).into_response(),
            Booked::Differs => {
                let message = "this Idempotency-Key was used with another body";
                error(StatusCode::UNPROCESSABLE_ENTITY, "IDEMPOTENCY_KEY_REUSED", message)
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
    State(core): State<Arc<Core>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    query: Result<Query<JobStatusQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let Ok(Query(JobStatusQuery { booking_id })) = query else {
        return error(StatusCode::BAD_REQUEST, "MALFORMED", "ask as /job-status?booking_id=B-...");
    };
    core.state().counters.polls += 1;
    let Some((number, fault)) = fault_about(&core, &booking_id, Operation::Poll) else { return no_such_path() };
    let done = || core.state().ledger.booking(number).map_or_else(no_such_path, |booking| status(number, booking));
    with_fault(&core, &caller, fault, done).await
}

async fn cancel_booking(
    State(core): State<Arc<Core>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(id): Path<String>,
) -> Response {
    let Some((number, fault)) = fault_about(&core, &id, Operation::Cancel) else { return no_such_path() };
    let done = || {
        let cancelled = {
            let state = &mut *core.state();
            let cancelled = state.ledger.cancel(number, Instant::now());
            match cancelled {
                Cancelled::Now => state.counters.cancels += 1,
                Cancelled::TripInProgress => state.counters.cancels_too_late += 1,
                Cancelled::Already | Cancelled::Unknown => {}
            }
            cancelled
        };
        match cancelled {
            Cancelled::Unknown => return no_such_path(),
            Cancelled::TripInProgress => {
                return error(StatusCode::CONFLICT, "TRIP_IN_PROGRESS", "a passenger is or was aboard");
            }
            Cancelled::Now => core.happened(number, Event::BookingCancelled),
            Cancelled::Already => {}
        }
        Json(json!({ "booking_id": booking_id(number), "status": "cancelled" })).into_response()
    };
    with_fault(&core, &caller, fault, done).await
}

/// What goes wrong with this question, unless there is no such booking.
fn fault_about(core: &Core, booking_id: &str, operation: Operation) -> Option<(u64, Option<Fault>)> {
    let number = booking_number(booking_id)?;
    let state = &mut *core.state();
    let (reference, nth) = state.ledger.ask(number, operation)?;
    Some((number, Fault::draw(core.seed, &reference, operation, nth, &state.knobs)))
}

/// Does it and answers, as far as the fault lets it.
async fn with_fault(core: &Core, caller: &Caller, fault: Option<Fault>, done: impl FnOnce() -> Response) -> Response {
    let Some(fault) = fault else { return done() };
    {
        let counters = &mut core.state().counters;
        *match fault {
            Fault::Error500 => &mut counters.errors_500,
            Fault::Error503 => &mut counters.errors_503,
            Fault::Hang => &mut counters.hangs,
            Fault::Reset => &mut counters.resets,
            Fault::LostAnswer => &mut counters.lost_answers,
        } += 1;
    }
    match fault {
        Fault::Error500 => return error(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "something broke"),
        Fault::Error503 => return error(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "too busy"),
        Fault::Hang => {
            let hang = core.knobs().hang_duration;
            tokio::time::sleep(hang).await;
        }
        Fault::Reset => {}
        Fault::LostAnswer => drop(done()),
    }
    match caller.cut().await {}
}

pub(super) fn status(number: u64, booking: &Booking) -> Response {
    Json(json!({
        "booking_id": booking_id(number),
        "job_id": booking.job_id(),
        "status": booking.status.name(),
        "driver_id": booking.driver_id(),
    }))
    .into_response()
}

fn no_such_path() -> Response {
    error(StatusCode::NOT_FOUND, "BOOKING_NOT_FOUND", "no such booking")
}

pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({ "error_code": code, "message": message }))).into_response()
}

pub(super) fn booking_id(number: u64) -> String {
    format!("B-{number:016x}")
}

pub(super) fn booking_number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix("B-").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}
