//! /healthz: the process lives. /readyz: it can do its work.

use axum::{Json, extract::State, http::StatusCode};
use serde_json::{Value, json};

use crate::{app::App, worker::gate};

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let (postgres, redis) = tokio::join!(gate::is_ready(&app.db), app.store.ping());
    let ready = postgres && redis.is_ok();
    let word = |ok: bool| if ok { "ok" } else { "unreachable" };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": ready, "postgres": word(postgres), "redis": word(redis.is_ok()) })))
}
