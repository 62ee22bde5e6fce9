//! Scope of staff: the orders that a key may read. A caller with a scope may call the operations that are listed here;
//! all others are refused, because they are not limited to a scope. An order outside of the scope does not exist for
//! the caller. Design: docs/design/staff-and-roles.md.

use std::collections::HashSet;

use axum::{
    extract::{FromRequestParts, MatchedPath, RawPathParams},
    http::{Method, request::Parts},
};

use super::{auth::ApiCaller, error::ApiError};
use app::App;
use model::scope::Scope;
use notify::alerts;
use orders::scope::list_visible;

/// Operations for callers with a scope. The handlers of the lists remove rows with [`retain_visible`].
const OPERATIONS: [(Method, &str); 18] = [
    (Method::GET, "/api/v1/orders"),
    (Method::GET, "/api/v1/orders/{id}"),
    (Method::PATCH, "/api/v1/orders/{id}"),
    (Method::POST, "/api/v1/orders/{id}/assign"),
    (Method::POST, "/api/v1/orders/{id}/cancel"),
    (Method::GET, "/api/v1/orders/{id}/contact"),
    (Method::GET, "/api/v1/orders/{id}/explain"),
    (Method::POST, "/api/v1/orders/{id}/hold"),
    (Method::POST, "/api/v1/orders/{id}/leave"),
    (Method::POST, "/api/v1/orders/{id}/redispatch"),
    (Method::POST, "/api/v1/orders/{id}/refund"),
    (Method::POST, "/api/v1/orders/{id}/release"),
    (Method::POST, "/api/v1/orders/{id}/resume"),
    (Method::GET, "/api/v1/orders/{id}/take"),
    (Method::POST, "/api/v1/orders/{id}/take"),
    (Method::GET, "/api/v1/orders/{id}/timeline"),
    (Method::GET, "/api/v1/alerts"),
    (Method::GET, "/api/v1/refunds"),
];
const ACKNOWLEDGE: (Method, &str) = (Method::POST, "/api/v1/alerts/{id}/ack");

/// Checks a request of a caller with a scope: its operation, and the order or alert that its path names.
pub(super) async fn check_request(app: &App, caller: &ApiCaller, parts: &mut Parts) -> Result<(), ApiError> {
    let Some(scope) = caller.scope().cloned() else { return Ok(()) };
    let path = parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default();
    let method = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
    let id = id_in_path(parts).await;
    match (&id, (method, path.as_str())) {
        (Some(id), operation) if operation == ACKNOWLEDGE => check_alert(app, &scope, id).await,
        (_, operation) if !OPERATIONS.contains(&operation) => Err(ApiError::OutOfScope),
        (Some(id), _) => check_order(app, &scope, id).await,
        (None, _) => Ok(()),
    }
}

/// Returns the id in the path of a request, decoded like that of the handler.
async fn id_in_path(parts: &mut Parts) -> Option<String> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    params.iter().find(|(name, _)| *name == "id").map(|(_, value)| value.to_owned())
}

/// Refuses an order outside of the scope like a missing one.
async fn check_order(app: &App, scope: &Scope, id: &str) -> Result<(), ApiError> {
    let visible = list_visible(&app.core.read_only, scope, &[id]).await?;
    if visible.contains(id) { Ok(()) } else { Err(ApiError::NoSuchOrder) }
}

/// Refuses an alert about an order outside of the scope, or about a binding, like a missing one.
async fn check_alert(app: &App, scope: &Scope, id: &str) -> Result<(), ApiError> {
    let id: i64 = id.parse().map_err(|_| ApiError::NoSuchAlert)?;
    let alert = alerts::load_alert(&app.core.read_only, id).await?.ok_or(ApiError::NoSuchAlert)?;
    let order = alert.order_id.ok_or(ApiError::NoSuchAlert)?;
    check_order(app, scope, &order).await.map_err(|error| match error {
        ApiError::NoSuchOrder => ApiError::NoSuchAlert,
        error => error,
    })
}

/// Removes the rows of orders outside of the scope, and rows without an order. Without a scope all rows stay.
pub async fn retain_visible<T>(
    app: &App,
    scope: Option<&Scope>,
    rows: &mut Vec<T>,
    order: impl Fn(&T) -> Option<&str>,
) -> Result<(), sqlx::Error> {
    let Some(scope) = scope else { return Ok(()) };
    let ids: Vec<&str> = rows.iter().filter_map(&order).collect();
    let visible: HashSet<String> = list_visible(&app.core.read_only, scope, &ids).await?;
    rows.retain(|row| order(row).is_some_and(|id| visible.contains(id)));
    Ok(())
}
