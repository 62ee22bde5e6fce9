//! The HTTP faces.
//! Design: docs/design/http-api.md.
//!
//! * [`orders`]: what producers and drivers do with orders.
//! * `admin`: queues, jobs, dead letters, messages, keys and users for operators and admins.
//! * [`refunds`]: the money that is to go back.
//! * [`alerts`]: what support has to do, and that it is done.
//! * [`dispatcher`]: is there room? `busy`: the answer. [`areas`]: how many orders may wait where.
//! * [`bindings`]: accounts at providers, on which one transaction follows the other. [`provider_servers`]: where they run.
//! * `partners`: whether partners are called, and the share of their orders that is polled.
//! * [`plans`]: mass actions, made, shown, run and cancelled.
//! * [`events`]: the steps of orders, as a stream. [`webhooks`]: what producers are posted, for the document.
//! * [`drivers`]: where drivers are, whether they want work, and what they are asked.
//! * [`callbacks`]: what partners call; [`payment_callbacks`]: what the payment service calls.
//! * [`voice`]: what a provider of phone calls calls back.
//! * [`local`]: requests of the command line in its own process, without a key. `reason`: why staff do something.
//! * [`auth`]: bearer keys and roles; `roles`: the role is checked before the rest of a request is read. `filters`: filters name what there is.
//! * [`finish`]: a request that may change something runs to its end.
//! * [`limits`]: how many requests a key may make, and how many an address with wrong keys. [`client`]: whose address.
//! * [`idempotency`]: a repeated request has the effect and the answer of the first. `keyed_call`: such requests as handlers take
//!   them.
//! * `created`: `Location` of what was created.
//! * [`openapi`]: the API as OpenAPI, made of what stands beside the handlers.
//! * [`error`]: every error as `{error_code, message}` with its status and the members of RFC 9457; every code in words.
//! * [`body`]: bodies and paths, checked at the edge; `json`: their one reader. `json_lines`: imports. `ignored_fields`: what of them was not read.
//! * `observe`: an id for each request, metrics by route and status, and who was refused.
//! * [`health`]: /healthz, /readyz.
//! * [`metrics`]: what /metrics shows. `scale`: how many workers are wanted. `scrape`: reads of both, with their time limit.
//! * [`server`]: listening, and ending in good order. `connections`: how many, and which of them goes when there are too many;
//!   `write_deadline`: answers must be read in time.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

mod admin;
pub mod alerts;
pub mod areas;
pub mod auth;
mod binding_gauges;
pub mod bindings;
pub mod body;
mod busy;
pub mod callbacks;
pub mod client;
pub mod connections;
mod created;
pub mod dispatcher;
pub mod drivers;
pub mod error;
pub mod events;
mod filters;
mod finish;
pub mod health;
pub mod idempotency;
mod ignored_fields;
mod json;
mod json_lines;
mod keyed_call;
pub mod limits;
pub mod local;
pub mod metrics;
mod observe;
pub mod openapi;
pub mod orders;
mod partners;
pub mod payment_callbacks;
pub mod plans;
pub mod provider_servers;
mod reason;
pub mod refunds;
mod roles;
mod scale;
mod scrape;
pub mod server;
pub mod voice;
pub mod webhooks;
mod write_deadline;

use std::{future::ready, time::Duration};

use axum::{
    Extension, Router,
    extract::DefaultBodyLimit,
    middleware::{from_fn, from_fn_with_state, map_response},
    response::Redirect,
    routing::get,
};
use metrics_exporter_prometheus::PrometheusHandle;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::{error::pages::errors_page, health::ProcessKind, observe::HeadRead, openapi::OPENAPI};
use self::{observe::RequestObserver, openapi::ServedDocument};
use app::App;

/// Larger than any request that makes sense.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// What a body may take once the head is there: no client keeps a connection by sending a byte now and then.
pub const BODY_TIME: Duration = Duration::from_secs(30);
/// What a body may take where the caller is known by the body alone: signed routes and the sign-in.
pub const UNKNOWN_CALLERS_BODY_TIME: Duration = Duration::from_secs(8);

