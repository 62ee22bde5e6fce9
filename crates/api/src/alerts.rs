//! What support has to do, and that it is done.

use axum::{
    Json, Router,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    routing::{get, post},
};
use jobs::OrderId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{auth::ApiCaller, body::JsonBody, error::ApiError, orders::bounded_text};
use dispatch::{
    accounts::api_keys::AccountRole,
    app::App,
    notifications::alerts::{self, AlertFilter, AlertSelection},
};

const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 500;

pub fn routes() -> Router<App> {
    Router::new().route("/", get(list_alerts)).route("/{id}/ack", post(acknowledge_alert))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertQuery {
    /// Only those not yet acknowledged.
    #[serde(default)]
    open: bool,
    kind: Option<String>,
    order_id: Option<OrderId>,
    /// The `next` of the page before.
    before: Option<i64>,
    limit: Option<u32>,
}

/// `{"alerts": [...], "next": id}`: newest first; `next` is null on the last page.
async fn list_alerts(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<AlertQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&[AccountRole::Support, AccountRole::Dispatcher, AccountRole::Operator])?;
    let Query(wanted) = wanted.map_err(|e| ApiError::Invalid(e.body_text()))?;
    let limit = wanted.limit.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(ApiError::Invalid(format!("limit must be 1 to {LARGEST_PAGE}")));
    }
    let filter = AlertFilter {
        open: wanted.open,
        kind: bounded_text("kind", wanted.kind)?,
        order: wanted.order_id,
        before: wanted.before,
        limit,
    };
    let page = alerts::list_alerts(&app.db, &filter).await?;
    let is_full = u32::try_from(page.len()).is_ok_and(|n| n == limit);
    let next = page.last().filter(|_| is_full).map(|a| a.id);
    Ok(Json(json!({ "alerts": page, "next": next })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AcknowledgeRequest {
    /// What was done, or will be.
    note: String,
}

/// The alert as it now is. One that was acknowledged before stays as it was: repeating is harmless.
async fn acknowledge_alert(
    State(app): State<App>,
    caller: ApiCaller,
    id: Result<Path<i64>, PathRejection>,
    JsonBody(body): JsonBody<AcknowledgeRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&[AccountRole::Support])?;
    let Path(id) = id.map_err(|_| ApiError::NoSuchAlert)?;
    let note = bounded_text("note", Some(body.note))?.unwrap_or_default();
    if note.trim().is_empty() {
        return Err(ApiError::Invalid("note must say what was done, or will be".to_owned()));
    }
    let acked = alerts::acknowledge_alerts(&app.db, &AlertSelection::One(id), &caller.actor(), &note).await?;
    acked.first().map(|alert| Json(json!(alert))).ok_or(ApiError::NoSuchAlert)
}
