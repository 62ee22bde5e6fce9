//! Webhook receivers of offers and alerts. They count messages, and can be made to hang.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use crate::testbed::{serve_local, settings::WebhookTarget};

/// Channels of these receivers.
pub(super) const OFFERS: &str = "drivers";
pub(super) const ALERTS: &str = "desk";

/// Running receivers. Dropping them stops them.
#[derive(Debug)]
pub(super) struct MessageReceivers {
    address: SocketAddr,
    desk: ReceivedMessages,
    _serving: DropGuard,
}

/// Received messages.
#[derive(Debug, Clone)]
struct ReceivedMessages {
    /// Message ids by channel.
    seen: Arc<Mutex<HashMap<String, HashSet<String>>>>,
    hangs: watch::Sender<bool>,
}

#[derive(Debug, Deserialize)]
struct ReceivedMessage {
    id: String,
}

impl MessageReceivers {
    pub(super) async fn start_listening() -> anyhow::Result<Self> {
        let desk = ReceivedMessages { seen: Arc::default(), hangs: watch::Sender::new(false) };
        let router = Router::new().route("/{channel}", post(receive_message)).with_state(desk.clone());
        let (address, serving) = serve_local(router).await?;
        Ok(Self { address, desk, _serving: serving })
    }

    /// Returns the configuration of a channel to this receiver.
    pub(super) fn webhook_target(&self, channel: &'static str) -> WebhookTarget {
        WebhookTarget { name: channel, url: format!("http://{}/{channel}", self.address) }
    }

    /// Accepts messages without answering them. `false` answers the waiting ones.
    pub(super) fn set_hanging(&self, hangs: bool) {
        self.desk.hangs.send_replace(hangs);
    }

    /// Returns the ids of messages that arrived over a channel.
    pub(super) fn received_ids(&self, channel: &str) -> HashSet<String> {
        self.desk.lock_received().get(channel).cloned().unwrap_or_default()
    }
}

impl ReceivedMessages {
    fn lock_received(&self) -> MutexGuard<'_, HashMap<String, HashSet<String>>> {
        self.seen.lock()
    }
}

async fn receive_message(
    State(desk): State<ReceivedMessages>,
    Path(channel): Path<String>,
    Json(message): Json<ReceivedMessage>,
) -> StatusCode {
    let mut hangs = desk.hangs.subscribe();
    // A message that hangs counts as not received.
    if hangs.wait_for(|hangs| !hangs).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    desk.lock_received().entry(channel).or_default().insert(message.id);
    StatusCode::NO_CONTENT
}
