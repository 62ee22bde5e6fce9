//! /healthz: the process lives. /readyz: it can do its work.

use axum::{Json, extract::State, http::StatusCode};
use dispatch::{app::App, db::readiness::PostgresState};
use serde::Serialize;
use utoipa::ToSchema;

use super::openapi::ProbeErrors;

/// Says that the process lives.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "yes", body = String, example = "ok\n"), ProbeErrors))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether this process can do its work.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReadinessReport {
    ready: bool,
    /// ok, read_only or unreachable
    postgres: &'static str,
    /// ok or unreachable
    redis: &'static str,
}

/// Says whether the process can do its work.
///
/// The answer is half a second old at most.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "yes", body = ReadinessReport,
         example = json!({ "ready": true, "postgres": "ok", "redis": "ok" })),
        ProbeErrors,
        (status = 503, description = "no", body = ReadinessReport,
         example = json!({ "ready": false, "postgres": "read_only", "redis": "ok" })),
    ))]
pub(super) async fn readyz(State(app): State<App>) -> (StatusCode, Json<ReadinessReport>) {
    let (postgres, redis) = tokio::join!(app.readiness.postgres_state(), app.store.ping());
    let ready = postgres == PostgresState::Writable && redis.is_ok();
    let redis = if redis.is_ok() { "ok" } else { "unreachable" };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ReadinessReport { ready, postgres: postgres.as_str(), redis }))
}
