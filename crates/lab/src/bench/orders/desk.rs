//! Where alerts arrive: a webhook that counts what it is told, each message once.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use serde::Deserialize;
use tokio::{net::TcpListener, task::JoinHandle};

/// The channel that leads here.
pub(super) const CHANNEL: &str = "support-desk";

/// Dropping it closes it.
#[derive(Debug)]
pub(super) struct AlertDesk {
    address: SocketAddr,
    seen: Seen,
    receiver: JoinHandle<()>,
}

/// Ids of messages. A std mutex: it is never held across an await.
type Seen = Arc<Mutex<HashSet<String>>>;

#[derive(Debug, Deserialize)]
struct ArrivedAlert {
    id: String,
}

impl AlertDesk {
    pub(super) async fn start_listening() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen for alerts on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let seen = Seen::default();
        let router = Router::new().route("/alerts", post(receive_alert)).with_state(seen.clone());
        let receiver = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "The receiver of alerts ended.");
            }
        });
        Ok(Self { address, seen, receiver })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/alerts", self.address)
    }

    /// Messages that arrived.
    pub(super) fn received_count(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

impl Drop for AlertDesk {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

async fn receive_alert(State(seen): State<Seen>, Json(message): Json<ArrivedAlert>) -> StatusCode {
    seen.lock().unwrap_or_else(PoisonError::into_inner).insert(message.id);
    StatusCode::NO_CONTENT
}
