//! The page for drivers without an app of the company, at `/driver`. Design: docs/design/driver-and-customer-pages.md.
//!
//! * [`sign_in`]: sign-in with a one-time code, sign-out. [`session`]: the driver who makes a request.
//! * [`home`]: the page: offers, the order of the driver, availability. [`contents`]: places, notes and contact of an
//!   order. [`actions`]: its forms. [`outcome`]: the text about the last action.
//! * [`guard`]: headers of every answer, and requests that are refused before a handler runs. [`manifest`]: makes the
//!   page installable. [`push`]: push messages.

mod actions;
mod contents;
mod guard;
mod home;
mod manifest;
mod outcome;
mod push;
mod session;
mod sign_in;

use api::drivers::SIGN_IN_PATH;
use app::App;
use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::from_fn_with_state,
    routing::{any, get, post},
};

use crate::{MAX_FORM_BYTES, assets, guard::limit_form_time, page};

/// Path of the page.
const BASE: &str = "/driver";

/// Returns the page for drivers, or no page if it is disabled.
pub fn driver_page(app: &App) -> Router<App> {
    if !app.config.http.driver_page {
        return Router::new();
    }
    Router::new()
        .route(BASE, get(home::show_page))
        .route("/driver/assets/{name}", get(assets::serve_asset))
        .route("/driver/manifest.webmanifest", get(manifest::serve_manifest))
        .route("/driver/sw.js", get(push::serve_worker))
        .route("/driver/push", post(push::register_browser))
        .route(SIGN_IN_PATH, get(sign_in::show_page).post(sign_in::sign_in))
        .route("/driver/sign-out", post(sign_in::sign_out))
        .route("/driver/language", post(sign_in::choose_language))
        .route("/driver/duty", post(actions::set_duty))
        .route("/driver/location", post(actions::record_location))
        .route("/driver/orders/{id}/accept", post(actions::accept_offer))
        .route("/driver/orders/{id}/decline", post(actions::decline_offer))
        .route("/driver/orders/{id}/pickup", post(actions::pick_up))
        .route("/driver/orders/{id}/complete", post(actions::complete_order))
        .route("/driver/orders/{id}/return", post(actions::return_order))
        .route("/driver/{*rest}", any(page::no_such_page))
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(from_fn_with_state(app.clone(), guard::guard_request))
        // The outermost layer, because the guard reads forms.
        .layer(from_fn_with_state(SIGN_IN_PATH.to_owned(), limit_form_time))
}
