//! Health of a process: /healthz tells whether it is alive, /readyz whether it can do its work.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{
    error::{ErrorReply, Problem, codes},
    openapi::ProbeErrors,
};
use app::App;
use foundation::db::readiness::PostgresState;

/// Timeout for Redis. Load balancers often wait one second, and a `serve` process must answer in time while Redis is
/// unresponsive.
const REDIS_TIMEOUT: Duration = Duration::from_millis(500);

/// Kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// Answers requests. They need only Postgres, so the process continues without Redis.
    Serve,
    /// Runs jobs, which are in Redis.
    Work,
}

/// Returns 200 while the process is alive.
#[utoipa::path(get, path = "/healthz", operation_id = "check_health", tag = "health", security(()),
    extensions(("x-audience" = json!("operator"))),
    responses((status = 200, description = "the process is alive", body = String, example = "ok\n"), ProbeErrors))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness of this process.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReadinessReport {
    ready: bool,
    /// Whether the process is ready without Redis: orders are taken and drivers accept offers, but new orders are
    /// offered only once Redis is back.
    degraded: bool,
    /// `ok`, `read_only` or `unreachable`.
    postgres: &'static str,
    /// `ok` or `unreachable`.
    redis: &'static str,
}

/// Returns whether the process can do its work.
///
/// The state of Postgres is at most 0.5 s old. Without Redis the process is ready and `degraded`: it takes orders, and
/// drivers accept existing offers. New orders are offered once Redis is back.
#[utoipa::path(get, path = "/readyz", operation_id = "check_readiness", tag = "health", security(()),
    extensions(("x-audience" = json!("operator"))),
    responses(
        (status = 200, description = "the process is ready", body = ReadinessReport,
         example = json!({ "ready": true, "degraded": false, "postgres": "ok", "redis": "ok" })),
        ProbeErrors,
        (status = 503, description = "not ready: the report, followed by the members of an error (NOT_READY)",
         body = ErrorReply, content_type = "application/problem+json",
         headers(("Retry-After" = u64, description = "seconds to wait")),
         example = json!({ "ready": false, "degraded": false, "postgres": "read_only", "redis": "ok",
                           "error_code": "NOT_READY", "message": "this process cannot do its work now; try again",
                           "type": "/errors/NOT_READY", "title": "The process is not ready", "status": 503,
                           "detail": "this process cannot do its work now; try again", "instance": "/readyz",
                           "request_id": "019ba1c0-0000-7000-8000-000000000002" })),
    ))]
pub(super) async fn readyz(State(app): State<App>) -> Response {
    let redis = tokio::time::timeout(REDIS_TIMEOUT, app.core.store.ping());
    let (postgres, redis) = tokio::join!(app.core.readiness.postgres_state(), redis);
    report_readiness(ProcessKind::Serve, postgres, redis.is_ok_and(|answer| answer.is_ok()))
}

/// Returns whether a worker can do its work, on its admin port. A worker needs Redis.
pub(super) async fn worker_readyz(State(app): State<App>) -> Response {
    let (postgres, redis) = tokio::join!(app.core.readiness.postgres_state(), app.core.store.ping());
    report_readiness(ProcessKind::Work, postgres, redis.is_ok())
}

fn report_readiness(process: ProcessKind, postgres: PostgresState, has_redis: bool) -> Response {
    let ready = postgres == PostgresState::Writable && (has_redis || process == ProcessKind::Serve);
    let report = ReadinessReport {
        ready,
        degraded: ready && !has_redis,
        postgres: postgres.as_str(),
        redis: if has_redis { "ok" } else { "unreachable" },
    };
    if ready {
        return Json(report).into_response();
    }
    let message = "this process cannot do its work now; try again";
    let problem = Problem::new(&codes::NOT_READY, message).beside(json!(report));
    let mut answer = problem.into_response();
    // As long as the state of Postgres is cached. A load balancer must not wait longer.
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}
