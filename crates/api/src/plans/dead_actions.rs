//! Plans of dead jobs are made here: `POST /api/v1/admin/dead/actions`.

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

/// Which dead jobs. What is left out does not matter: `{}` is all of them.
#[derive(ToSchema)]
#[schema(as = DeadJobFilter)]
#[expect(dead_code, reason = "describes the filter; the service reads it")]
struct FilterSchema {
    /// The name of their queue.
    #[schema(pattern = "^[a-z-]{1,64}$")]
    queue: Option<String>,
    /// Their error contains this text.
    #[schema(max_length = 500)]
    error: Option<String>,
    /// Dead for at least so many seconds.
    #[schema(minimum = 0, maximum = 2147483647)]
    older_than_sec: Option<u32>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadJobActionRequest {
    /// Those that fit now, and no others, are the plan's items.
    #[schema(value_type = FilterSchema)]
    filter: DeadJobFilter,
    #[schema(schema_with = verb_schema)]
    action: DeadJobVerb,
    /// Why; kept with the plan, with each decision, and in the histories of the orders.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
    /// True: the plan is stored and shown, and run by its id. False: it runs.
    dry_run: bool,
}

/// Plans to requeue or to discard all dead jobs that fit a filter, and runs the plan unless `dry_run` is set.
///
/// The exact ids are stored first, with what would come of each. They are performed so many a second, however many workers
/// there are; `GET /api/v1/admin/plans/{id}` shows how far the plan is. A plan holds at most 10,000: where more fit, the request is
/// refused, and says how to narrow the filter.
#[utoipa::path(post, path = "/actions", tag = "admin", params(IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = DeadJobActionRequest,
        example = json!({ "filter": { "queue": "notify-queue", "error": "status 503" }, "action": "requeue",
                          "reason": "they are back", "dry_run": true })),
    responses(
        (status = 201, description = "done", body = PlanAnswer,
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
        // The same id when the request is repeated: it finds what was stored before.
        let plan = create::store_draft(&app.core, PlanId::from_uuid(work.id), &draft, mode, &author).await?;
        answer_with_plan(&app, StatusCode::CREATED, plan, None).await
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"plan dead job action", &bytes], work).await
}

fn verb_schema() -> Object {
    word_schema(DeadJobVerb::ALL.map(DeadJobVerb::as_str))
}
