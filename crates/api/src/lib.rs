//! The HTTP faces.
//!
//! * [`orders`]: what producers and drivers do with orders.
//! * [`alerts`]: what support has to do, and that it is done.
//! * [`dispatcher`]: is there room? `busy`: the answer. [`areas`]: how many orders may wait where.
//! * [`drivers`]: where drivers are, whether they want work, and what they are asked.
//! * [`callbacks`]: what partners call.
//! * [`voice`]: what a provider of phone calls calls back.
//! * [`auth`]: bearer keys and roles.
//! * [`finish`]: a request that may change something runs to its end.
//! * [`limits`]: how many requests a key may make, and how many an address with wrong keys. [`client`]: whose address.
//! * [`idempotency`]: a repeated request has the effect and the answer of the first.
//! * [`openapi`]: the API as OpenAPI, made of what stands beside the handlers.
//! * [`error`]: every error as `{error_code, message}` with its status.
//! * [`body`]: JSON bodies, checked at the edge.
//! * `observe`: an id for each request, metrics by route and status, and who was refused.
//! * [`health`]: /healthz, /readyz.
//! * [`metrics`]: what /metrics shows.
//! * [`server`]: listening, and ending in good order. `connections`: how many, and which of them goes when there are too many;
//!   `write_deadline`: answers must be read in time.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod alerts;
pub mod areas;
pub mod auth;
pub mod body;
mod busy;
pub mod callbacks;
pub mod client;
mod connections;
pub mod dispatcher;
pub mod drivers;
pub mod error;
mod finish;
pub mod health;
pub mod idempotency;
pub mod limits;
pub mod metrics;
mod observe;
pub mod openapi;
pub mod orders;
pub mod server;
pub mod voice;
mod write_deadline;

use std::time::Duration;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::{from_fn, from_fn_with_state},
    routing::get,
};
use dispatch::app::App;
use metrics_exporter_prometheus::PrometheusHandle;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::observe::RequestObserver;
pub use self::openapi::OPENAPI;

/// Larger than any request that makes sense.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// What a body may take once the head is there: no client keeps a connection by sending a byte now and then.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What is refused while a long queue waits for Postgres.
fn sheddable_routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::document_head())
        .nest("/api/v1/orders", orders::routes())
        .nest("/api/v1/alerts", alerts::routes())
        .nest("/api/v1/drivers", drivers::routes())
        .nest("/api/v1/admin/dispatcher", areas::routes())
        .nest("/api/v1/callbacks", callbacks::routes())
}

/// What is answered however long that queue is.
fn steady_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        // Advice asks Postgres only whose an unknown key is and, without Redis, how many orders wait. It says of itself when
        // it cannot tell.
        .nest("/api/v1/dispatcher", dispatcher::routes())
        // A provider of calls does not ask again: what a driver pressed would be lost.
        .nest("/api/v1/voice", voice::routes())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(openapi::serve_document))
}

/// The API of producers and drivers.
pub fn api_router(app: App) -> Router {
    // Checked with the configuration.
    let observer = RequestObserver::new(app.config.http.trusted_networks().unwrap_or_default());
    Router::from(sheddable_routes())
        .route_layer(from_fn_with_state(app.clone(), limits::shed_load))
        .merge(steady_routes())
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(BODY_TIME, body::limit_body_time))
        .layer(from_fn(body::printable_url))
        .layer(from_fn_with_state(app.clone(), limits::limit_failures))
        .layer(from_fn_with_state(observer, observe::observe_request))
        .with_state(app)
}

/// What operators and their tools look at; on its own port.
pub fn admin_router(app: App, handle: PrometheusHandle) -> Router {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(move |state| metrics::render_metrics(state, handle.clone())))
        .fallback(error::no_such_path)
        .with_state(app)
}
