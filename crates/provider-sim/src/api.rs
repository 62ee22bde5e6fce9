//! HTTP API of the provider, and its faults.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{ConnectInfo, DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode, header::AUTHORIZATION, header::CONTENT_TYPE, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::post,
};
use chrono::{DateTime, Utc};
use partner_sim::{lines::ConnectedCaller, seeded_rng::ChoiceSeed, serving::error_response};
use serde::Deserialize;
use serde_json::json;

use super::{
    core::{CallEffect, ProviderCore, ReceivedCall},
    fate::CallFault,
    judge::CallParty,
    knobs::ProviderKnobs,
};

const MAX_BODY_BYTES: usize = 16 * 1024;
const LONGEST_NAME: usize = 255;
/// Length of the padding in an oversized answer.
const OVERSIZE: usize = 1024 * 1024;
/// Maximum lateness of the runtime's timer.
const TIMER_STEP: Duration = Duration::from_millis(2);

pub(super) fn call_routes(core: &Arc<ProviderCore>) -> Router {
    Router::new()
        .route("/servers/{server}/start_transaction", post(start_transaction))
        .route("/servers/{server}/status", post(read_status))
        .route("/servers/{server}/otp", post(submit_otp))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(core.clone())
}

/// Body of every call. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct CallBody {
    trx_id: String,
    binding_id: String,
    account_id: String,
    cycle: i64,
    #[serde(default)]
    otp: Option<String>,
}

async fn start_transaction(
    core: State<Arc<ProviderCore>>,
    caller: ConnectInfo<ConnectedCaller>,
    server: Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve_call(core, caller, server, &headers, &body, ProviderCore::begin_transaction, true).await
}

async fn read_status(
    core: State<Arc<ProviderCore>>,
    caller: ConnectInfo<ConnectedCaller>,
    server: Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve_call(core, caller, server, &headers, &body, ProviderCore::read_transaction, false).await
}

async fn submit_otp(
    core: State<Arc<ProviderCore>>,
    caller: ConnectInfo<ConnectedCaller>,
    server: Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve_call(core, caller, server, &headers, &body, ProviderCore::try_otp, true).await
}

/// Handles one call. The effect takes place immediately, so it happens even if the caller gives up early; only the
/// answer is delayed.
async fn serve_call(
    State(core): State<Arc<ProviderCore>>,
    ConnectInfo(caller): ConnectInfo<ConnectedCaller>,
    Path(server): Path<String>,
    headers: &HeaderMap,
    body: &[u8],
    take_effect: fn(&ProviderCore, &ReceivedCall) -> CallEffect,
    needs_key: bool,
) -> Response {
    if let Some(refusal) = refuse_call(&core, headers) {
        return refusal;
    }
    let (call, call_until) = match read_call(server, headers, body, needs_key) {
        Ok(read) => read,
        Err((status, code, message)) => return error_response(status, code, &message),
    };
    let left = (call_until - Utc::now()).to_std().unwrap_or_default();
    let Some(open) = core.take_call(&call.party, left.is_zero()) else {
        let message = "Call-Until has passed, or a newer fence of this binding was seen";
        return error_response(StatusCode::CONFLICT, "LATE_CALL", message);
    };
    let knobs = core.current_knobs();
    let fault = CallFault::draw_fault(core.seed, &call.trx_id, call.party.fence, &knobs);
    count_fault(&core, fault);
    let effect = fault.is_none_or(CallFault::takes_effect).then(|| take_effect(&core, &call));
    let latency = knobs.latency.draw_duration(&mut rand::rng());
    let is_never = matches!(fault, Some(CallFault::Hang));
    if is_never || latency >= left {
        tokio::time::sleep(left).await;
        core.lock_state().faults.cut_by_call_until += 1;
        drop(open);
        match caller.cut_connection().await {}
    }
    wait_exactly(latency).await;
    if fault == Some(CallFault::LostAnswer) {
        drop(open);
        match caller.cut_connection().await {}
    }
    // The call is closed before the answer is written, because the caller may call again as soon as it has the answer.
    drop(open);
    write_answer(&core, &call, fault, effect, &knobs)
}

/// Waits precisely. The runtime's timer ends up to 2 ms late, which is visible in a mean over thousands of calls, so a
/// blocking thread waits for the rest.
async fn wait_exactly(latency: Duration) {
    let until = Instant::now() + latency;
    tokio::time::sleep(latency.saturating_sub(TIMER_STEP)).await;
    let rest = until.saturating_duration_since(Instant::now());
    if !rest.is_zero() {
        // The task can be lost only when the process ends.
        let _ = tokio::task::spawn_blocking(move || std::thread::sleep(rest)).await;
    }
}

