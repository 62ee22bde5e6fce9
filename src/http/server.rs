//! Listening, and ending in good order.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Binds an address from the configuration; `setting` names it in the error.
pub async fn bind(address: &str, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: is another process using the port? change {setting} in config.toml")
    })
}

/// Serves until `stop`, then lets running requests finish.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> anyhow::Result<()> {
    let address: SocketAddr = listener.local_addr()?;
    tracing::debug!(%address, "Listening.");
    axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await }).await?;
    Ok(())
}
