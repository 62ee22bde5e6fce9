//! Shared HTTP parts of the simulations: error answers, the loopback check of `/_sim`, and the answer for unknown
//! paths.

use axum::{
    Json, Router,
    extract::{ConnectInfo, Request},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::lines::{ConnectedCaller, CuttableListener};

/// Serves `router` until the listener ends. `simulated` names the simulation in the log.
pub async fn serve_lines(lines: CuttableListener, router: Router, simulated: &'static str) {
    let router = router
        .fallback(|| async { error_response(StatusCode::NOT_FOUND, "NOT_FOUND", "no such path") })
        .method_not_allowed_fallback(|| async {
            error_response(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "method not allowed")
        });
    if let Err(error) = axum::serve(lines, router.into_make_service_with_connect_info::<ConnectedCaller>()).await {
        tracing::error!(%error, "The simulated {simulated} stopped serving.");
    }
}

/// Middleware of `/_sim`. Refuses callers from other machines.
pub async fn admit_loopback(
    ConnectInfo(caller): ConnectInfo<ConnectedCaller>,
    request: Request,
    next: Next,
) -> Response {
    if caller.address.ip().is_loopback() {
        next.run(request).await
    } else {
        error_response(StatusCode::FORBIDDEN, "LOOPBACK_ONLY", "/_sim answers only callers on this machine")
    }
}

pub fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({ "error_code": code, "message": message }))).into_response()
}
