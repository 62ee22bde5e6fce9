//! The reference of the API at `/docs`. Redoc, one vendored script, renders /openapi.json in the browser. The page needs
//! no key, loads nothing from other hosts, and sends no request of the API.

use askama::Template;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, header::CONTENT_SECURITY_POLICY},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::get,
};

use crate::{assets, guard::protect_answer, page, page_error::PageError};
use app::App;

/// Path of the page.
const BASE: &str = "/docs";
/// Redoc writes styles into the page and searches in a worker that it creates from a blob. Scripts are files of
/// `serve`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; worker-src blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage {
    base: &'static str,
    icon: &'static str,
    viewer: &'static str,
    script: &'static str,
}

/// Returns the reference of the API, or no page if it is disabled.
pub fn docs_page(app: &App) -> Router<App> {
    if !app.config.http.docs {
        return Router::new();
    }
    Router::new()
        .route(BASE, get(show_page))
        .route("/docs/assets/{name}", get(assets::serve_asset))
        .layer(from_fn_with_state(app.clone(), protect_page))
}

async fn show_page() -> Result<Response, PageError> {
    page::render(&DocsPage {
        base: BASE,
        icon: assets::icon_name(),
        viewer: assets::docs_viewer_name(),
        script: assets::docs_script_name(),
    })
}

/// Adds the response headers of the console, with the content security policy of this page.
async fn protect_page(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    protect_answer(&app, &mut answer);
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer
}
