//! Figures of past hours of an area, from which thresholds are proposed.

use app::App;
use areas::table::geofences;
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use chrono::TimeDelta;
use desk::reports::area_hours;
use foundation::db;
use model::{admission::advise::ObservedHour, ids::ServiceType};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    super::{auth::ApiCaller, body::AreaPath, error::ApiError, openapi::AreaErrors},
    READERS,
};

const DAYS: u16 = 28;
const JUDGE_DAYS: u16 = 14;
const MOST_DAYS: u16 = 366;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AreaHoursQuery {
    #[param(value_type = String, example = "RIDE")]
    service_type: ServiceType,
    /// Number of days in `seen`. They end where the days of `later` start.
    #[param(minimum = 0, maximum = 366, default = 28)]
    days: Option<u16>,
    /// Number of days in `later`, counted back from now.
    #[param(minimum = 0, maximum = 366, default = 14)]
    judge_days: Option<u16>,
}

impl AreaHoursQuery {
    fn days(name: &str, given: Option<u16>, default: u16) -> Result<TimeDelta, ApiError> {
        match given.unwrap_or(default) {
            days if days > MOST_DAYS => {
                Err(ApiError::invalid_parameter(name, format!("{name} must be 0 to {MOST_DAYS}")))
            }
            days => Ok(TimeDelta::days(days.into())),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AreaHours {
    /// Number of orders that may wait where no schedule sets another number.
    usual_threshold: i64,
    seen: Vec<ObservedHour>,
    /// Hours for checking a proposed threshold.
    later: Vec<ObservedHour>,
}

/// Returns the figures of an area's hours for a service type.
///
/// The figures of an hour are created orders, orders that found a driver, and the peak of waiting orders. Hours without
/// recorded figures are omitted. `dispatchq area advise` proposes thresholds from the figures.
#[utoipa::path(get, path = "/areas/{area_id}/hours", tag = "areas", params(AreaPath, AreaHoursQuery),
    extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = AreaHours,
         example = json!({ "usual_threshold": 100, "later": [],
             "seen": [{ "day": "MON", "hour": 8, "created": 60, "found_driver": 58, "peak_waiting": 12 }] })),
        AreaErrors,
    ))]
pub(super) async fn show_area_hours(
    State(app): State<App>,
    caller: ApiCaller,
    AreaPath(area): AreaPath,
    query: Result<Query<AreaHoursQuery>, QueryRejection>,
) -> Result<Json<AreaHours>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(AreaHoursQuery { service_type, days, judge_days }) = query?;
    let rules = app.areas.rules.get();
    geofences::find_area(&app.core.db, &area).await?.ok_or(ApiError::NoSuchArea)?;
    if let Some(problem) = app.config.find_unknown_type(&service_type) {
        return Err(ApiError::invalid_parameter("service_type", problem));
    }
    let now = db::database_now(&app.core.db).await?;
    let between = now - AreaHoursQuery::days("judge_days", judge_days, JUDGE_DAYS)?;
    let since = between - AreaHoursQuery::days("days", days, DAYS)?;
    Ok(Json(AreaHours {
        usual_threshold: rules.limits_for(&area, &service_type).max_waiting,
        seen: area_hours::observe_hours(&app.desk, &area, &service_type, (since, between)).await?,
        later: area_hours::observe_hours(&app.desk, &area, &service_type, (between, now)).await?,
    }))
}
