//! The connection: one multiplexed RESP3 connection per [`Store`](super::Store), which reconnects by itself.
//!
//! Wake messages arrive on the same connection as pushes. They are subscribed to again after every reconnect. A second
//! connection for them could be dead while the first works. Here a lost subscription is a lost connection, and the next
//! `take` notices and repairs it, at most a second later.
//!
//! The manager reconnects only when the connection breaks. This module replaces a connection that stays open without
//! answering any call, and one whose login was refused.
//!
//! With sentinels the connection goes to the primary that they name. When a call fails, or reaches a server that has
//! become a replica, the next call asks the sentinels again. If they name another server, a new connection replaces the
//! old one and subscribes again. To the callers this looks like any other outage. In a cluster each call goes to the
//! node that serves its slot (`cluster`).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use apalis_redis::{Client, ConnectionManager};
use parking_lot::Mutex;
use redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, ConnectionManagerConfig},
};
use tokio::sync::broadcast;

use super::{
    address::{RedisAddress, RedisConfig},
    cluster::{Cluster, SlotConnection},
    error::StoreError,
    manager::{WAKES_KEPT, drop_later, manager_config, subscribe_to, tcp_settings},
    sentinel::SentinelClients,
};

/// Pause between two logins to a server that refuses them.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct RedisConnection {
    source: ConnectionSource,
    heard: Mutex<LastContact>,
    /// Channel to subscribe to on every new connection.
    channel: Mutex<Option<String>>,
    config: ConnectionManagerConfig,
    /// Host and port for messages, without secrets.
    pub(super) address: String,
    /// Queue names from the wake channel.
    pub(super) wakes: broadcast::Sender<String>,
}

/// Time of the last answer, and of the last replacement of a silent connection.
struct LastContact {
    answer: Instant,
    replaced: Instant,
}

enum ConnectionSource {
    Server { client: Box<Client>, manager: Mutex<ConnectionManager> },
    Sentinels(Box<BehindSentinels>),
    Cluster(Arc<Cluster>),
}

pub(super) enum CallConnection {
    Server(ConnectionManager),
    Cluster(SlotConnection),
}

impl ConnectionLike for CallConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Server(manager) => manager.req_packed_command(cmd),
            Self::Cluster(slot) => slot.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Server(manager) => manager.req_packed_commands(pipeline, offset, count),
            Self::Cluster(slot) => slot.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Server(manager) => manager.get_db(),
            Self::Cluster(slot) => slot.get_db(),
        }
    }
}

struct BehindSentinels {
    sentinels: tokio::sync::Mutex<SentinelClients>,
    /// Primary that the sentinels named last.
    primary: Mutex<Option<PrimaryServer>>,
    /// Whether a call failed in a way that suggests a new primary.
    in_doubt: AtomicBool,
}

#[derive(Clone)]
struct PrimaryServer {
    address: String,
    manager: ConnectionManager,
}

/// Sets the connection up without connecting. In a cluster, `home` is the slot of the queue's keys.
pub(super) fn connect_lazily(config: &RedisConfig, home: u16) -> Result<RedisConnection, StoreError> {
    let (wakes, _) = broadcast::channel(WAKES_KEPT);
    let manager_config = manager_config(config, wakes.clone());
    let address = RedisAddress::parse(&config.url)?;
    let certificates = config.read_certificates(address.is_tls())?;
    let (source, address) = match address {
        RedisAddress::Sentinels(url) => {
            let address = url.address();
            let sentinels = tokio::sync::Mutex::new(url.connect(tcp_settings(), certificates)?);
            let behind = BehindSentinels { sentinels, primary: Mutex::new(None), in_doubt: AtomicBool::new(false) };
            (ConnectionSource::Sentinels(Box::new(behind)), address)
        }
        RedisAddress::Cluster(url) => {
            let (address, settings) = (url.address(), manager_config.clone());
            let cluster = Cluster::new(url, home, tcp_settings(), certificates, settings, config.connect_timeout);
            (ConnectionSource::Cluster(Arc::new(cluster)), address)
        }
        RedisAddress::Server(info) => {
            let address = info.addr().to_string();
            let info = info.set_tcp_settings(tcp_settings());
            let client = match certificates {
                Some(certificates) => Client::build_with_tls(info, certificates),
                None => Client::open(info),
            };
            let client = client.map_err(StoreError::invalid_url)?;
            let manager = ConnectionManager::new_lazy_with_config(client.clone(), manager_config.clone());
            let manager = Mutex::new(manager.map_err(StoreError::invalid_url)?);
            (ConnectionSource::Server { client: Box::new(client), manager }, address)
        }
    };
    let now = Instant::now();
    let heard = Mutex::new(LastContact { answer: now, replaced: now });
    Ok(RedisConnection { source, heard, channel: Mutex::default(), config: manager_config, address, wakes })
}

