//! Scope of a person: the orders that the person may read, and the pages that are limited to them. All other pages are
//! refused. The filter is that of the API ([`orders::scope`]).

use axum::{
    extract::{FromRequestParts, MatchedPath, RawPathParams},
    http::request::Parts,
};

use crate::{catalogue::tr, page_error::PageError};
use app::App;
use model::scope::Scope;
use notify::alerts;
use orders::scope::list_visible;

/// Paths of the limited pages and of their actions, below the console's path. The page "" redirects to the orders.
const PAGES: [&str; 23] = [
    "",
    "/changes",
    "/orders",
    "/orders/filters/save",
    "/orders/filters/delete",
    "/orders/{id}",
    "/orders/{id}/refund-start",
    "/orders/{id}/refund-done",
    "/orders/{id}/cancel",
    "/orders/{id}/take",
    "/orders/{id}/leave",
    "/orders/{id}/contents",
    "/orders/{id}/contents/change",
    "/orders/{id}/contents/rows",
    "/orders/{id}/contact",
    ORDER_ACTION,
    "/scheduled",
    "/desk",
    "/refunds",
    "/refunds.csv",
    "/alerts",
    ACKNOWLEDGE,
    "/logout",
];
const ORDER_ACTION: &str = "/orders/{id}/{action}";
const ACKNOWLEDGE: &str = "/alerts/{id}/ack";

/// Returns whether a page of the menu is limited to the scope.
pub(crate) fn is_limited(path: &str) -> bool {
    PAGES.contains(&path)
}

/// Checks a request of a person with a scope: its page, and the order or alert that its path names.
pub(crate) async fn check_request(app: &App, scope: &Scope, parts: &mut Parts) -> Result<(), PageError> {
    let path = parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default();
    let page = path.strip_prefix(app.config.console.path.as_str()).unwrap_or("?");
    if !is_limited(page) {
        return Err(PageError::Forbidden(tr("scope.page_not_limited")));
    }
    let params = RawPathParams::from_request_parts(parts, &()).await.ok();
    let id = params.iter().flatten().find(|(name, _)| *name == "id").map(|(_, value)| value);
    match id {
        None => Ok(()),
        Some(id) if page == ACKNOWLEDGE => check_alert(app, scope, id).await,
        Some(id) if sees_order(app, scope, id).await? => Ok(()),
        Some(_) => Err(PageError::NotFound(tr("problem.no_order_id"))),
    }
}

/// Refuses an alert about an order outside of the scope, or about a binding, like a missing one.
async fn check_alert(app: &App, scope: &Scope, id: &str) -> Result<(), PageError> {
    let missing = || PageError::NotFound(tr("alerts.no_alert_id"));
    let id: i64 = id.parse().map_err(|_| missing())?;
    let alert = alerts::load_alert(&app.core.pages, id).await?.ok_or_else(missing)?;
    let order = alert.order_id.ok_or_else(missing)?;
    if sees_order(app, scope, &order).await? { Ok(()) } else { Err(missing()) }
}

async fn sees_order(app: &App, scope: &Scope, id: &str) -> Result<bool, sqlx::Error> {
    Ok(list_visible(&app.core.pages, scope, &[id]).await?.contains(id))
}
