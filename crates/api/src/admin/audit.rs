//! What staff did: `/api/v1/admin/audit`.

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

const TOO_MUCH: &str = "what staff did in this time could not be read within 2 s: name a shorter time, or a source";

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
    /// only changes of this kind of thing
    #[param(schema_with = source_schema)]
    source: Option<TrailSource>,
    /// only by this person: a name, or role and name such as support:anna
    who: Option<String>,
    /// only of what has this id
    subject: Option<String>,
    /// only at this time or later; without it the seven days before `to`
    #[param(value_type = Option<DateTime<Utc>>)]
    from: Option<GivenTime>,
    /// only before this time; without it until now
    #[param(value_type = Option<DateTime<Utc>>)]
    to: Option<GivenTime>,
    /// the `next_cursor` of the page before
    #[param(pattern = "^[0-9]{1,15}\\.[!-~]{1,300}$")]
    cursor: Option<String>,
    /// entries of one page
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Lists what staff did, the newest first, page by page.
///
/// `entries`: when, who, with which key, what was done to what, from which old
/// value to which new one, why, and from which address by which route. At most 93 days are read at once;
/// days that take longer than two seconds are refused.
#[utoipa::path(get, path = "/", tag = "admin", params(AuditListQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "done", body = Object, example = json!(example_audit())), CallErrors))]
async fn list_audit_entries(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<AuditListQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    // Eleven histories at once: on the connections of pages, whose statements end, and which no order waits for.
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
