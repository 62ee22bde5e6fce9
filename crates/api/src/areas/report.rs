//! Hourly report about areas and the outcomes of admission requests.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use chrono::Datelike;
use model::input::{Given, GivenTime};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    super::{
        auth::ApiCaller,
        error::ApiError,
        filters,
        openapi::{AreaErrors, example_area_report},
    },
    READERS,
};
use app::App;
use desk::reports::area_report::{self, AreaReport, ReportScope};
use model::ids::AreaId;

/// Default number of hours: a day.
const HOURS: u32 = 24;
/// Maximum number of hours: 31 days. `until` selects earlier hours.
const MOST_HOURS: u32 = 31 * 24;
const MOST_WAITING: i64 = 1_000_000;
/// Years accepted for `until`. Postgres and calendars support all of them.
const YEARS: std::ops::Range<i32> = 2000..3000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AreaReportQuery {
    /// Only this area.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    area_id: Option<Given<AreaId>>,
    /// Number of hours before `until`.
    #[param(minimum = 1, maximum = 744, default = 24)]
    hours: Option<u32>,
    /// End of the report. Default: now.
    #[param(value_type = Option<DateTime<Utc>>)]
    until: Option<GivenTime>,
    /// Also reports the orders that this threshold would have refused.
    #[param(minimum = 0, maximum = 1000000)]
    threshold: Option<i64>,
}

impl AreaReportQuery {
    fn check(&self) -> Result<(), ApiError> {
        let refuse = |name: &str, rule: String| Err(ApiError::invalid_parameter(name, format!("{name} {rule}")));
        if self.hours.is_some_and(|hours| !(1..=MOST_HOURS).contains(&hours)) {
            return refuse("hours", format!("must be 1 to {MOST_HOURS}"));
        }
        if self.until.is_some_and(|until| !YEARS.contains(&until.time().year())) {
            return refuse("until", format!("must lie in the years {} to {}", YEARS.start, YEARS.end - 1));
        }
        if self.threshold.is_some_and(|threshold| !(0..=MOST_WAITING).contains(&threshold)) {
            return refuse("threshold", format!("must be 0 to {MOST_WAITING}"));
        }
        Ok(())
    }
}

/// Returns the status of areas and the outcomes of admission requests, hour by hour.
///
/// The answer has every hour and area of the time range. With `threshold` it also has the refusals that this threshold
/// would have caused.
#[utoipa::path(get, path = "/areas/report", tag = "areas", params(AreaReportQuery), extensions(("x-roles" = json!(READERS))),
    responses((status = 200, description = "success", body = AreaReport, example = json!(example_area_report())), AreaErrors))]
pub(super) async fn show_area_report(
    State(app): State<App>,
    caller: ApiCaller,
    query: Result<Query<AreaReportQuery>, QueryRejection>,
) -> Result<Json<AreaReport>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(query) = query?;
    query.check()?;
    let area = query.area_id.map(|Given(area)| area);
    filters::check_area(&app, "area_id", area.as_ref()).await?;
    let scope = ReportScope {
        area: area.as_ref(),
        hours: query.hours.unwrap_or(HOURS),
        until: query.until.map(GivenTime::time),
        threshold: query.threshold,
    };
    Ok(Json(area_report::load_area_report(&app.desk, scope).await?))
}
