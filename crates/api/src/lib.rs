//! The HTTP API: producers, drivers, partners, staff, health and metrics. Design: docs/design/http-api.md.
//!
//! * [`orders`]: requests of producers and drivers about orders.
//! * `admin`: queues, jobs, dead letters, messages, keys and users, for operators and admins.
//! * [`refunds`]: refunds that are due.
//! * [`alerts`]: alerts for support, and their acknowledgement.
//! * [`dispatcher`]: admission advice before an order is created. `busy`: the refusal body. [`areas`]: areas and their
//!   thresholds.
//! * [`bindings`]: accounts at providers, each of which runs one transaction after another. [`provider_servers`]: the
//!   providers' servers.
//! * `partners`: enabling partners, and the share of partner orders that is polled.
//! * [`plans`]: bulk actions of staff: create, show, run, cancel.
//! * [`events`]: the stream of order events. [`webhooks`]: the posts to producers, described for the OpenAPI document.
//!   [`webhook_endpoints`]: the endpoints that producers create for them.
//! * [`drivers`]: positions, availability and offers of drivers.
//! * [`callbacks`]: callbacks of partners. [`payment_callbacks`]: callbacks of the payment service.
//! * [`voice`]: callbacks of a provider of phone calls.
//! * [`local`]: requests of the command line that runs in this process, without a key. `reason`: reasons that staff
//!   give.
//! * [`auth`]: bearer keys and roles. `roles`: checks the role before the rest of a request is read. `filters`: checks
//!   the names in filters. [`scope`]: the orders that staff with a scope may read.
//! * [`finish`]: lets a request that may change something run to its end.
//! * [`limits`]: rate limits for keys, and for addresses that send wrong keys. [`client`]: the client's address.
//! * [`idempotency`]: gives a repeated request the effect and answer of the first one. `keyed_call`: extractor for such
//!   requests.
//! * `created`: adds `Location` to answers with status 201. `etag`: versions of resources.
//! * [`openapi`]: the OpenAPI document, generated from the handlers.
//! * [`error`]: errors as `{error_code, message}` with a status and the members of RFC 9457, and a page for each code.
//! * [`body`]: extractors that validate bodies and paths. `json`: reads JSON. `json_lines`: reads imports.
//!   `ignored_fields`: reports unread members.
//! * `version`: the version of the API in every answer.
//! * `observe`: request ids, metrics by route and status, and the log of refusals.
//! * [`health`]: /healthz and /readyz.
//! * [`metrics`]: /metrics. `scale`: the number of workers wanted. `scrape`: the time limit of both.
//! * [`server`]: listeners and graceful shutdown. `connections`: the connection limit, and which connection is closed
//!   beyond it. `write_deadline`: time limit for clients that read an answer slowly.

// The futures of handlers nest deeper than the default limit.
#![recursion_limit = "256"]

pub mod admin;
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
mod etag;
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
pub mod scope;
mod scrape;
pub mod server;
mod version;
pub mod voice;
pub mod webhook_endpoints;
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

pub use self::{
    error::pages::errors_page,
    health::ProcessKind,
    observe::{HeadRead, WithoutRequestId},
    openapi::OPENAPI,
};
use self::{observe::RequestObserver, openapi::ServedDocument};
use app::App;

/// Maximum size of a request body, imports excepted.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Maximum time for a body after its head. It stops clients that keep a connection open by sending single bytes.
pub const BODY_TIME: Duration = Duration::from_secs(30);
/// Maximum time for a body that authenticates its sender: signed routes and the sign-in.
pub const UNKNOWN_CALLERS_BODY_TIME: Duration = Duration::from_secs(8);

/// Returns the routes that are refused while many requests wait for Postgres.
fn sheddable_routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::document_head())
        .nest("/api/v1/orders", orders::routes())
        .nest("/api/v1/alerts", alerts::routes())
        .nest("/api/v1/events", events::routes())
        .nest("/api/v1/webhook-endpoints", webhook_endpoints::routes())
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
        .nest("/api/v1/admin/workers", admin::workers::routes())
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
        .nest("/api/v1/admin/proof", admin::proof::routes())
        .nest("/api/v1/admin/erasures", admin::erasures::routes())
        .nest("/api/v1/transactions", bindings::transaction_routes())
}

/// Returns the routes that are served even while many requests wait for Postgres.
fn steady_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        // Advice queries Postgres only to look up an unknown key, and to count waiting orders when Redis fails. Its
        // answer reports when it cannot tell.
        .nest("/api/v1/dispatcher", dispatcher::routes())
        // A provider of calls does not repeat a callback: a refusal would lose the driver's key press.
        .nest(
            "/api/v1/voice",
            voice::routes().layer(from_fn_with_state(UNKNOWN_CALLERS_BODY_TIME, body::limit_body_time)),
        )
}

/// Returns the routes for health and documentation. They do not get the clients' `Retry-After`, because a load balancer
/// must not wait that long.
fn probe_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(openapi::serve_document))
        .routes(routes!(error::pages::show_error_code))
}

/// Returns the router of the API.
pub fn api_router(app: App) -> Router {
    router_with_pages(app, Router::new())
}

/// Returns the router of the API together with `pages`. The pages handle their own bodies, errors and limits; their
/// requests are observed like those of the API.
pub fn router_with_pages(app: App, pages: Router<App>) -> Router {
    // The configuration check has parsed this value.
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
        .layer(map_response(version::add_version))
        .merge(pages)
        .layer(from_fn_with_state(observer, observe::observe_request))
        .with_state(app)
}

/// Returns a router that serves only `pages`, for a listener of their own. `/` redirects to `first`.
pub fn pages_router(app: App, pages: Router<App>, first: &str) -> Router {
    // The configuration check has parsed this value.
    let observer = RequestObserver::new(app.config.http.trusted_networks().unwrap_or_default());
    let first = first.to_owned();
    Router::new()
        .route("/", get(move || ready(Redirect::to(&first))))
        .fallback(error::no_such_path)
        .merge(pages)
        .layer(from_fn_with_state(observer, observe::observe_request))
        .with_state(app)
}

/// Returns the router of the admin port: health, metrics and scaling.
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
