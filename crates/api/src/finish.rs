//! A request that may change something runs to its end, whatever its client does.
//!
//! hyper drops the future of a handler as soon as the client hangs up. Dropped between two statements, a handler leaves half of
//! its work undone; dropped inside one, it may leave a connection inside a transaction. So each such request runs on a task of
//! its own, body included. The server waits for these tasks when it stops. Reads are dropped: nothing is left to finish.
//!
//! Every request ends: one that waits for a server that vanished without a word is answered 503 after [`DEADLINE`]. Every error
//! leaves here with the path and the id of its request.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    http::HeaderValue,
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{
    error::{self, ApiError},
    observe::{REQUEST_ID, request_id},
};

/// The longest wait for an offer is 50 s, a body may take 30 s, and a statement 7 s.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// The requests of a server, and what each may take.
#[derive(Debug, Clone)]
pub(super) struct RunningRequests {
    pub(super) running: TaskTracker,
    pub(super) deadline: Duration,
}

/// Middleware: runs the request on a task that `requests` keeps track of. A handler that panics is answered 500, one that does
/// not end 503; both answers carry the id that the request has in the logs.
pub(super) async fn run_to_end(State(requests): State<RunningRequests>, mut request: Request, next: Next) -> Response {
    let is_read = request.method().is_safe();
    let path = request.uri().path().to_owned();
    let id = request_id(request.headers());
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let late = id.clone();
    let in_time = async move {
        tokio::time::timeout(requests.deadline, next.run(request)).await.unwrap_or_else(|_| {
            tracing::error!(request.id = ?late, "A request was given up: a server does not answer.");
            error_response(ApiError::NoAnswer, late)
        })
    };
    let running = requests.running.spawn(in_time);
    let ended = if is_read {
        // Nothing is left to finish: dropped with its client.
        AbortOnDropHandle::new(running).await
    } else {
        running.await
    };
    let answer = ended.unwrap_or_else(|error| {
        tracing::error!(request.id = ?id, %error, "The handler of a request panicked.");
        error_response(ApiError::Panicked, id.clone())
    });
    error::name_request(answer, &path, &id)
}

fn error_response(error: ApiError, id: HeaderValue) -> Response {
    let mut answer = error.into_response();
    answer.headers_mut().insert(REQUEST_ID, id);
    answer
}
