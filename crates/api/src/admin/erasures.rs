//! Erasure of personal data: `/api/v1/admin/erasures`. docs/PRIVACY.md lists the erased data.

use app::App;
use axum::{Json, extract::State};
use chrono::Datelike;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::core::Core;
use foundation::db;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{ToSchema, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::ADMINS;
use crate::{
    auth::ApiCaller,
    bindings::word_schema,
    body::JsonBody,
    error::{ApiError, StaffError},
    openapi::CallErrors,
    orders::bounded_text,
    reason::given_reason,
};

/// Years accepted for the time of an erasure. Postgres and calendars support all of them.
const YEARS: std::ops::Range<i32> = 2000..3000;

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
}

/// Erases the data about a person.
///
/// This cannot be undone. `known` lists the orders with personal data and those of them in use, and tells whether a
/// driver has this id. `erased` is the number of erased orders, or null in a dry run. Nothing is erased while one of
/// the orders is in use.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = EraseRequest,
        example = json!({ "subject": "customer", "id": "CUS-1", "reason": "request 12", "dry_run": true })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "dry_run": true, "known": { "orders": ["ORD-1"], "in_use": [], "driver": false }, "erased": null })),
        CallErrors,
    ))]
async fn erase_subject(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(EraseRequest { subject, id, reason, dry_run }): JsonBody<EraseRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = given_reason(reason)?;
    let id = bounded_text("id", Some(id))?.unwrap_or_default();
    let known = privacy::find_personal_data(&app.core, subject, &id).await?;
    if known.is_nothing() {
        return Err(StaffError::NothingKnown(subject, id).into());
    }
    if dry_run {
        return Ok(Json(json!({ "dry_run": true, "known": known, "erased": null })));
    }
    let erasure = ErasureRecord::new(subject, &id, &reason, &caller.actor(), db::database_now(&app.core.db).await?);
    let erased = carry_out(&app.core, &erasure).await?;
    Ok(Json(json!({ "dry_run": false, "known": known, "erased": erased })))
}

/// Erases the data and returns the number of erased orders.
async fn carry_out(core: &Core, erasure: &ErasureRecord) -> Result<i64, ApiError> {
    match privacy::erase_subject(core, erasure).await? {
        ErasureOutcome::Done { orders } => Ok(orders),
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
}

/// Repeats an erasure on a restored backup.
///
/// Repeating it again is harmless.
#[utoipa::path(post, path = "/repeat", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = RepeatRequest, example = json!({ "erasure": example_erasure(), "dry_run": true })),
    responses((status = 200, description = "success", body = Object, example = json!({ "orders": 1 })), CallErrors))]
async fn repeat_erasure(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(RepeatRequest { erasure, dry_run }): JsonBody<RepeatRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    if !YEARS.contains(&erasure.erased_at.year()) {
        let rule = format!("erased_at must lie in the years {} to {}", YEARS.start, YEARS.end - 1);
        return Err(ApiError::invalid_member("erasure/erased_at", rule));
    }
    if let Some((member, problem)) = erasure.find_problem(db::database_now(&app.core.db).await?) {
        return Err(ApiError::invalid_member("erasure", format!("{member} {problem}")));
    }
    let orders = if dry_run {
        i64::try_from(privacy::find_data_to_erase(&app.core, &erasure).await?.orders.len()).unwrap_or(i64::MAX)
    } else {
        carry_out(&app.core, &erasure).await?
    };
    Ok(Json(json!({ "orders": orders })))
}

fn example_erasure() -> Value {
    json!({
        "subject": "customer", "subject_id": "CUS-1", "pseudonym": null, "reason": "request 12", "actor": "admin:root",
        "erased_at": "2026-01-09T08:00:00Z", "orders": 1,
    })
}
