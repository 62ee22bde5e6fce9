//! /healthz: the process lives. /readyz: it can do its work.

use axum::{Json, extract::State, http::StatusCode};
use serde_json::{Value, json};

use dispatch::{app::App, db::readiness::PostgresState};

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let (postgres, redis) = tokio::join!(app.readiness.postgres_state(), app.store.ping());
    let ready = postgres == PostgresState::Writable && redis.is_ok();
    let redis = if redis.is_ok() { "ok" } else { "unreachable" };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": ready, "postgres": postgres.as_str(), "redis": redis })))
}