impl RedisConnection {
    /// Returns whether this is a cluster, where the keys of a script and a message channel must be in one slot.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.source, ConnectionSource::Cluster(_))
    }

    /// Returns the connection for the next call about the queue's own keys.
    pub(super) async fn for_queue(&self) -> RedisResult<CallConnection> {
        self.for_slot(|| None).await
    }

    /// Returns the connection for the next call about a slot. Only a cluster evaluates `slot`; `None` means that the
    /// call names no key.
    pub(super) async fn for_slot(&self, slot: impl FnOnce() -> Option<u16>) -> RedisResult<CallConnection> {
        match &self.source {
            ConnectionSource::Server { manager, .. } => Ok(CallConnection::Server(manager.lock().clone())),
            ConnectionSource::Sentinels(behind) => {
                behind.primary_manager(&self.config, &self.channel).await.map(CallConnection::Server)
            }
            ConnectionSource::Cluster(cluster) => {
                Ok(CallConnection::Cluster(SlotConnection::new(cluster.clone(), slot())))
            }
        }
    }

    /// Returns a connection to each server that has keys.
    pub(super) async fn for_each_server(&self) -> RedisResult<Vec<CallConnection>> {
        let ConnectionSource::Cluster(cluster) = &self.source else { return Ok(vec![self.for_queue().await?]) };
        let slots = cluster.a_slot_of_each_owner().await?;
        let connect = |slot| CallConnection::Cluster(SlotConnection::new(cluster.clone(), Some(slot)));
        Ok(slots.into_iter().map(connect).collect())
    }

    /// Subscribes to this channel, also on later primaries.
    pub(super) async fn subscribe(&self, channel: String) -> RedisResult<()> {
        if let ConnectionSource::Cluster(cluster) = &self.source {
            return cluster.subscribe(channel).await;
        }
        *self.channel.lock() = Some(channel.clone());
        match self.for_queue().await? {
            CallConnection::Server(mut manager) => manager.subscribe(channel).await,
            CallConnection::Cluster(_) => Ok(()),
        }
    }

    /// Records a failed call.
    pub(super) fn record_failure(&self, error: &RedisError) {
        if hints_at_failover(error) {
            self.doubt_primary();
        }
        if error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) {
            self.replace_if_refused();
        }
    }

    /// Records that the server answered, with a result or an error.
    pub(super) fn record_answer(&self) {
        self.heard.lock().answer = Instant::now();
    }

    /// Replaces the connection if a call that started at `begun` timed out and no other call was answered since. A
    /// connection that a firewall or a proxy drops silently stays open forever, and the manager reconnects only when it
    /// breaks.
    pub(super) fn replace_if_silent(&self, begun: Instant) {
        if let ConnectionSource::Cluster(cluster) = &self.source {
            // The call waited for most of that time. Before that, it may have been sent to another node.
            return cluster.replace_silent_connections(begun.elapsed() / 2);
        }
        self.doubt_primary();
        {
            let mut heard = self.heard.lock();
            if heard.answer >= begun || heard.replaced >= begun {
                return;
            }
            heard.replaced = Instant::now();
        }
        tracing::warn!(address = self.address, "A connection to Redis is silent and is replaced.");
        self.replace_connection();
    }

    /// Replaces the connection after the server refused the login. The manager would answer every later call with that
    /// refusal. A new connection logs in again.
    fn replace_if_refused(&self) {
        {
            let mut heard = self.heard.lock();
            if heard.replaced.elapsed() < REFUSED_PAUSE {
                return;
            }
            heard.replaced = Instant::now();
        }
        self.replace_connection();
    }

    fn replace_connection(&self) {
        match &self.source {
            ConnectionSource::Server { client, manager } => {
                match ConnectionManager::new_lazy_with_config((**client).clone(), self.config.clone()) {
                    Ok(new) => {
                        let old = std::mem::replace(&mut *manager.lock(), new.clone());
                        if let Some(channel) = self.channel.lock().clone() {
                            tokio::spawn(subscribe_to(new, channel));
                        }
                        drop_later(old);
                    }
                    Err(error) => tracing::error!(%error, "Cannot replace a connection to Redis."),
                }
            }
            ConnectionSource::Sentinels(behind) => *behind.primary.lock() = None,
            ConnectionSource::Cluster(cluster) => cluster.replace_connections(),
        }
    }

    /// Records that another server may be primary now.
    pub(super) fn doubt_primary(&self) {
        match &self.source {
            ConnectionSource::Server { .. } => {}
            ConnectionSource::Sentinels(behind) => behind.in_doubt.store(true, Ordering::SeqCst),
            ConnectionSource::Cluster(cluster) => cluster.doubt_map(),
        }
    }
}

impl BehindSentinels {
    fn known_primary(&self) -> Option<PrimaryServer> {
        self.primary.lock().clone().filter(|_| !self.in_doubt.load(Ordering::SeqCst))
    }

    async fn primary_manager(
        &self,
        config: &ConnectionManagerConfig,
        channel: &Mutex<Option<String>>,
    ) -> RedisResult<ConnectionManager> {
        if let Some(primary) = self.known_primary() {
            return Ok(primary.manager);
        }
        // One caller asks the sentinels; the others wait for its answer.
        let mut sentinels = self.sentinels.lock().await;
        if let Some(primary) = self.known_primary() {
            return Ok(primary.manager);
        }
        let client = sentinels.find_primary().await?;
        let address = client.get_connection_info().addr().to_string();
        let before = self.primary.lock().clone();
        let manager = match before {
            // The server restarted or the connection was cut. The manager reconnects by itself.
            Some(primary) if primary.address == address => primary.manager,
            _ => {
                let manager = ConnectionManager::new_lazy_with_config(client, config.clone())?;
                tracing::info!(address, "The sentinels name the primary.");
                // Stored before its first call, so that a refused login is retried once a second and not with every
                // call.
                *self.primary.lock() = Some(PrimaryServer { address, manager: manager.clone() });
                let channel = channel.lock().clone();
                if let Some(channel) = channel {
                    tokio::spawn(subscribe_to(manager.clone(), channel));
                }
                manager
            }
        };
        self.in_doubt.store(false, Ordering::SeqCst);
        Ok(manager)
    }
}

fn hints_at_failover(error: &RedisError) -> bool {
    let server_says = [
        ServerErrorKind::ReadOnly,
        ServerErrorKind::MasterDown,
        ServerErrorKind::BusyLoading,
        ServerErrorKind::ClusterDown,
    ];
    error.is_io_error() || server_says.into_iter().any(|kind| error.kind() == ErrorKind::Server(kind))
}
