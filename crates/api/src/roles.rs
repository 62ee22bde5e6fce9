//! Role check before the path, query and body of a request are read. It uses the `x-roles` of the operation in the
//! OpenAPI document, so that it also covers new operations.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::Value;

use super::{
    auth::{ApiCaller, KnownCaller},
    body,
    openapi::OPENAPI,
    scope,
};
use accounts::api_keys::AccountRole;
use app::App;

/// Roles of each operation, by path and method. Operations without a key are not included.
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

/// Middleware that identifies the caller, and answers 403 if the role may not call the operation, or 404 if the request
/// is about an order outside of the caller's scope. The handler takes the caller from the request.
pub(super) async fn check_role(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(roles) = roles_of(&request) else { return next.run(request).await };
    let (mut parts, body) = request.into_parts();
    let caller = ApiCaller::identify(&mut parts, &app).await;
    let refusal = match &caller {
        Ok(known) => known.require_role(roles).and_then(|()| body::without_nul_in_url(&parts.uri)).err(),
        Err(_) => None,
    };
    let refusal = match (&caller, refusal) {
        (Ok(known), None) => scope::check_request(&app, known, &mut parts).await.err(),
        (_, refusal) => refusal,
    };
    if let Some(refusal) = refusal {
        return refusal.into_response();
    }
    // Operations have their own answer for a key that cannot be looked up.
    let caller = match caller {
        Err(error) if !error.is_unavailable() => return error.into_response(),
        caller => caller,
    };
    parts.extensions.insert(KnownCaller::new(caller));
    next.run(Request::from_parts(parts, body)).await
}

/// Middleware that refuses the character U+0000 in the address of operations without a role, which [`check_role`] does
/// not check. The status is 422.
pub(super) async fn printable_url(request: Request, next: Next) -> Response {
    if roles_of(&request).is_none()
        && let Err(refusal) = body::without_nul_in_url(request.uri())
    {
        return refusal.into_response();
    }
    next.run(request).await
}

/// Returns the roles that may call the operation of a request; `None` if it needs no key or does not exist.
pub(super) fn roles_of(request: &Request) -> Option<&'static [AccountRole]> {
    let path = request.extensions().get::<MatchedPath>()?.as_str().to_owned();
    let method = if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    ROLES.get(&(path, method)).map(Vec::as_slice)
}
