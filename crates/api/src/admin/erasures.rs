//! Erasure of personal data: `/api/v1/admin/erasures`. docs/PRIVACY.md lists the erased data.

use app::App;
use axum::{Json, extract::State};
use chrono::Datelike;
use desk::privacy::{self, ErasureOutcome, ErasureProgress, ErasureRecord, ErasureSubject};
use foundation::{core::Core, db, work_slice::WorkSlice};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{ToSchema, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    ADMINS,
    upkeep::{YEARS, invalid_cursor, read_time_cursor},
};
use crate::{
    auth::ApiCaller,
    bindings::word_schema,
    body::JsonBody,
    error::{ApiError, StaffError},
    finish::SLICE,
    openapi::CallErrors,
    orders::bounded_text,
    reason::given_reason,
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_erasures, erase_subject)).routes(routes!(repeat_erasure))
}

fn subject_schema() -> Object {
    word_schema(["customer", "driver", "order"])
}

/// Lists erasures.
///
/// Keep the list outside the backups, to repeat the erasures after a restore. Each of the `erasures` has subject, id,
/// pseudonym, reason, actor, time, and the number of erased orders. The number is null while the erasure is unfinished.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    responses((status = 200, description = "success", body = Object, example = json!({ "erasures": [example_erasure()] })), CallErrors))]
async fn list_erasures(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    Ok(Json(json!({ "erasures": privacy::list_erasures(&app.core).await? })))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EraseRequest {
    #[schema(schema_with = subject_schema)]
    subject: ErasureSubject,
    /// Id of the customer, the driver or the order.
    #[schema(min_length = 1, max_length = 500)]
    id: String,
    /// Reason, kept in the record together with the actor.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: String,
    /// If true, nothing is erased; `known` of the answer lists the data that would be erased.
    dry_run: bool,
    /// The `next_cursor` of the answer before.
    #[schema(max_length = 500)]
    cursor: Option<String>,
}

/// Erases the data about a person.
///
/// This cannot be undone. `known` lists the orders with personal data and those of them in use, and tells whether a
/// driver has this id. `erased` is the number of erased orders, or null in a dry run. Nothing is erased while one of
/// the orders is in use. One request works for about 30 s. If more is left, `next_cursor` is not null: the same request with it
/// as its `cursor` continues, and `known` of its answer is null.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = EraseRequest,
        example = json!({ "subject": "customer", "id": "CUS-1", "reason": "request 12", "dry_run": true })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "dry_run": true, "known": { "orders": ["ORD-1"], "in_use": [], "driver": false }, "erased": null,
                           "next_cursor": null })),
        CallErrors,
    ))]
async fn erase_subject(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(EraseRequest { subject, id, reason, dry_run, cursor }): JsonBody<EraseRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = given_reason(reason)?;
    let id = bounded_text("id", Some(id))?.unwrap_or_default();
    if dry_run && cursor.is_some() {
        return Err(ApiError::invalid_member("cursor", "cursor must not be given with dry_run"));
    }
    if let Some(erased_at) = read_time_cursor(cursor.as_deref())? {
        let erasure = privacy::find_erasure(&app.core, subject, &id, erased_at).await?;
        let erasure = erasure
            .ok_or_else(|| ApiError::invalid_member("cursor", "cursor does not belong to an erasure of this id"))?;
        let (erased, next) = match erasure.orders {
            Some(orders) => (orders, None),
            None => carry_out(&app.core, &erasure, None).await?,
        };
        return Ok(Json(answer_erasure(&json!(null), &erasure, erased, next.is_some())));
    }
    let known = privacy::find_personal_data(&app.core, subject, &id).await?;
    if known.is_nothing() {
        return Err(StaffError::NothingKnown(subject, id).into());
    }
    if dry_run {
        return Ok(Json(json!({ "dry_run": true, "known": known, "erased": null, "next_cursor": null })));
    }
    let erasure = ErasureRecord::new(subject, &id, &reason, &caller.actor(), db::database_now(&app.core.db).await?);
    let (erased, next) = carry_out(&app.core, &erasure, None).await?;
    Ok(Json(answer_erasure(&json!(known), &erasure, erased, next.is_some())))
}

