//! The continuous proof of the history: `/api/v1/admin/proof`.

use axum::{
    Json,
    extract::{FromRequestParts, Path, State},
    http::request::Parts,
};
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::OPERATORS;
use crate::{
    auth::ApiCaller,
    error::{ApiError, StaffError},
    openapi::CallErrors,
};
use app::App;
use maintenance::proof::{status, violations};
use settings::ScheduledTask;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(show_proof)).routes(routes!(show_violation))
}

fn example_violation() -> Value {
    json!({ "id": 7, "invariant": "unbroken_chain",
            "expected": "each event starts in the state in which the previous event ended; the last state is the order's",
            "subject": "ORD-1", "detail": "is PICKED_UP but its history ends in DRIVER_ASSIGNED", "order_id": "ORD-1",
            "event_seq": 3017, "event": "OFFER_ACCEPTED", "step": 1_204_331, "found_at": "2026-01-08T09:30:04Z",
            "seen_at": "2026-01-08T09:30:09Z", "gone_at": null })
}

/// Returns how far the history is proven, and the violations.
///
/// `event` is the number of the last proven step of the feed. All steps that were committed before `proven_at` are proven.
/// `is_running` is false if `[schedules]` has no proof. `violations` has at most 100, open ones first. An open violation has
/// no `gone_at`.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "event": 1_204_331, "proven_at": "2026-01-08T09:30:05Z", "lag_seconds": 4.0, "lag_events": 12,
                           "open_violations": 1, "steps": 1_204_331, "cpu_us": 41_000_000, "is_running": true,
                           "violations": [example_violation()] })),
        CallErrors,
    ))]
async fn show_proof(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let mut answer = json!(status::read_status(&app.core.db).await?);
    answer["is_running"] = json!(app.config.schedules.contains_key(&ScheduledTask::Proof));
    answer["violations"] = json!(violations::list_violations(&app.core.db).await?);
    Ok(Json(answer))
}

/// The violation that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
struct ViolationPath(
    /// The violation's id.
    #[param(value_type = i64, minimum = 1, example = 7)]
    i64,
);

impl<S: Send + Sync> FromRequestParts<S> for ViolationPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<i64>::from_request_parts(parts, state).await;
        id.map(|Path(id)| Self(id)).map_err(|_| StaffError::NoSuchViolation.into())
    }
}

/// Returns one violation of the history.
///
/// `expected` is what the invariant demands, and `detail` is what was found. `event_seq` and `event` are the number and the
/// reason of the order's last event when the violation was found.
#[utoipa::path(get, path = "/violations/{id}", tag = "admin", params(ViolationPath), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_violation())), CallErrors))]
async fn show_violation(
    State(app): State<App>,
    caller: ApiCaller,
    ViolationPath(id): ViolationPath,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let violation = violations::find_violation(&app.core.db, id).await?;
    Ok(Json(json!(violation.ok_or(StaffError::NoSuchViolation)?)))
}
