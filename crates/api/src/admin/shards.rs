//! The shards of the queue: `/api/v1/admin/shards`.

use app::App;
use axum::{Json, extract::State};
use foundation::core::Core;
use foundation::{
    error::ServiceError,
    shard_map::{self, SetShardsError},
    staff_actions::{ActionAuthor, StaffAction, record_work},
    work_slice::WorkSlice,
};
use maintenance::recovery::shards::{self, DrainReport, ShardStanding};
use queue::ShardCount;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    ADMINS, OPERATORS,
    upkeep::{UpkeepRequest, read_cursor},
};
use crate::{
    auth::ApiCaller,
    body::JsonBody,
    error::{ApiError, StaffError},
    finish::SLICE,
    openapi::CallErrors,
    reason::{StaffReason, optional_reason},
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_shards, set_shards)).routes(routes!(drain_shards))
}

/// The number of shards, and the state of each.
#[derive(Debug, Serialize)]
struct ShardsView {
    generation: i64,
    shards: u16,
    derived: bool,
    settled: bool,
    made_by: String,
    made_at: chrono::DateTime<chrono::Utc>,
    reason: Option<String>,
    each: Vec<ShardStanding>,
}

async fn view_shards(core: &Core) -> Result<ShardsView, ApiError> {
    let latest = core.shards.reload(&core.db).await?;
    Ok(ShardsView {
        generation: latest.generation,
        shards: latest.shards.get(),
        derived: latest.derived_at.is_some(),
        settled: latest.settled_at.is_some(),
        made_by: latest.made_by,
        made_at: latest.made_at,
        reason: latest.reason,
        each: shards::list_standings(core).await,
    })
}

impl From<SetShardsError> for ApiError {
    fn from(error: SetShardsError) -> Self {
        match error {
            SetShardsError::Unchanged(_) => Self::invalid_member("shards", error.to_string()),
            SetShardsError::UnderWay { .. } => StaffError::ShardsChanging(error.to_string()).into(),
            SetShardsError::Database(error) => Self::Database(error),
            SetShardsError::Store(error) => ServiceError::from(error).into(),
        }
    }
}

/// Lists the shards of the queue, their jobs, and the progress of a change of their number.
///
/// `derived` tells whether workers have put the timers into their new shards. `settled` tells whether the shards beyond
/// the current number are empty. `each` has the numbers of due, scheduled, leased, parked and dead jobs. They are null
/// for a shard that did not answer, and `error` has the cause.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_shards())), CallErrors))]
async fn list_shards(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    Ok(Json(json!(view_shards(&app.core).await?)))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetShardsRequest {
    /// Number of shards, a power of two.
    #[schema(minimum = 1, maximum = 64)]
    shards: u16,
    /// Reason, kept with the generation.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Changes the number of shards while everything runs.
///
/// Every process follows within a second. Workers put the timers of all rows into their new shards. The next change is
/// refused until this one is settled.
#[utoipa::path(put, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = SetShardsRequest, example = json!({ "shards": 4, "reason": "one core of Redis is busy" })),
    responses((status = 200, description = "success", body = Object, example = json!(example_shards())), CallErrors))]
async fn set_shards(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(SetShardsRequest { shards, reason }): JsonBody<SetShardsRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = reason.check(&caller)?;
    let count = ShardCount::new(shards).map_err(|error| ApiError::invalid_member("shards", error.to_string()))?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    shards::change_number(&app.core, count, by).await?;
    Ok(Json(json!(view_shards(&app.core).await?)))
}

/// Moves the remaining jobs out of the shards beyond a lowered number, and closes these shards.
///
/// `moved` and `dead` are the numbers of moved jobs and dead letters. `left` is the number of jobs that still run
/// there; repeat the request for them. One request works for about 30 s. If it moved jobs and some are left, `next_cursor` is
/// not null: the same request with it as its `cursor` continues. Without this request each remaining timer runs at its time.
#[utoipa::path(post, path = "/drain", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = UpkeepRequest, example = json!({ "reason": "one shard is enough" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "was_settled": false, "moved": 12, "dead": 1, "left": 0, "shards": example_shards(),
                           "next_cursor": null })),
        CallErrors,
    ))]
async fn drain_shards(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(UpkeepRequest { reason, cursor }): JsonBody<UpkeepRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = optional_reason(reason)?;
    let of_generation: Option<i64> = read_cursor(cursor.as_deref())?;
    let generation = shard_map::read_latest(&app.core.db).await?;
    let was_settled = generation.settled_at.is_some();
    if !was_settled && generation.derived_at.is_none() {
        let number = generation.generation;
        let text = format!(
            "workers are still moving timers into their new shards (generation {number}): is a worker running? See: dispatchq shards list"
        );
        return Err(StaffError::ShardsChanging(text).into());
    }
    app.core.shards.reload(&app.core.db).await?;
    let number = generation.generation;
    if of_generation.is_some_and(|cursor| cursor != number) {
        let text = format!("the number of shards has changed again (generation {number}); see: dispatchq shards list");
        return Err(StaffError::ShardsChanging(text).into());
    }
    let slice = WorkSlice::lasting(SLICE);
    let drained = if was_settled {
        DrainReport { is_settled: true, ..DrainReport::default() }
    } else {
        shards::drain_slice(&app.core, &generation, slice).await?
    };
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let subject = format!("generation {number}: {} shard(s)", generation.shards.get());
    record_work(&app.core.db, by, StaffAction::ShardsDrained, &subject, json!(drained)).await?;
    // After a request that moved nothing, only running jobs are left.
    let has_moved = drained.moved + drained.dead > 0;
    let next_cursor = (has_moved && !drained.is_settled).then(|| number.to_string());
    Ok(Json(json!({
        "was_settled": was_settled, "moved": drained.moved, "dead": drained.dead, "left": drained.left,
        "shards": view_shards(&app.core).await?, "next_cursor": next_cursor,
    })))
}

fn example_shards() -> Value {
    json!({
        "generation": 1, "shards": 1, "derived": true, "settled": true, "made_by": "migration",
        "made_at": "2026-01-09T08:00:00Z", "reason": null,
        "each": [{ "shard": 0, "due": 3, "scheduled": 120, "leased": 2, "parked": 0, "dead": 0, "epoch": true,
                   "left_over": false }],
    })
}
