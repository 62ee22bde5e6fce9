//! Plans, which are bulk actions of staff: `/api/v1/admin/plans`. `binding_actions` and `dead_actions` create the plans
//! for bindings and dead jobs.

mod binding_actions;
mod dead_actions;

use axum::{
    Json,
    extract::{FromRequestParts, Query, State, rejection::QueryRejection},
    http::{StatusCode, request::Parts},
    response::Response,
};
use chrono::{DateTime, Utc};
use foundation::core::Core;
use model::{
    ids::PlanId,
    plan::{Plan, PlanConflict, PlanItem, PlanItemState, PlanKind, PlanState},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    bindings::{EmptyBody, READERS, WRITERS, next_cursor, page_size, word_schema},
    body::{JsonBody, parse_path},
    error::ApiError,
    idempotency::{Answer, IdempotencyHeader, WorkContext},
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
};
use app::App;
use desk::plans::{
    control::{self, ChangedPlan},
    create,
    error::{PlanError, PlanRunError},
    run_plan::{self, PlanStep},
    store::{self, RefusalCount},
};
use foundation::error::ServiceError;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_plans))
        .routes(routes!(show_plan))
        .routes(routes!(list_plan_items))
        .routes(routes!(run_plan))
        .routes(routes!(perform_plan))
        .routes(routes!(cancel_plan))
}

/// Returns the routes below those of bindings.
pub(crate) fn binding_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(binding_actions::plan_binding_action))
}

/// Returns the routes below those of dead jobs.
pub(crate) fn dead_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(dead_actions::plan_dead_job_action))
}

/// The plan that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
struct PlanPath(
    /// The plan's id.
    #[param(value_type = String, pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        example = "01937c3e-8f00-7000-8000-000000000001")]
    PlanId,
);

impl<S: Send + Sync> FromRequestParts<S> for PlanPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        parse_path(parts, state, "id").await.map(Self)
    }
}

/// A bulk action: its items, its action and its progress.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Plan)]
struct PlanView {
    id: String,
    /// Kind of the items.
    #[schema(schema_with = kind_schema)]
    kind: PlanKind,
    /// Action on each item.
    action: Value,
    /// Filter that selected the items when the plan was created.
    filter: Value,
    reason: Option<String>,
    #[schema(schema_with = state_schema)]
    state: PlanState,
    /// Number of items. An object that matches the filter later is not an item.
    total: i32,
    /// Number of items that are still to be processed.
    left: i32,
    /// Number of items that were changed.
    changed: i32,
    /// Number of items that were already in the requested state.
    unchanged: i32,
    /// Number of items that were refused.
    refused: i32,
    created_by: String,
    created_at: DateTime<Utc>,
    run_by: Option<String>,
    started_at: Option<DateTime<Utc>>,
    cancelled_by: Option<String>,
    /// Time when the plan became DONE or CANCELLED.
    ended_at: Option<DateTime<Utc>>,
    /// Time when the next items are processed, while RUNNING.
    next_at: Option<DateTime<Utc>>,
}

impl From<Plan> for PlanView {
    fn from(row: Plan) -> Self {
        Self {
            id: row.id.to_string(),
            kind: row.kind,
            action: row.action,
            filter: row.filter,
            reason: row.reason,
            state: row.state,
            total: row.counts.total,
            left: row.counts.left(),
            changed: row.counts.changed,
            unchanged: row.counts.unchanged,
            refused: row.counts.refused,
            created_by: row.created_by,
            created_at: row.created_at,
            run_by: row.run_by,
            started_at: row.started_at,
            cancelled_by: row.cancelled_by,
            ended_at: row.ended_at,
            next_at: row.next_at,
        }
    }
}

/// Items that were refused with the same error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PlanRefusal)]
struct RefusalView {
    error_code: String,
    count: i64,
    /// Message of one of these refusals.
    example: Option<String>,
}

/// A plan and its refusals.
#[derive(Debug, Serialize, ToSchema)]
struct PlanAnswer {
    plan: PlanView,
    refusals: Vec<RefusalView>,
    /// Further information, such as the reason why nothing changed.
    #[schema(required)]
    note: Option<String>,
}

/// Returns the answer about a plan in the form that is stored under an Idempotency-Key.
async fn answer_with_plan(core: &Core, status: StatusCode, plan: Plan, note: Option<&str>) -> Result<Answer, ApiError> {
    let refusals = list_refusals(core, plan.id).await?;
    let answer = PlanAnswer { plan: PlanView::from(plan), refusals, note: note.map(str::to_owned) };
    Ok((status, json!(answer)))
}

