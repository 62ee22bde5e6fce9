//! Creates plans for bindings: `POST /api/v1/bindings/actions`.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use model::binding::BindingVerb;
use serde::Deserialize;
use utoipa::{ToSchema, openapi::Object};

use super::{PlanAnswer, answer_with_plan, example_plan_answer};
use crate::{
    auth::ApiCaller,
    bindings::{WRITERS, state_or_null_schema, word_schema},
    body::RawBody,
    error::ApiError,
    idempotency::{self, IdempotencyHeader, WorkContext},
    openapi::CallErrors,
    reason::optional_reason,
};
use app::App;
use bindings::list::BindingFilter;
use desk::plans::{
    binding_plans,
    create::{self, PlanMode},
};
use model::ids::PlanId;

/// Selection of bindings. An omitted member matches all; `{}` selects all bindings.
#[derive(ToSchema)]
#[schema(as = BindingFilter)]
#[expect(dead_code, reason = "describes the filter; the service reads it")]
struct BindingFilterSchema {
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    server_id: Option<String>,
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    account_id: Option<String>,
    #[schema(schema_with = state_or_null_schema)]
    state: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BindingActionRequest {
    /// Bindings that match now are the items of the plan. Later matches are not added.
    #[schema(value_type = BindingFilterSchema)]
    filter: BindingFilter,
    #[schema(schema_with = verb_schema)]
    action: BindingVerb,
    /// Reason, kept with the plan and in the history of each binding.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
    /// If true, the plan is stored and can be run by its id. If false, it runs immediately.
    dry_run: bool,
}

/// Creates a plan for all bindings that match a filter, and runs it unless `dry_run` is set.
///
/// The ids are stored first, with the expected result of each. They are processed at a fixed rate per second,
/// regardless of the number of workers. `GET /api/v1/admin/plans/{id}` shows the progress.
#[utoipa::path(post, path = "/actions", tag = "bindings", params(IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = BindingActionRequest,
        example = json!({ "filter": { "state": "RUNNING" }, "action": "pause", "reason": "the provider asked for it",
                          "dry_run": true })),
    responses(
        (status = 201, description = "success", body = PlanAnswer,
         example = json!(example_plan_answer())),
        CallErrors,
    ))]
pub(super) async fn plan_binding_action(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<BindingActionRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let key = idempotency::idempotency_key(&headers)?;
    let BindingActionRequest { filter, action, reason, dry_run } = value;
    let reason = optional_reason(reason)?;
    let mode = if dry_run { PlanMode::DryRun } else { PlanMode::Run };
    let work = async |work: WorkContext| {
        let author = caller.actor();
        let draft = binding_plans::draft_plan(&app.core, &filter, action, reason.clone(), &author).await?;
        // A repeated request has the same id, so it finds the stored plan.
        let plan = create::store_draft(&app.core, PlanId::from_uuid(work.id), &draft, mode, &author).await?;
        answer_with_plan(&app.core, StatusCode::CREATED, plan, None).await
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"plan binding action", &bytes], work).await
}

fn verb_schema() -> Object {
    word_schema(BindingVerb::ALL.map(BindingVerb::as_str))
}
