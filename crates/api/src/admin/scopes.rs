//! Scopes of keys and users in requests.

use crate::error::ApiError;
use accounts::key_admin;
use app::App;
use model::scope::Scope;

/// Checks a scope. A scope without lists is none.
pub(super) async fn check_scope(app: &App, scope: Option<Scope>) -> Result<Option<Scope>, ApiError> {
    let Some(scope) = scope.filter(|scope| !scope.is_unlimited()) else { return Ok(None) };
    match find_scope_problem(app, &scope).await? {
        Some((list, problem)) => Err(ApiError::invalid_member(&format!("scope/{list}"), problem)),
        None => Ok(Some(scope)),
    }
}

/// Returns the first list of a scope that breaks a rule, with its problem. An area, service type, partner or producer
/// that does not exist is a problem, because a misspelt name would hide every order.
pub async fn find_scope_problem(app: &App, scope: &Scope) -> Result<Option<(&'static str, String)>, sqlx::Error> {
    if let Some((list, problem)) = scope.find_problem() {
        return Ok(Some((list, format!("scope.{list} {problem}"))));
    }
    if let Some(found) = find_unknown_name(app, scope) {
        return Ok(Some(found));
    }
    let producers = scope.producers.as_deref().unwrap_or_default();
    let unknown = key_admin::find_unknown_producer(&app.core.db, producers).await?;
    Ok(unknown.map(|name| ("producers", format!("no key of a producer has the name '{name}'"))))
}

/// Returns the list and the problem of the first unknown area, service type or partner.
fn find_unknown_name(app: &App, scope: &Scope) -> Option<(&'static str, String)> {
    let geofence = &app.areas.rules.get().geofence;
    // Without defined areas, orders keep the area that their producer names.
    let unknown_area = scope.areas.iter().flatten().find(|area| !geofence.is_empty() && geofence.get(area).is_none());
    let unknown_type = scope.service_types.iter().flatten().find_map(|name| app.config.find_unknown_type(name));
    let unknown_partner = scope.partners.iter().flatten().find(|name| !app.config.partners.contains_key(*name));
    unknown_area
        .map(|area| ("areas", format!("no area '{area}'; see: dispatchq area list")))
        .or_else(|| unknown_type.map(|problem| ("service_types", problem)))
        .or_else(|| unknown_partner.map(|name| ("partners", format!("no partner '{name}'; see: GET /api/v1/partners"))))
}