/// What is refused while a long queue waits for Postgres.
fn sheddable_routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::document_head())
        .nest("/api/v1/orders", orders::routes())
        .nest("/api/v1/alerts", alerts::routes())
        .nest("/api/v1/events", events::routes())
        .nest("/api/v1/refunds", refunds::routes())
        .nest("/api/v1/drivers", drivers::routes())
        .nest("/api/v1/admin/dispatcher", areas::routes())
        .nest(
            "/api/v1/callbacks",
            callbacks::routes().layer(from_fn_with_state(UNKNOWN_CALLERS_BODY_TIME, body::limit_body_time)),
        )
        .nest(
            "/api/v1/payment-callbacks",
            payment_callbacks::routes().layer(from_fn_with_state(UNKNOWN_CALLERS_BODY_TIME, body::limit_body_time)),
        )
        .nest("/api/v1/partners", partners::routes())
        .nest("/api/v1/provider-servers", provider_servers::routes())
        .nest("/api/v1/provider-call-limit", provider_servers::limit_routes())
        .nest("/api/v1/bindings", bindings::routes().merge(plans::binding_routes()))
        .nest("/api/v1/admin/plans", plans::routes())
        .nest("/api/v1/admin/queues", admin::queues::routes())
        .nest("/api/v1/admin/workers", admin::queues::worker_routes())
        .nest("/api/v1/admin/jobs", admin::living_jobs::routes())
        .nest("/api/v1/admin/dead", admin::dead::routes().merge(plans::dead_routes()))
        .nest("/api/v1/admin/outbox", admin::outbox::routes())
        .nest("/api/v1/admin/keys", admin::keys::routes())
        .nest("/api/v1/admin/users", admin::users::routes())
        .nest("/api/v1/admin/sessions", admin::sessions::routes())
        .nest("/api/v1/admin/audit", admin::audit::routes())
        .nest("/api/v1/admin/shards", admin::shards::routes())
        .nest("/api/v1/admin/reconciliation", admin::upkeep::reconciliation_routes())
        .nest("/api/v1/admin/cleanup", admin::upkeep::cleanup_routes())
        .nest("/api/v1/admin/history-check", admin::upkeep::history_routes())
        .nest("/api/v1/admin/erasures", admin::erasures::routes())
        .nest("/api/v1/transactions", bindings::transaction_routes())
}

/// What is answered however long that queue is.
fn steady_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        // Advice asks Postgres only whose an unknown key is and, without Redis, how many orders wait. It says of itself when
        // it cannot tell.
        .nest("/api/v1/dispatcher", dispatcher::routes())
        // A provider of calls does not ask again: what a driver pressed would be lost.
        .nest(
            "/api/v1/voice",
            voice::routes().layer(from_fn_with_state(UNKNOWN_CALLERS_BODY_TIME, body::limit_body_time)),
        )
}

/// What says how this process is, and what it serves. A load balancer that asks again is no client that waits.
fn probe_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(openapi::serve_document))
        .routes(routes!(error::pages::show_error_code))
}

/// The API of producers and drivers.
pub fn api_router(app: App) -> Router {
    router_with_pages(app, Router::new())
}

/// The API, and pages beside it, which answer for their own bodies, errors and limits. Their requests are seen as the API's are.
pub fn router_with_pages(app: App, pages: Router<App>) -> Router {
    // Checked with the configuration.
    let observer = RequestObserver::new(app.config.http.trusted_networks().unwrap_or_default());
    let document = ServedDocument::new(&app.config);
    Router::from(sheddable_routes())
        .route_layer(from_fn(created::add_location))
        .route_layer(from_fn_with_state(app.clone(), roles::check_role))
        .route_layer(from_fn_with_state(app.clone(), limits::shed_load))
        .merge(Router::from(steady_routes()).route_layer(from_fn_with_state(app.clone(), roles::check_role)))
        .route_layer(from_fn_with_state(app.clone(), limits::say_when_to_retry))
        .merge(Router::from(probe_routes()).layer(Extension(document)))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(BODY_TIME, body::limit_body_time))
        .layer(from_fn(roles::printable_url))
        .layer(from_fn_with_state(app.clone(), limits::limit_failures))
        .layer(map_response(error::adopt_refusal))
        .merge(pages)
        .layer(from_fn_with_state(observer, observe::observe_request))
        .with_state(app)
}

/// Pages without the API, on an address of their own. `first`: the path of the first of them.
pub fn pages_router(app: App, pages: Router<App>, first: &str) -> Router {
    // Checked with the configuration.
    let observer = RequestObserver::new(app.config.http.trusted_networks().unwrap_or_default());
    let first = first.to_owned();
    Router::new()
        .route("/", get(move || ready(Redirect::to(&first))))
        .fallback(error::no_such_path)
        .merge(pages)
        .layer(from_fn_with_state(observer, observe::observe_request))
        .with_state(app)
}

/// What operators and their tools look at; on its own port.
pub fn admin_router(app: App, handle: PrometheusHandle, process: ProcessKind) -> Router {
    let readyz = match process {
        ProcessKind::Serve => get(health::readyz),
        ProcessKind::Work => get(health::worker_readyz),
    };
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", readyz)
        .route("/metrics", get(move |state| metrics::render_metrics(state, handle.clone(), process)))
        .route("/admin/scale", get(scale::show_scale))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::method_not_allowed)
        .with_state(app)
}