/// Returns the answer to an erasure that has erased data of `erased` orders. The cursor is the time of the erasure.
fn answer_erasure(known: &Value, erasure: &ErasureRecord, erased: i64, is_left: bool) -> Value {
    let next_cursor = is_left.then(|| erasure.erased_at.timestamp_micros().to_string());
    json!({ "dry_run": false, "known": known, "erased": erased, "next_cursor": next_cursor })
}

/// Erases as much as fits into a request. Returns the number of orders erased so far, and the position if more is left.
async fn carry_out(
    core: &Core,
    erasure: &ErasureRecord,
    repeated: Option<ErasureProgress>,
) -> Result<(i64, Option<ErasureProgress>), ApiError> {
    match privacy::erase_slice(core, erasure, repeated, WorkSlice::lasting(SLICE)).await? {
        ErasureOutcome::Done { orders } => Ok((orders, None)),
        ErasureOutcome::Unfinished { orders, progress } => Ok((orders, Some(progress))),
        ErasureOutcome::InUse(orders) => Err(StaffError::StillInUse(orders).into()),
    }
}

/// A record of an erasure.
#[derive(ToSchema)]
#[schema(as = Erasure)]
#[expect(dead_code, reason = "describes the record; the service reads it")]
struct ErasureSchema {
    #[schema(schema_with = subject_schema)]
    subject: String,
    subject_id: String,
    /// Pseudonym that replaces a driver's id in the history.
    pseudonym: Option<String>,
    reason: String,
    actor: String,
    erased_at: chrono::DateTime<chrono::Utc>,
    orders: Option<i64>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RepeatRequest {
    #[schema(value_type = ErasureSchema)]
    erasure: ErasureRecord,
    /// If true, nothing is erased; `orders` of the answer is the number of orders that would be erased.
    dry_run: bool,
    /// The `next_cursor` of the answer before.
    #[schema(max_length = 2000)]
    cursor: Option<String>,
}

/// Repeats an erasure on a restored backup.
///
/// Repeating it again is harmless. One request works for about 30 s. If more is left, `next_cursor` is not null: the same
/// request with it as its `cursor` continues.
#[utoipa::path(post, path = "/repeat", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = RepeatRequest, example = json!({ "erasure": example_erasure(), "dry_run": true })),
    responses((status = 200, description = "success", body = Object, example = json!({ "orders": 1, "next_cursor": null })), CallErrors))]
async fn repeat_erasure(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(RepeatRequest { erasure, dry_run, cursor }): JsonBody<RepeatRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    if !YEARS.contains(&erasure.erased_at.year()) {
        let rule = format!("erased_at must lie in the years {} to {}", YEARS.start, YEARS.end - 1);
        return Err(ApiError::invalid_member("erasure/erased_at", rule));
    }
    if let Some((member, problem)) = erasure.find_problem(db::database_now(&app.core.db).await?) {
        return Err(ApiError::invalid_member("erasure", format!("{member} {problem}")));
    }
    let repeated = cursor.as_deref().map(serde_json::from_str).transpose();
    let repeated = repeated.ok().filter(|progress| progress.as_ref().is_none_or(ErasureProgress::is_valid));
    let repeated = repeated.ok_or_else(invalid_cursor)?;
    let (orders, next) = if dry_run {
        let orders = privacy::find_data_to_erase(&app.core, &erasure).await?.orders.len();
        (i64::try_from(orders).unwrap_or(i64::MAX), None)
    } else {
        carry_out(&app.core, &erasure, repeated).await?
    };
    let next_cursor = next.map(|progress| json!(progress).to_string());
    Ok(Json(json!({ "orders": orders, "next_cursor": next_cursor })))
}

fn example_erasure() -> Value {
    json!({
        "subject": "customer", "subject_id": "CUS-1", "pseudonym": null, "reason": "request 12", "actor": "admin:root",
        "erased_at": "2026-01-09T08:00:00Z", "orders": 1,
    })
}
