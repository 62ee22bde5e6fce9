//! GET /admin/scale: the number of `work` replicas that are wanted, for an autoscaler that reads it over HTTP (KEDA's
//! metrics-api scaler).
//!
//! If the number is unknown, the answer is 503 without a number, and the autoscaler keeps the current replicas.

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

/// The group of workers to scale.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScaleQuery {
    /// Queue names separated by commas, as in `work --queues`. Default: all.
    queues: Option<String>,
    /// Jobs per worker, as in `work --concurrency`.
    concurrency: Option<u32>,
}

/// Returns the number of `work` replicas wanted a minute from now, and the cause. Answers 503 if Redis does not answer
/// or has no timers.
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
    let message =
        "Redis does not report the waiting jobs, so the number of wanted workers is unknown; keep the current workers";
    let mut answer = Problem::new(&codes::UNAVAILABLE, message).into_response();
    // The connection to Redis is retried continuously, and a rebuild takes seconds.
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}
