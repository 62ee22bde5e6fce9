//! apalis-board on all queues of an installation, for `dispatchq dev`. Its pages show jobs, workers and counts, and change
//! nothing.

use std::io;

use apalis_board::axum::{
    framework::{ApiBuilder, RegisterRoute},
    ui::ServeUI,
};
use axum::{
    Router,
    extract::Request,
    http::{Method, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use jobs::queues;
use queue::{QueueStorage, Shards};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves the board until it is stopped. It asks for no login, so the listener must be for this machine only.
pub async fn serve(shards: Shards, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
    let api = queues::ALL.into_iter().fold(ApiBuilder::new(Router::new()), |api, queue| {
        api.register(queue, QueueStorage::<Value>::new(shards.clone(), queue))
    });
    let router = Router::new()
        .nest("/api/v1", api.build())
        .fallback_service(ServeUI::new())
        .layer(middleware::from_fn(refuse_changes));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// The board's API can push tasks. No handler of dispatchq would know them.
async fn refuse_changes(request: Request, next: Next) -> Response {
    if [Method::GET, Method::HEAD].contains(request.method()) {
        next.run(request).await
    } else {
        StatusCode::METHOD_NOT_ALLOWED.into_response()
    }
}