/// Returns the error answer for a call with a wrong key, and for any call while the provider is down.
fn refuse_call(core: &ProviderCore, headers: &HeaderMap) -> Option<Response> {
    let key = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
    let state = &mut *core.lock_state();
    if state.knobs.down {
        state.faults.unavailable += 1;
        return Some(error_response(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "we are down"));
    }
    if key != Some(core.api_key.as_str()) || state.knobs.reject_keys {
        state.faults.unauthorized += 1;
        let message = "Authorization: Bearer needs a valid key";
        return Some(error_response(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message));
    }
    None
}

type CallProblem = (StatusCode, &'static str, String);

fn read_call(
    server: String,
    headers: &HeaderMap,
    body: &[u8],
    needs_key: bool,
) -> Result<(ReceivedCall, DateTime<Utc>), CallProblem> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let malformed = |message: &str| (StatusCode::BAD_REQUEST, "MALFORMED", message.to_owned());
    let fence = header("fence").parse().map_err(|_| malformed("the header Fence must be a whole number"))?;
    let call_until = DateTime::parse_from_rfc3339(header("call-until"))
        .map_err(|_| malformed("the header Call-Until must be a time of RFC 3339"))?;
    let key = header("idempotency-key");
    if needs_key && !(1..=LONGEST_NAME).contains(&key.len()) {
        return Err(malformed("the header Idempotency-Key must have 1 to 255 characters"));
    }
    let invalid = |message: String| (StatusCode::UNPROCESSABLE_ENTITY, "INVALID", message);
    let body: CallBody = serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
    let names = [&server, &body.trx_id, &body.binding_id, &body.account_id];
    if names.iter().any(|name| !(1..=LONGEST_NAME).contains(&name.len())) || body.cycle < 1 {
        return Err(invalid("ids must have 1 to 255 characters, and cycles count from 1".to_owned()));
    }
    let content = [&body.trx_id, &body.binding_id, &body.account_id, body.otp.as_deref().unwrap_or_default()];
    let call = ReceivedCall {
        fingerprint: ChoiceSeed::new(0, &content).random_number(),
        key: key.to_owned(),
        cycle: body.cycle,
        otp: body.otp,
        party: CallParty { server, account: body.account_id, binding: body.binding_id, fence },
        trx_id: body.trx_id,
    };
    Ok((call, call_until.to_utc()))
}

fn count_fault(core: &ProviderCore, fault: Option<CallFault>) {
    let faults = &mut core.lock_state().faults;
    let Some(fault) = fault else { return };
    *match fault {
        CallFault::Error429 => &mut faults.throttled,
        CallFault::Error500 => &mut faults.errors_500,
        CallFault::Hang => &mut faults.hangs,
        CallFault::LostAnswer => &mut faults.lost_answers,
        CallFault::NonJson => &mut faults.non_json,
        CallFault::Oversized => &mut faults.oversized,
        CallFault::UnknownStatus => &mut faults.unknown_status,
    } += 1;
}

fn write_answer(
    core: &ProviderCore,
    call: &ReceivedCall,
    fault: Option<CallFault>,
    effect: Option<CallEffect>,
    knobs: &ProviderKnobs,
) -> Response {
    match fault {
        Some(CallFault::Error429) => {
            let answer = error_response(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", "see Retry-After");
            return ([(RETRY_AFTER, whole_seconds(knobs.retry_after))], answer).into_response();
        }
        Some(CallFault::NonJson) => {
            return ([(CONTENT_TYPE, "text/html")], "<html>all is well</html>").into_response();
        }
        Some(CallFault::Oversized) => {
            return Json(json!({ "trx_id": call.trx_id, "status": "SUKSES", "note": "x".repeat(OVERSIZE) }))
                .into_response();
        }
        Some(CallFault::UnknownStatus) => {
            return Json(json!({ "trx_id": call.trx_id, "status": "MENUNGGU" })).into_response();
        }
        Some(CallFault::Error500 | CallFault::Hang | CallFault::LostAnswer) | None => {}
    }
    match effect {
        None => error_response(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "something broke"),
        Some(CallEffect::UnknownTransaction) => {
            error_response(StatusCode::NOT_FOUND, "UNKNOWN_TRANSACTION", "no such transaction of this account")
        }
        Some(CallEffect::KeyReused) => {
            let message = "this key was used for a transaction or OTP with other content";
            error_response(StatusCode::UNPROCESSABLE_ENTITY, "IDEMPOTENCY_KEY_REUSED", message)
        }
        Some(CallEffect::Standing((status, reason))) => {
            let number = ChoiceSeed::new(core.seed, &["reference", &call.trx_id]).random_number();
            Json(json!({
                "trx_id": call.trx_id, "status": status, "reason": reason, "provider_ref": format!("P-{number:016x}"),
            }))
            .into_response()
        }
    }
}

/// Formats a wait in whole seconds, at least one, as HTTP requires.
fn whole_seconds(wait: Duration) -> String {
    format!("{:.0}", wait.as_secs_f64().ceil().max(1.0))
}
