//! A request that may change something runs to its end, whatever its client does.
//!
//! hyper drops the future of a handler as soon as the client hangs up. Dropped between two statements, a handler leaves half of
//! its work undone; dropped inside one, it may leave a connection inside a transaction. So each such request runs on a task of
//! its own, body included. The server waits for these tasks when it stops. Reads are dropped: nothing is left to finish.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio_util::task::TaskTracker;

use super::error::ApiError;

/// Middleware: runs the request on a task that `running` keeps track of. A handler that panics is answered 500.
pub(super) async fn run_to_end(State(running): State<TaskTracker>, request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    match running.spawn(next.run(request)).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "The handler of a request panicked.");
            ApiError::Panicked.into_response()
        }
    }
}
