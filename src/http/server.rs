//! Listening, and ending in good order.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Binds an address from the configuration; `setting` names it in the error.
pub async fn bind(address: &str, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: is it host:port, and is no other process using the port? see {setting}")
    })
}

/// What running requests may take once told to stop; a client that sends no more must not hold up the end.
const GRACE: Duration = Duration::from_secs(10);

/// Serves the API until `stop`; then whoever waits for an offer is answered, so that nobody holds up the end.
pub async fn serve_api(listener: TcpListener, app: App, stop: CancellationToken) -> anyhow::Result<()> {
    let closing = {
        let (offers, stop) = (app.offers.clone(), stop.clone());
        async move {
            stop.cancelled().await;
            offers.close();
        }
    };
    tokio::spawn(closing);
    tokio::spawn(app.rules.clone().keep(app.db.clone(), app.config.admission.clone(), stop.clone()));
    serve(listener, super::api(app), stop).await
}

/// Serves until `stop`, then lets running requests finish.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> anyhow::Result<()> {
    let address: SocketAddr = listener.local_addr()?;
    tracing::debug!(%address, "Listening.");
    let patience = {
        let stop = stop.clone();
        async move {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        }
    };
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await });
    tokio::select! {
        served = serving => served?,
        () = patience => tracing::warn!("Requests that did not finish in time are cut off."),
    }
    Ok(())
}
