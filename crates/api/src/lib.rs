//! The HTTP faces.
//!
//! * [`orders`]: what producers and drivers do with orders.
//! * [`alerts`]: what support has to do, and that it is done.
//! * [`dispatcher`]: is there room? [`areas`]: how many orders may wait where.
//! * [`drivers`]: where drivers are, whether they want work, and what they are asked.
//! * [`callbacks`]: what partners call.
//! * [`voice`]: what a provider of phone calls calls back.
//! * [`auth`]: bearer keys and roles.
//! * [`finish`]: a request that may change something runs to its end.
//! * [`limits`]: how many requests a key may make, and how many an address with wrong keys. [`client`]: whose address.
//! * [`idempotency`]: a repeated request has the effect and the answer of the first.
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
pub mod orders;
pub mod server;
pub mod voice;
mod write_deadline;

use std::time::Duration;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::header::CONTENT_TYPE,
    middleware::{from_fn, from_fn_with_state},
    routing::get,
};
use metrics_exporter_prometheus::PrometheusHandle;

use self::observe::RequestObserver;
use dispatch::app::App;

/// Larger than any request that makes sense.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// What a body may take once the head is there: no client keeps a connection by sending a byte now and then.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What is served where, as OpenAPI 3.1; a test holds it to the routes.
pub const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// The API of producers and drivers.
pub fn api_router(app: App) -> Router {
    // Checked with the configuration.
    let observer = RequestObserver::new(app.config.http.trusted_networks().unwrap_or_default());
    Router::new()
        .nest("/api/v1/orders", orders::routes())
        .nest("/api/v1/alerts", alerts::routes())
        .nest("/api/v1/drivers", drivers::routes())
        .nest("/api/v1/admin/dispatcher", areas::routes())
        .nest("/api/v1/callbacks", callbacks::routes())
        .route_layer(from_fn_with_state(app.clone(), limits::shed_load))
        // Advice needs no database, and says of itself that it knows nothing.
        .nest("/api/v1/dispatcher", dispatcher::routes())
        // A provider of calls does not ask again: what a driver pressed would be lost.
        .nest("/api/v1/voice", voice::routes())
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], OPENAPI)))
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
