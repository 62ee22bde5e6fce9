//! /healthz: the process lives. /readyz: it can do its work.

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

/// Load balancers often wait for a second. A process that answers requests while Redis hangs must answer them in time, too.
const REDIS_TIMEOUT: Duration = Duration::from_millis(500);

/// What a process is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// Answers requests. Postgres alone decides on them, so it goes on without Redis.
    Serve,
    /// Performs jobs, which lie in Redis.
    Work,
}

/// Says that the process lives.
#[utoipa::path(get, path = "/healthz", operation_id = "check_health", tag = "health", security(()),
    responses((status = 200, description = "yes", body = String, example = "ok\n"), ProbeErrors))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether this process can do its work.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReadinessReport {
    ready: bool,
    /// ready without Redis: orders are taken and drivers accept, and new orders are offered once it is back
    degraded: bool,
    /// ok, read_only or unreachable
    postgres: &'static str,
    /// ok or unreachable
    redis: &'static str,
}

/// Says whether the process can do its work.
///
/// What it says of Postgres is half a second old at most. Without Redis the process is ready and degraded: it takes orders, drivers
/// accept what they were offered, and new orders are offered once Redis is back.
#[utoipa::path(get, path = "/readyz", operation_id = "check_readiness", tag = "health", security(()),
    responses(
        (status = 200, description = "yes", body = ReadinessReport,
         example = json!({ "ready": true, "degraded": false, "postgres": "ok", "redis": "ok" })),
        ProbeErrors,
        (status = 503, description = "no: the members of an error stand behind those of the report (NOT_READY)",
         body = ErrorReply, content_type = "application/problem+json",
         headers(("Retry-After" = u64, description = "seconds to wait")),
         example = json!({ "ready": false, "degraded": false, "postgres": "read_only", "redis": "ok",
                           "error_code": "NOT_READY", "message": "this process cannot do its work now; ask again",
                           "type": "/errors/NOT_READY", "title": "The process is not ready", "status": 503,
                           "detail": "this process cannot do its work now; ask again", "instance": "/readyz",
                           "request_id": "019ba1c0-0000-7000-8000-000000000002" })),
    ))]
pub(super) async fn readyz(State(app): State<App>) -> Response {
    let redis = tokio::time::timeout(REDIS_TIMEOUT, app.core.store.ping());
    let (postgres, redis) = tokio::join!(app.core.readiness.postgres_state(), redis);
    report_readiness(ProcessKind::Serve, postgres, redis.is_ok_and(|answer| answer.is_ok()))
}

/// Says whether a worker can do its work, on its admin port: not without Redis.
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
    let message = "this process cannot do its work now; ask again";
    let problem = Problem::new(&codes::NOT_READY, message).beside(json!(report));
    let mut answer = problem.into_response();
    // As long as what it says of Postgres holds. A load balancer makes no client wait longer.
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}
