//! A request that may change something runs to its end, whatever its client does.
//!
//! hyper drops the future of a handler as soon as the client hangs up. Dropped between two statements, a handler leaves half of
//! its work undone; dropped inside one, it may leave a connection inside a transaction. So each such request that waits for
//! anything runs on a task of its own, body included. The server waits for these tasks when it stops. Reads are dropped: nothing
//! is left to finish. What is answered without a wait, such as an accept that is too late, needs no task: it does not stand in
//! line with all others once more.
//!
//! Every request ends: one that waits for a server that vanished without a word is answered 503 after [`DEADLINE`]. Every error
//! leaves here with the path and the id of its request.

use std::{future::poll_fn, panic::AssertUnwindSafe, task::Poll, time::Duration};

use axum::{
    extract::{Request, State},
    http::HeaderValue,
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
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
    let mut in_time = Box::pin(AssertUnwindSafe(in_time).catch_unwind());
    // The first step is taken here; nothing can drop it between this and the task.
    let ended = match poll_fn(|context| Poll::Ready(in_time.as_mut().poll(context))).await {
        Poll::Ready(ended) => ended,
        Poll::Pending => {
            let running = requests.running.spawn(in_time);
            // Nothing is left to finish of a read: dropped with its client.
            let ended = if is_read { AbortOnDropHandle::new(running).await } else { running.await };
            ended.unwrap_or_else(|error| Err(Box::new(error)))
        }
    };
    let answer = ended.unwrap_or_else(|_| {
        tracing::error!(request.id = ?id, "The handler of a request panicked.");
        error_response(ApiError::Panicked, id.clone())
    });
    error::name_request(answer, &path, &id)
}

fn error_response(error: ApiError, id: HeaderValue) -> Response {
    let mut answer = error.into_response();
    answer.headers_mut().insert(REQUEST_ID, id);
    answer
}
