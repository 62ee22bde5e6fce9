//! The page on which a customer follows an order, at `/track/{token}`. Design: docs/design/driver-and-customer-pages.md.
//!
//! * [`page`]: the page. [`map`]: the place of the driver and the pickup.
//! * [`guard`]: headers of every answer, and its error pages.

mod guard;
mod map;
mod page;

use std::future::ready;

use api::orders::tracking::TRACKING_PATH;
use app::App;
use axum::{Router, middleware::from_fn_with_state, routing::get};

use crate::assets;

/// Returns the page for customers, or no page if it is disabled.
pub fn tracking_page(app: &App) -> Router<App> {
    if !app.config.http.tracking {
        return Router::new();
    }
    Router::new()
        .route(&format!("{TRACKING_PATH}/{{token}}"), get(page::show_order).fallback(|| ready(page::no_such_link())))
        .route(&format!("{TRACKING_PATH}/assets/{{name}}"), get(assets::serve_asset))
        .layer(from_fn_with_state(app.clone(), guard::guard_request))
}
