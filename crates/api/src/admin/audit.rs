//! The audit trail of staff actions: `/api/v1/admin/audit`.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use model::input::GivenTime;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{OPERATORS, examples::example_audit};
use crate::{
    auth::ApiCaller,
    bindings::{next_cursor, page_size, word_schema},
    error::ApiError,
    openapi::CallErrors,
    orders::bounded_parameter,
};
use app::App;
use foundation::db;
use maintenance::audit::trail::{self, TrailFilter, TrailPlace, TrailSource, TrailSpan};

const TOO_MUCH: &str =
    "the actions in this time range could not be read within 2 s: use a shorter time range, or a source";

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_audit_entries))
}

fn source_schema() -> Object {
    word_schema(TrailSource::ALL.map(TrailSource::as_str))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AuditListQuery {
    /// Only changes from this source.
    #[param(schema_with = source_schema)]
    source: Option<TrailSource>,
    /// Only actions of this person: a name, or role and name such as `support:anna`.
    who: Option<String>,
    /// Only actions on the object with this id.
    subject: Option<String>,
    /// Only actions at this time or later. Default: seven days before `to`.
    #[param(value_type = Option<DateTime<Utc>>)]
    from: Option<GivenTime>,
    /// Only actions before this time. Default: now.
    #[param(value_type = Option<DateTime<Utc>>)]
    to: Option<GivenTime>,
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[0-9]{1,15}\\.[!-~]{1,300}$")]
    cursor: Option<String>,
    /// Maximum number of entries per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Lists the actions of staff, newest first, page by page.
///
/// Each of the `entries` has time, actor, key, action, object, old and new value, reason, client address and route. One
/// request covers at most 93 days. It is refused with 422 if the range takes longer than two seconds to read.
#[utoipa::path(get, path = "/", tag = "admin", params(AuditListQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_audit())), CallErrors))]
async fn list_audit_entries(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<AuditListQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    // Reads eleven tables. The connections for pages have a statement timeout, and orders do not use them.
    let app = app.showing();
    let Query(AuditListQuery { source, who, subject, from, to, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    let filter =
        TrailFilter { source, who: bounded_parameter("who", who)?, subject: bounded_parameter("subject", subject)? };
    let span =
        TrailSpan::new(from.map(GivenTime::time), to.map(GivenTime::time), db::database_now(&app.core.db).await?);
    let span = span.map_err(|error| ApiError::invalid_parameter("from", error.to_string()))?;
    let after = cursor.map(|cursor| cursor.parse::<TrailPlace>()).transpose();
    let after = after.map_err(|error| ApiError::invalid_parameter("cursor", error.to_string()))?;
    let entries = trail::list_trail(&app.core.db, &filter, span, after.as_ref(), limit).await.map_err(|error| {
        if db::is_out_of_time(&error) { ApiError::invalid_parameter("from", TOO_MUCH) } else { error.into() }
    })?;
    let next_cursor = next_cursor(&entries, limit, |entry| TrailPlace::from(entry).to_string());
    Ok(Json(json!({ "entries": entries, "next_cursor": next_cursor, "from": span.from, "to": span.to })))
}
