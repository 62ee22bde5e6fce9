//! The connection: one multiplexed RESP3 connection per [`Store`](super::Store), which reconnects by itself.
//!
//! Wake messages come over the same connection as pushes and are subscribed to again after every reconnect. A second
//! connection for them could be dead while the first is well; here a lost subscription is a lost connection, which the
//! next `take`, at most a second away, notices and repairs.

use std::time::Duration;

use apalis_redis::{Client, ConnectionManager};
use redis::{
    ConnectionInfo, FromRedisValue, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    aio::ConnectionManagerConfig,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::sync::broadcast;

use super::StoreError;

/// Where Redis is, and how long to wait for it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port[/db]`, `rediss://` for TLS.
    pub url: String,
    /// Longest wait for a connection, per attempt.
    pub connect_timeout: Duration,
    /// Longest wait for the answer of a call that a user or a request waits for.
    pub response_timeout: Duration,
    /// Longest wait for the answer of a worker's call. As long as a lease and not shorter: a `take` that is given up may
    /// still be performed by a server that was only busy, and its jobs would then wait for their leases to expire.
    pub worker_timeout: Duration,
}

impl RedisConfig {
    /// 2 s to connect, 2 s for an answer, 8 s for a worker's answer.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            worker_timeout: Duration::from_secs(8),
        }
    }
}

impl std::fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("url", &"..")
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("worker_timeout", &self.worker_timeout)
            .finish()
    }
}

/// Messages that may wait for a slow supervisor. It only needs to know that there was one.
const WAKES_KEPT: usize = 64;

/// A peer that is gone without a word is noticed after this, which ends the connection and begins a new one.
const DEAD_PEER: Duration = Duration::from_secs(10);

pub(super) struct Connection {
    pub(super) manager: ConnectionManager,
    /// For messages: host and port, nothing secret.
    pub(super) address: String,
    /// Queue names from the wake channel.
    pub(super) wakes: broadcast::Sender<String>,
}

/// Sets the connection up without connecting.
pub(super) fn lazy(config: &RedisConfig) -> Result<Connection, StoreError> {
    let info = connection_info(&config.url)?;
    let address = info.addr().to_string();
    let client = Client::open(info).map_err(|error| StoreError::Url { reason: error.to_string() })?;
    let (wakes, _) = broadcast::channel(WAKES_KEPT);
    let pushed = wakes.clone();
    let manager_config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        .set_response_timeout(Some(config.worker_timeout))
        // Enough to bridge a restart. Longer outages are the callers': each call then fails, and each begins anew.
        .set_number_of_retries(2)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_automatic_resubscription()
        .set_push_sender(move |push: PushInfo| {
            if let Some(queue) = woken_queue(push) {
                // Nobody listens in a process that only enqueues.
                let _ = pushed.send(queue);
            }
            Ok::<(), redis::aio::SendError>(())
        });
    let manager = ConnectionManager::new_lazy_with_config(client, manager_config)
        .map_err(|error| StoreError::Url { reason: error.to_string() })?;
    Ok(Connection { manager, address, wakes })
}

fn connection_info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(|error| StoreError::Url { reason: error.to_string() })?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp_settings()))
}

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(DEAD_PEER / 2).with_interval(DEAD_PEER / 5);
    // Without nodelay, small requests wait for the peer's delayed acknowledgements.
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DEAD_PEER);
    settings
}

fn woken_queue(push: PushInfo) -> Option<String> {
    if push.kind != PushKind::Message {
        return None;
    }
    let message = push.data.into_iter().nth(1)?;
    String::from_redis_value(message).ok()
}
