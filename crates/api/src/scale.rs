//! GET /admin/scale: how many replicas of `work` are wanted, for an autoscaler that asks by HTTP (KEDA's metrics-api scaler).
//!
//! What cannot be known is 503 and no number: an autoscaler then leaves the replicas as they are.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderValue, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    admin::find_queue,
    error::{ApiError, Problem, codes},
    scrape::with_timeout,
};
use app::App;
use desk::reports::scale::{WorkerGroup, read_scale};

/// The group of workers that is asked about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScaleQuery {
    /// Names of queues with commas between them, as of `work --queues`; all if it is left out.
    queues: Option<String>,
    /// As of `work --concurrency`.
    concurrency: Option<u32>,
}

/// Says how many replicas of `work` are wanted a minute from now, and why. 503 when Redis does not answer or holds no timers.
pub(super) async fn show_scale(
    State(app): State<App>,
    wanted: Result<Query<ScaleQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(ScaleQuery { queues, concurrency }) = wanted?;
    let queues = match queues.as_deref() {
        None => jobs::queues::ALL.to_vec(),
        Some(names) => names.split(',').map(find_queue).collect::<Result<_, _>>()?,
    };
    let group = WorkerGroup { queues, concurrency };
    Ok(match with_timeout(read_scale(&app.desk, &group)).await.flatten() {
        Some(advice) => Json(advice).into_response(),
        None => refuse_blind(),
    })
}

fn refuse_blind() -> Response {
    let message = "Redis does not say what waits, so how many workers are wanted is not known; keep those there are";
    let mut answer = Problem::new(&codes::UNAVAILABLE, message).into_response();
    // Redis is looked for all the time; a rebuild takes seconds.
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}
