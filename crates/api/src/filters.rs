//! Checks of filter values. A name that does not exist is refused, because an empty list would hide the spelling error.

use super::error::ApiError;
use app::App;
use model::ids::{AreaId, ServiceType};

/// Refuses a service type that neither the configuration nor Postgres knows. A removed type remains valid, so its
/// orders can be found.
pub(crate) async fn check_service_type(app: &App, given: Option<&ServiceType>) -> Result<(), ApiError> {
    let Some((name, problem)) = given.and_then(|name| Some((name, app.config.find_unknown_type(name)?))) else {
        return Ok(());
    };
    let was_known: bool = sqlx::query_scalar(
        "-- service type was known
         SELECT EXISTS (SELECT 1 FROM service_types WHERE service_type = $1)",
    )
    .bind(name)
    .fetch_one(&app.core.db)
    .await?;
    if was_known { Ok(()) } else { Err(ApiError::invalid_parameter("service_type", problem)) }
}

/// Refuses an area that never existed. `parameter` is the name of the filter.
pub(crate) async fn check_area(app: &App, parameter: &str, given: Option<&AreaId>) -> Result<(), ApiError> {
    // Without defined areas, orders keep the area that their producer names.
    let Some(area) = given.filter(|_| !app.areas.rules.get().geofence.is_empty()) else { return Ok(()) };
    let was_known: bool = sqlx::query_scalar(
        "-- area was known
         SELECT EXISTS (SELECT 1 FROM areas WHERE id = $1) OR EXISTS (SELECT 1 FROM admission_audit WHERE area_id = $1)",
    )
    .bind(area)
    .fetch_one(&app.core.db)
    .await?;
    if was_known {
        return Ok(());
    }
    Err(ApiError::invalid_parameter(parameter, format!("no area '{area}'; see: dispatchq area list")))
}
