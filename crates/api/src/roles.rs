//! Who may call an operation. The role is checked before the path, the query and the body are read, by the `x-roles` that the
//! OpenAPI document names for the operation; so later operations are covered, too.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use dispatch::{accounts::api_keys::AccountRole, app::App};
use serde_json::Value;

use super::{
    auth::{ApiCaller, KnownCaller},
    openapi::OPENAPI,
};

/// The roles of each operation, by path and method. Operations without a key are not among them.
static ROLES: LazyLock<HashMap<(String, Method), Vec<AccountRole>>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(&OPENAPI).unwrap_or_default();
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, methods)| {
        methods.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
    });
    let roles = operations.filter_map(|(path, method, operation)| {
        let method = method.to_uppercase().parse().ok()?;
        let roles = serde_json::from_value(operation["x-roles"].clone()).ok()?;
        Some(((path.clone(), method), roles))
    });
    roles.collect()
});

/// Middleware: finds the caller, and answers 403 to a caller whose role may not call the operation. The handler takes the caller from
/// the request.
pub(super) async fn check_role(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let method = if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    let Some(roles) = ROLES.get(&(path, method)) else { return next.run(request).await };
    let (mut parts, body) = request.into_parts();
    let caller = ApiCaller::identify(&mut parts, &app).await;
    if let Ok(caller) = &caller
        && let Err(refusal) = caller.require_role(roles)
    {
        return refusal.into_response();
    }
    parts.extensions.insert(KnownCaller::new(caller));
    next.run(Request::from_parts(parts, body)).await
}
