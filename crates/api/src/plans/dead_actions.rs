//! Creates plans for dead jobs: `POST /api/v1/admin/dead/actions`.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use model::plain_text;
use serde::Deserialize;
use utoipa::{ToSchema, openapi::Object};

use super::{PlanAnswer, answer_with_plan, example_plan_answer};
use crate::{
    admin,
    auth::ApiCaller,
    bindings::{WRITERS, word_schema},
    body::RawBody,
    error::ApiError,
    idempotency::{self, IdempotencyHeader, WorkContext},
    openapi::CallErrors,
    reason::StaffReason,
};
use app::App;
use desk::plans::{
    create::{self, PlanMode},
    dead_plans::{self, DeadJobFilter, DeadJobVerb},
};
use model::ids::PlanId;

/// Selection of dead jobs. An omitted member matches all; `{}` selects all dead jobs.
#[derive(ToSchema)]
#[schema(as = DeadJobFilter)]
#[expect(dead_code, reason = "describes the filter; the service reads it")]
struct FilterSchema {
    /// Name of the queue.
    #[schema(pattern = "^[a-z-]{1,64}$")]
    queue: Option<String>,
    /// Text that the error contains.
    #[schema(max_length = 500)]
    error: Option<String>,
    /// Minimum number of seconds since the job died.
    #[schema(minimum = 0, maximum = 2147483647)]
    older_than_sec: Option<u32>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadJobActionRequest {
    /// Dead jobs that match now are the items of the plan. Later matches are not added.
    #[schema(value_type = FilterSchema)]
    filter: DeadJobFilter,
    #[schema(schema_with = verb_schema)]
    action: DeadJobVerb,
    /// Reason, kept with the plan, with each decision, and in the histories of the orders.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
    /// If true, the plan is stored and can be run by its id. If false, it runs immediately.
    dry_run: bool,
}

/// Creates a plan to requeue or discard all dead jobs that match a filter, and runs it unless `dry_run` is set.
///
/// The ids are stored first, with the expected result of each. They are processed at a fixed rate per second,
/// regardless of the number of workers. `GET /api/v1/admin/plans/{id}` shows the progress. A plan has at most 10,000
/// items. If more jobs match, the request is refused, and the message explains how to narrow the filter.
#[utoipa::path(post, path = "/actions", tag = "admin", params(IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = DeadJobActionRequest,
        example = json!({ "filter": { "queue": "notify-queue", "error": "status 503" }, "action": "requeue",
                          "reason": "they are back", "dry_run": true })),
    responses(
        (status = 201, description = "success", body = PlanAnswer,
         example = json!(example_plan_answer())),
        CallErrors,
    ))]
pub(super) async fn plan_dead_job_action(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<DeadJobActionRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let key = idempotency::idempotency_key(&headers)?;
    let DeadJobActionRequest { filter, action, reason, dry_run } = value;
    if filter.older_than_sec.is_some_and(|secs| i32::try_from(secs).is_err()) {
        let rule = format!("older_than_sec must be 0 to {}", i32::MAX);
        return Err(ApiError::invalid_member("filter/older_than_sec", rule));
    }
    if let Some(problem) = filter.error.as_deref().and_then(|text| plain_text::find_problem(text, 500)) {
        return Err(ApiError::invalid_member("filter/error", format!("error {problem}")));
    }
    let selection = admin::dead::select(&filter)?;
    let reason = reason.check(&caller)?;
    let mode = if dry_run { PlanMode::DryRun } else { PlanMode::Run };
    let work = async |work: WorkContext| {
        let author = caller.actor();
        let draft = dead_plans::draft_plan(&app.core, &filter, &selection, action, reason.clone()).await?;
        // A repeated request has the same id, so it finds the stored plan.
        let plan = create::store_draft(&app.core, PlanId::from_uuid(work.id), &draft, mode, &author).await?;
        answer_with_plan(&app.core, StatusCode::CREATED, plan, None).await
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"plan dead job action", &bytes], work).await
}

fn verb_schema() -> Object {
    word_schema(DeadJobVerb::ALL.map(DeadJobVerb::as_str))
}