async fn list_refusals(core: &Core, id: PlanId) -> Result<Vec<RefusalView>, ApiError> {
    let counted = store::count_refusals(&core.db, id).await?;
    let view = |row: RefusalCount| RefusalView { error_code: row.refusal, count: row.count, example: row.example };
    Ok(counted.into_iter().map(view).collect())
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PlanListQuery {
    /// Only plans in this state.
    #[param(schema_with = state_schema)]
    state: Option<PlanState>,
    /// The `next_cursor` of the previous page.
    #[param(value_type = Option<String>, pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    cursor: Option<PlanId>,
    /// Maximum number of plans per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
struct PlanPage {
    plans: Vec<PlanView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists plans, newest first, page by page.
#[utoipa::path(get, path = "/", tag = "plans", params(PlanListQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = PlanPage,
         example = json!({ "plans": [example_plan()], "next_cursor": null })),
        CallErrors,
    ))]
async fn list_plans(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<PlanListQuery>, QueryRejection>,
) -> Result<Json<PlanPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(PlanListQuery { state, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    let rows = store::list_plans(&app.core.db, state, cursor, i64::from(limit)).await?;
    let next_cursor = next_cursor(&rows, limit, |row| row.id.to_string());
    Ok(Json(PlanPage { plans: rows.into_iter().map(PlanView::from).collect(), next_cursor }))
}

/// Returns a plan and its refusals.
#[utoipa::path(get, path = "/{id}", tag = "plans", params(PlanPath), extensions(("x-roles" = json!(READERS))),
    responses((status = 200, description = "success", body = PlanAnswer, example = json!(example_plan_answer())), CallErrors))]
async fn show_plan(State(app): State<App>, caller: ApiCaller, PlanPath(id): PlanPath) -> Result<Json<Value>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let plan = create::find_plan(&app.core, id).await?;
    let (_, body) = answer_with_plan(&app.core, StatusCode::OK, plan, None).await?;
    Ok(Json(body))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PlanItemQuery {
    /// Only items in this state.
    #[param(schema_with = item_state_schema)]
    state: Option<PlanItemState>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Maximum number of items per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// An item of a plan.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PlanItem)]
struct PlanItemView {
    /// Id of the object to change.
    subject_id: String,
    #[schema(schema_with = item_state_schema)]
    state: PlanItemState,
    /// Error code of a REFUSED item.
    error_code: Option<String>,
    /// Explanation of a REFUSED or UNCHANGED item, for people.
    note: Option<String>,
    /// Time when the item was processed; null if its result was known when the plan was created.
    done_at: Option<DateTime<Utc>>,
}

impl From<PlanItem> for PlanItemView {
    fn from(row: PlanItem) -> Self {
        Self {
            subject_id: row.subject_id,
            state: row.state,
            error_code: row.refusal,
            note: row.note,
            done_at: row.done_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct PlanItemPage {
    items: Vec<PlanItemView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists the items of a plan by id, page by page.
#[utoipa::path(get, path = "/{id}/items", tag = "plans", params(PlanPath, PlanItemQuery),
    extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = PlanItemPage,
         example = json!({ "items": [
             { "subject_id": "B-7", "state": "PENDING", "error_code": null, "note": null, "done_at": null }],
             "next_cursor": null })),
        CallErrors,
    ))]
async fn list_plan_items(
    State(app): State<App>,
    caller: ApiCaller,
    PlanPath(id): PlanPath,
    wanted: Result<Query<PlanItemQuery>, QueryRejection>,
) -> Result<Json<PlanItemPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(PlanItemQuery { state, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    create::find_plan(&app.core, id).await?;
    let after = cursor.as_deref().unwrap_or_default();
    let rows = store::list_items(&app.core.db, id, state, after, i64::from(limit)).await?;
    let next_cursor = next_cursor(&rows, limit, |row| row.subject_id.clone());
    Ok(Json(PlanItemPage { items: rows.into_iter().map(PlanItemView::from).collect(), next_cursor }))
}

/// A request about a plan without a body.
type PlanCall = KeyedCall<PlanPath, EmptyBody>;

/// Runs a plan once.
///
/// Its items are processed at a fixed rate per second. A plan that was created more than a day ago is refused, because
/// its items may be outdated.
#[utoipa::path(post, path = "/{id}/run", tag = "plans", params(PlanPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    responses(
        (status = 200, description = "success", body = PlanAnswer,
         example = json!(example_plan_answer())),
        CallErrors,
    ))]
async fn run_plan(call: PlanCall) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: PlanPath(id), value: EmptyBody {} } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let work = async |work: WorkContext| {
        let (plan, note) = match control::run_plan(&app.core, id, &caller.actor()).await {
            // An earlier request with this Idempotency-Key may have started the plan, and its answer was lost.
            Err(PlanError::Conflict(conflict)) if work.resumed => {
                (find_own_run(&app.core, caller, id, conflict).await?, None)
            }
            ran => split_changed(ran?),
        };
        answer_with_plan(&app.core, StatusCode::OK, plan, note).await
    };
    request.run_once("run plan", id.as_uuid().as_bytes(), work).await
}

