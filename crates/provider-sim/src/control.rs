//! Control API under `/_sim`, for callers on this machine: the judge's counters, balances, and knobs.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State, rejection::JsonRejection},
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use partner_sim::serving::{admit_loopback, error_response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    core::{FaultCounters, ProviderCore},
    judge::JudgeCounters,
    knobs::ProviderKnobs,
    ledger::LedgerCounters,
};

pub(super) fn control_routes(core: &Arc<ProviderCore>) -> Router {
    Router::new()
        .route("/_sim/state", get(show_state))
        .route("/_sim/judge/reset", post(reset_judge))
        .route("/_sim/accounts/{account}", get(show_balance).post(set_balance))
        .route("/_sim/knobs", get(show_knobs).post(turn_knobs))
        .route_layer(middleware::from_fn(admit_loopback))
        .with_state(core.clone())
}

/// State of the simulation.
#[derive(Debug, Clone, Serialize)]
pub struct ProviderReport {
    #[serde(flatten)]
    pub judge: JudgeCounters,
    /// Calls that are open now.
    pub open: u64,
    #[serde(flatten)]
    pub transactions: LedgerCounters,
    /// Transactions in memory.
    pub known_transactions: usize,
    #[serde(flatten)]
    pub faults: FaultCounters,
}

pub(super) fn provider_report(core: &ProviderCore) -> ProviderReport {
    let state = core.lock_state();
    ProviderReport {
        judge: state.judge.counters().clone(),
        open: state.judge.open_calls(),
        transactions: state.ledger.counters.clone(),
        known_transactions: state.ledger.known_transactions(),
        faults: state.faults.clone(),
    }
}

async fn show_state(State(core): State<Arc<ProviderCore>>) -> Json<ProviderReport> {
    Json(provider_report(&core))
}

/// Resets the judge's counters, for example after a warm-up. Answers with the counts before the reset.
async fn reset_judge(State(core): State<Arc<ProviderCore>>) -> Json<ProviderReport> {
    let report = provider_report(&core);
    core.lock_state().judge.reset_counters();
    Json(report)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BalanceBody {
    balance: u64,
}

async fn show_balance(State(core): State<Arc<ProviderCore>>, Path(account): Path<String>) -> Json<Value> {
    let state = core.lock_state();
    Json(json!({ "account_id": account, "balance": state.ledger.balance_of(&account, state.knobs.balance) }))
}

async fn set_balance(
    State(core): State<Arc<ProviderCore>>,
    Path(account): Path<String>,
    body: Result<Json<BalanceBody>, JsonRejection>,
) -> Response {
    match body {
        Ok(Json(BalanceBody { balance })) => {
            core.lock_state().ledger.set_balance(&account, balance);
            show_balance(State(core), Path(account)).await.into_response()
        }
        Err(rejection) => error_response(StatusCode::BAD_REQUEST, "MALFORMED", &rejection.body_text()),
    }
}

async fn show_knobs(State(core): State<Arc<ProviderCore>>) -> Json<ProviderKnobs> {
    Json((*core.current_knobs()).clone())
}

/// Changes the knobs in the body. Answers with all knobs.
async fn turn_knobs(
    State(core): State<Arc<ProviderCore>>,
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
