//! Server time of a refusal: from reading the head of the request to writing the answer, without the client's part.

use std::{mem, sync::Arc, time::Instant};

use api::HeadRead;
use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use parking_lot::Mutex;

use crate::bench::spread::duration_micros;

/// Times of the refusals since the last `take`, in microseconds. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct RefusalTimes(Arc<Mutex<Vec<i64>>>);

impl RefusalTimes {
    pub(super) fn take(&self) -> Vec<i64> {
        mem::take(&mut *self.0.lock())
    }
}

/// Extension of an answer. The server drops it when it writes the answer's head.
#[derive(Debug)]
struct RunningTime {
    since: Instant,
    times: RefusalTimes,
}

impl Drop for RunningTime {
    fn drop(&mut self) {
        let took = duration_micros(self.since.elapsed());
        self.times.0.lock().push(took);
    }
}

/// Middleware that measures the time of answers with status 409.
pub(super) async fn time_refusal(State(times): State<RefusalTimes>, request: Request, next: Next) -> Response {
    let since = request.extensions().get::<HeadRead>().map_or_else(Instant::now, |head| head.0);
    let mut answer = next.run(request).await;
    if answer.status() == StatusCode::CONFLICT {
        answer.extensions_mut().insert(Arc::new(RunningTime { since, times }));
    }
    answer
}
