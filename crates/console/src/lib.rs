//! The console: the web pages of dispatchers, support, operators and admins, on the address of `serve`, the pages for
//! drivers and customers, and the reference of the API. Design: docs/design/console.md.
//!
//! * [`assets`]: style, scripts and icon, in the binary, with a hash of their content in their names.
//! * [`session`]: the person who makes a request. [`scope`]: pages that are limited to a person's orders. [`cookie`]: cookies, and the transport that they need.
//! * [`guard`]: headers of every answer, and requests that are refused before a handler runs.
//! * [`refusal`]: refused actions, shown on the page that sent them.
//! * [`page`]: the frame of a page. [`page_error`]: errors of pages. [`shown`]: times, amounts and
//!   states as people read them.
//! * [`language`]: the language of a request. [`catalogue`]: texts in English and Indonesian. [`reasons`]: values of
//!   services as sentences.
//! * [`form`]: validation of form fields. [`chart`]: small curves. [`map`]: maps of areas, orders and the fleet. [`table`]: pages
//!   that are a table. [`ticket_link`]: links to ticket systems. [`outside_link`]: links to other systems.
//! * [`driver_page`](mod@driver_page): the page for drivers, which shares the frame, the texts and the guard.
//! * [`docs_page`](mod@docs_page): the reference of the API.
//! * [`tracking`]: the page for customers.
//! * `pages`: one file per page, with its actions. They call the same services as the HTTP API, and contain no SQL.

// The futures of handlers nest deeper than the default limit.
#![recursion_limit = "256"]

mod assets;
mod catalogue;
mod chart;
mod cookie;
mod docs_page;
mod driver_page;
mod form;
mod guard;
mod language;
mod map;
mod outside_link;
mod page;
mod page_error;
mod pages;
mod reasons;
mod refusal;
mod scope;
mod session;
mod shown;
mod table;
mod ticket_link;
mod tracking;

use app::App;
use axum::{Router, extract::DefaultBodyLimit, middleware::from_fn_with_state, routing::any};
pub use docs_page::docs_page;
pub use driver_page::driver_page;
pub use tracking::tracking_page;

/// Maximum size of a form.
const MAX_FORM_BYTES: usize = 16 * 1024;

/// Returns the pages under the path of `[console]`, or no pages if the console is disabled.
pub fn console_pages(app: &App) -> Router<App> {
    if !app.config.console.enabled {
        return Router::new();
    }
    let base = app.config.console.path.as_str();
    let routes = pages::routes(base)
        .route(&format!("{base}/{{*rest}}"), any(page::no_such_page))
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES));
    let guard = guard::PageGuard { app: app.clone(), pages: routes.clone().with_state(app.clone()) };
    routes
        .layer(from_fn_with_state(guard, guard::guard_request))
        // The outermost layer, because the guard reads forms.
        .layer(from_fn_with_state(format!("{base}/login"), guard::limit_form_time))
}