/// Returns the plan if this key started it.
async fn find_own_run(core: &Core, caller: &ApiCaller, id: PlanId, conflict: PlanConflict) -> Result<Plan, ApiError> {
    let plan = create::find_plan(core, id).await?;
    if plan.run_key.is_some() && plan.run_key == caller.key_id() {
        Ok(plan)
    } else {
        Err(ApiError::PlanRefused(conflict))
    }
}

/// Cancels a plan.
///
/// Items in progress finish, and no further item starts. Finished changes are not undone.
#[utoipa::path(post, path = "/{id}/cancel", tag = "plans", params(PlanPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    responses(
        (status = 200, description = "success", body = PlanAnswer,
         example = json!(example_plan_answer())),
        CallErrors,
    ))]
async fn cancel_plan(call: PlanCall) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: PlanPath(id), value: EmptyBody {} } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let work = async |_| {
        let (plan, note) = split_changed(control::cancel_plan(&app.core, id, &caller.actor()).await?);
        answer_with_plan(&app.core, StatusCode::OK, plan, note).await
    };
    request.run_once("cancel plan", id.as_uuid().as_bytes(), work).await
}

/// A plan after its next items were processed.
#[derive(Debug, Serialize, ToSchema)]
struct PerformedPlan {
    plan: PlanView,
    refusals: Vec<RefusalView>,
    /// Milliseconds until the next items are due; null if they are due now or none is left.
    #[schema(required)]
    wait_ms: Option<u64>,
}

/// Processes the next items of a running plan if they are due.
///
/// The rate applies to this request and the workers together. A plan that is not running is returned unchanged. Workers
/// process a running plan without this request.
#[utoipa::path(post, path = "/{id}/perform", tag = "plans", params(PlanPath), extensions(("x-roles" = json!(WRITERS))),
    responses(
        (status = 200, description = "success", body = PerformedPlan,
         example = json!({ "plan": example_plan(), "refusals": [], "wait_ms": 1000 })),
        CallErrors,
    ))]
async fn perform_plan(
    State(app): State<App>,
    caller: ApiCaller,
    PlanPath(id): PlanPath,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Json<PerformedPlan>, ApiError> {
    caller.require_role(&WRITERS)?;
    create::find_plan(&app.core, id).await?;
    let step = run_plan::run_batch(&app.desk, id).await.map_err(|error| match error {
        PlanRunError::Database(error) => ApiError::Database(error),
        other => ServiceError::Unusable(other.to_string()).into(),
    })?;
    let wait_ms = match step {
        PlanStep::NotYet(pause) => Some(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        PlanStep::Over | PlanStep::Performed(_) => None,
    };
    let plan = create::find_plan(&app.core, id).await?;
    let refusals = list_refusals(&app.core, id).await?;
    Ok(Json(PerformedPlan { plan: PlanView::from(plan), refusals, wait_ms }))
}

/// Returns the plan, and the reason if nothing changed.
fn split_changed(changed: ChangedPlan) -> (Plan, Option<&'static str>) {
    match changed {
        ChangedPlan::Yes(plan) => (*plan, None),
        ChangedPlan::No(plan, how) => (*plan, Some(how)),
    }
}

fn kind_schema() -> Object {
    word_schema(PlanKind::ALL.map(PlanKind::as_str))
}

fn state_schema() -> Object {
    word_schema(PlanState::ALL.map(PlanState::as_str))
}

fn item_state_schema() -> Object {
    word_schema(PlanItemState::ALL.map(PlanItemState::as_str))
}

/// Returns a running plan.
fn example_plan() -> Value {
    json!({
        "id": "01937c3e-8f00-7000-8000-000000000001", "kind": "bindings", "action": "stop",
        "filter": { "server_id": "S1" }, "reason": "S1 moves", "state": "RUNNING", "total": 120, "left": 69, "changed": 50,
        "unchanged": 0, "refused": 1, "created_by": "operator:budi", "created_at": "2026-01-09T08:00:00Z",
        "run_by": "operator:budi", "started_at": "2026-01-09T08:00:30Z", "cancelled_by": null, "ended_at": null,
        "next_at": "2026-01-09T08:00:31Z",
    })
}

/// Returns the plan of [`example_plan`] with one refusal.
fn example_plan_answer() -> Value {
    json!({
        "plan": example_plan(),
        "refusals": [{ "error_code": "BINDING_DELETED", "count": 1, "example": "the binding was deleted" }],
        "note": null,
    })
}
