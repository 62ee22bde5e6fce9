//! Erasing what is known about a person: `/api/v1/admin/erasures`. docs/PRIVACY.md says what is erased.

use app::App;
use axum::{Json, extract::State};
use chrono::Datelike;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
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

/// Times of erasures that Postgres and calendars know for sure.
const YEARS: std::ops::Range<i32> = 2000..3000;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_erasures, erase_subject)).routes(routes!(repeat_erasure))
}

fn subject_schema() -> Object {
    word_schema(["customer", "driver", "order"])
}

/// Lists who was erased, to be kept apart from the backups.
///
/// `erasures`: subject, id, pseudonym, reason, actor, time, and orders that held something; null while it is not finished.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    responses((status = 200, description = "done", body = Object, example = json!({ "erasures": [example_erasure()] })), CallErrors))]
async fn list_erasures(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    Ok(Json(json!({ "erasures": privacy::list_erasures(&app.core).await? })))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EraseRequest {
    #[schema(schema_with = subject_schema)]
    subject: ErasureSubject,
    /// The id of the customer, the driver or the order.
    #[schema(min_length = 1, max_length = 500)]
    id: String,
    /// Why; kept with who did it.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: String,
    /// True: nothing is erased; `known` of the answer says what would be.
    dry_run: bool,
}

/// Erases what is known about a person. It cannot be undone.
///
/// `known`: the orders that hold something, those of them that are in use, and whether there is a driver. `erased`: orders that were
/// erased; null in a dry run. While an order is in use nothing is erased.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = EraseRequest,
        example = json!({ "subject": "customer", "id": "CUS-1", "reason": "request 12", "dry_run": true })),
    responses(
        (status = 200, description = "done", body = Object,
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
    let erased = carry_out(&app, &erasure).await?;
    Ok(Json(json!({ "dry_run": false, "known": known, "erased": erased })))
}

/// Returns the number of orders that were erased.
async fn carry_out(app: &App, erasure: &ErasureRecord) -> Result<i64, ApiError> {
    match privacy::erase_subject(&app.core, erasure).await? {
        ErasureOutcome::Done { orders } => Ok(orders),
        ErasureOutcome::InUse(orders) => Err(StaffError::StillInUse(orders).into()),
    }
}

/// An erasure as the list shows it.
#[derive(ToSchema)]
#[schema(as = Erasure)]
#[expect(dead_code, reason = "describes the record; the service reads it")]
struct ErasureSchema {
    #[schema(schema_with = subject_schema)]
    subject: String,
    subject_id: String,
    /// What stands for a driver in the history.
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
    /// True: nothing is erased; `orders` of the answer counts what would be.
    dry_run: bool,
}

/// Repeats an erasure on a restored backup. Repeating is harmless.
#[utoipa::path(post, path = "/repeat", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = RepeatRequest, example = json!({ "erasure": example_erasure(), "dry_run": true })),
    responses((status = 200, description = "done", body = Object, example = json!({ "orders": 1 })), CallErrors))]
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
        carry_out(&app, &erasure).await?
    };
    Ok(Json(json!({ "orders": orders })))
}

fn example_erasure() -> Value {
    json!({
        "subject": "customer", "subject_id": "CUS-1", "pseudonym": null, "reason": "request 12", "actor": "admin:root",
        "erased_at": "2026-01-09T08:00:00Z", "orders": 1,
    })
}
