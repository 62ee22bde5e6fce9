//! The ways to decide who wins, behind the same server. All write the same rows, and answer before Redis is told; what differs is what
//! comes before.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::post,
};
use jobs::OrderId;
use serde::Deserialize;
use serde_json::json;

use super::answers::{self, RefusalTimes};
use api::{auth::ApiCaller, error::ApiError};
use dispatch::{
    app::App,
    ids::{DriverId, OfferId},
    orders::{Snapshot, actions, commit, update},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecisionWay {
    /// The product: the gate, then the conditional update.
    Gate,
    /// The conditional update alone.
    Optimistic,
    /// SELECT ... FOR UPDATE, then the update.
    RowLocks,
}

impl DecisionWay {
    pub(super) const ALL: [Self; 3] = [Self::Gate, Self::Optimistic, Self::RowLocks];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gate => "dispatchq",
            Self::Optimistic => "optimistic",
            Self::RowLocks => "row_locks",
        }
    }

    /// Where accept is pressed.
    pub(super) fn accept_path(self, order: &OrderId) -> String {
        match self {
            Self::Gate => format!("/api/v1/orders/{order}/accept"),
            Self::Optimistic => format!("/optimistic/{order}/accept"),
            Self::RowLocks => format!("/row-locks/{order}/accept"),
        }
    }
}

/// The product's API, and the other ways beside it. Refusals are timed.
pub(super) fn router_with_ways(app: App, times: RefusalTimes) -> Router {
    let others = Router::new()
        .route("/optimistic/{id}/accept", post(accept_optimistically))
        .route("/row-locks/{id}/accept", post(accept_with_row_locks))
        .with_state(app.clone());
    others.merge(api::api_router(app)).layer(from_fn_with_state(times, answers::time_refusal))
}

#[derive(Debug, Deserialize)]
struct AcceptBody {
    driver_id: DriverId,
    offer_id: OfferId,
}

async fn accept_optimistically(
    State(app): State<App>,
    caller: ApiCaller,
    Path(id): Path<OrderId>,
    Json(answer): Json<AcceptBody>,
) -> Result<Response, ApiError> {
    let driver = caller.acting_driver(Some(&answer.driver_id))?;
    let decide = |s: &Snapshot| actions::accept_offer(s, &driver, answer.offer_id);
    let (_, rest) = update::begin_trip(&app, &id, answer.offer_id, None, decide).await?;
    app.behind_answers.spawn(rest);
    Ok(accepted_response(&id))
}

async fn accept_with_row_locks(
    State(app): State<App>,
    caller: ApiCaller,
    Path(id): Path<OrderId>,
    Json(answer): Json<AcceptBody>,
) -> Result<Response, ApiError> {
    let driver = caller.acting_driver(Some(&answer.driver_id))?;
    let mut tx = app.db.begin().await?;
    sqlx::query(
        "-- lock order
         SELECT 1 FROM orders WHERE id = $1 FOR UPDATE",
    )
    .bind(id.as_str())
    .execute(&mut *tx)
    .await?;
    let mut decide = |s: &Snapshot| actions::accept_offer(s, &driver, answer.offer_id);
    let changed = commit::try_change(&app, &mut tx, &id, Some(answer.offer_id), &mut decide).await?;
    let (changed, news) = changed.ok_or(ApiError::Busy)?;
    tx.commit().await?;
    app.behind_answers.spawn(update::begin_rest(&app, &changed, news));
    Ok(accepted_response(&id))
}

fn accepted_response(id: &OrderId) -> Response {
    (StatusCode::OK, Json(json!({ "order_id": id }))).into_response()
}
