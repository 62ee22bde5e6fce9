//! The web page of dispatchers, support and operators, on the address of `serve`.
//! Design: docs/design/console.md.
//!
//! * [`assets`]: style, scripts and icon, in the binary, under names that change with them.
//! * [`session`]: the person who makes a request. [`cookie`]: cookies, and the transport that they need.
//! * [`guard`]: what every answer carries, and which requests are refused before a handler sees them.
//! * [`refusal`]: refused actions, shown on the page that sent them.
//! * [`page`]: the frame of a page. [`page_error`]: errors of pages. [`deeds`]: labels of actions, and texts after an action.
//!   [`shown`]: times, amounts and states as people read them.
//! * [`language`]: English and Indonesian. [`service_words`]: what services say, in both.
//! * [`form`]: what people fill in, checked at the edge. [`chart`]: small curves. [`map`]: outlines and places. [`table`]: pages that are a table.
//!   [`ticket_link`]: tickets of ticket systems.
//! * `pages`: one file for each page, with its actions. They call the services that the HTTP API calls, and write no SQL.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

mod assets;
mod chart;
mod cookie;
mod deeds;
mod form;
mod guard;
mod language;
mod map;
mod page;
mod page_error;
mod pages;
mod refusal;
mod service_words;
mod session;
mod shown;
mod table;
mod ticket_link;

use app::App;
use axum::{Router, extract::DefaultBodyLimit, middleware::from_fn_with_state, routing::any};

/// Larger than any form.
const MAX_FORM_BYTES: usize = 16 * 1024;

/// The pages, under the path of `[console]`; none if they are switched off.
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
        // The outermost: the guard reads forms.
        .layer(from_fn_with_state(format!("{base}/login"), guard::limit_form_time))
}
