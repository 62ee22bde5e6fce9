//! Lets a request that may change something run to its end, even if its client disconnects.
//!
//! hyper drops the future of a handler as soon as the client disconnects. A handler dropped between two statements
//! leaves its work incomplete. A handler dropped inside a statement may leave a connection in a transaction. Each such
//! request that waits therefore runs on its own task, including its body. The server waits for these tasks when it
//! stops. Reads are dropped, because they leave nothing incomplete. A request that is answered without a wait, such as
//! an accept that is too late, needs no task and is not scheduled again.
//!
//! Every request ends: a request that waits for an unresponsive server is answered 503 after [`DEADLINE`]. Every error
//! gets the path and the id of its request here.

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

/// Time limit for a request. The longest wait for an offer is 50 s, a body may take 30 s, and a statement 7 s.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// Time that one request works on a long task before it answers where to continue: half of [`DEADLINE`], so that the last step fits in.
pub(super) const SLICE: Duration = Duration::from_secs(30);

/// The running requests of a server, and their time limit.
#[derive(Debug, Clone)]
pub(super) struct RunningRequests {
    pub(super) running: TaskTracker,
    pub(super) deadline: Duration,
}

/// Middleware that runs the request on a task tracked by `requests`. A handler that panics is answered 500, and one
/// that exceeds the time limit 503. Both answers carry the request id of the logs.
pub(super) async fn run_to_end(State(requests): State<RunningRequests>, mut request: Request, next: Next) -> Response {
    let is_read = request.method().is_safe();
    let path = request.uri().path().to_owned();
    let id = request_id(request.headers());
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let late = id.clone();
    let in_time = async move {
        tokio::time::timeout(requests.deadline, next.run(request)).await.unwrap_or_else(|_| {
            tracing::error!(request.id = ?late, "A request timed out because a server does not answer.");
            error_response(ApiError::NoAnswer, late)
        })
    };
    let mut in_time = Box::pin(AssertUnwindSafe(in_time).catch_unwind());
    // The first poll runs here. Nothing can drop the future between this poll and the task.
    let ended = match poll_fn(|context| Poll::Ready(in_time.as_mut().poll(context))).await {
        Poll::Ready(ended) => ended,
        Poll::Pending => {
            let running = requests.running.spawn(in_time);
            // A read is dropped with its client, because it leaves nothing incomplete.
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
