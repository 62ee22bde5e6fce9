//! The connection: one multiplexed RESP3 connection per [`Store`](super::Store), which reconnects by itself.
//!
//! Wake messages come over the same connection as pushes and are subscribed to again after every reconnect. A second
//! connection for them could be dead while the first is well; here a lost subscription is a lost connection, which the
//! next `take`, at most a second away, notices and repairs.
//!
//! The manager reconnects when the connection breaks. One that stays open and gives no answer to any call is replaced here, and so is
//! one whose login was refused.
//!
//! With sentinels the connection goes to the primary they name. Whenever it fails, or meets a server that has become a
//! replica, the next call asks them again; if they name another server, a new connection takes the place of the old one,
//! subscribed as that was. For the callers that is an outage like any other.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use apalis_redis::{Client, ConnectionManager};
use redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, RedisResult, ServerErrorKind, TlsCertificates,
    aio::ConnectionManagerConfig,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::sync::broadcast;

use super::{
    StoreError,
    sentinel::{SentinelClients, SentinelUrl},
};

/// Where Redis is, and how long to wait for it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port[/db]`, `rediss://` for TLS; or behind sentinels
    /// `redis+sentinel://[user:password@]host:port,host:port,../primary[/db]`, `rediss+sentinel://` for TLS, with
    /// `?user=..&password=..` if the sentinels themselves ask for a login.
    ///
    /// For TLS the program must have installed a process-wide rustls provider before it connects, as with
    /// `rustls::crypto::ring::default_provider().install_default()`: this crate chooses none.
    pub url: String,
    /// PEM of the authority that signed the servers' certificates, if that is none of the public ones.
    pub root_certificate: Option<Vec<u8>>,
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
            root_certificate: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            worker_timeout: Duration::from_secs(8),
        }
    }

    /// Reads address and certificate as [`Store::with_config`](super::Store::with_config) does, without connecting.
    pub fn check(&self) -> Result<(), StoreError> {
        let address = RedisAddress::parse(&self.url)?;
        self.read_certificates(address.is_tls()).map(drop)
    }

    /// A certificate that would protect nothing is an error: its owner believes that the connection is encrypted.
    fn read_certificates(&self, tls: bool) -> Result<Option<TlsCertificates>, StoreError> {
        let Some(pem) = &self.root_certificate else { return Ok(None) };
        let wrong = |reason: String| StoreError::Certificate { reason };
        if !tls {
            return Err(wrong("redis.url asks for no encryption".to_owned()));
        }
        if !String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----") {
            return Err(wrong("it holds no certificate".to_owned()));
        }
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) };
        // Reads the certificate. With sentinels nothing else would before a primary is named.
        Client::build_with_tls("rediss://localhost", certificates.clone()).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(certificates))
    }
}

/// What a URL names.
enum RedisAddress {
    Server(ConnectionInfo),
    Sentinels(SentinelUrl),
}

impl RedisAddress {
    fn parse(url: &str) -> Result<Self, StoreError> {
        match SentinelUrl::parse(url)? {
            Some(url) => Ok(Self::Sentinels(url)),
            None => connection_info(url).map(Self::Server),
        }
    }

    fn is_tls(&self) -> bool {
        match self {
            Self::Server(info) => matches!(info.addr(), ConnectionAddr::TcpTls { .. }),
            Self::Sentinels(url) => url.is_tls(),
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
const RESUBSCRIBE_TRIES: u32 = 10;
/// Between two logins at a server that refuses them.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct RedisConnection {
    source: ConnectionSource,
    heard: Mutex<LastContact>,
    /// The channel to subscribe to on every connection to come.
    channel: Mutex<Option<String>>,
    config: ConnectionManagerConfig,
    /// For messages: host and port, nothing secret.
    pub(super) address: String,
    /// Queue names from the wake channel.
    pub(super) wakes: broadcast::Sender<String>,
}

/// When the server was last heard of, and when a silent connection was last replaced.
struct LastContact {
    answer: Instant,
    replaced: Instant,
}

enum ConnectionSource {
    Server { client: Box<Client>, manager: Mutex<ConnectionManager> },
    Sentinels(Box<BehindSentinels>),
}

struct BehindSentinels {
    sentinels: tokio::sync::Mutex<SentinelClients>,
    /// The primary last named.
    primary: Mutex<Option<PrimaryServer>>,
    /// A call failed as it would if the primary were another by now.
    in_doubt: AtomicBool,
}

#[derive(Clone)]
struct PrimaryServer {
    address: String,
    manager: ConnectionManager,
}

/// Sets the connection up without connecting.
pub(super) fn connect_lazily(config: &RedisConfig) -> Result<RedisConnection, StoreError> {
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
        RedisAddress::Server(info) => {
            let address = info.addr().to_string();
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
    /// The connection to use for the next call.
    pub(super) async fn current_manager(&self) -> RedisResult<ConnectionManager> {
        match &self.source {
            ConnectionSource::Server { manager, .. } => Ok(lock_or_recover(manager).clone()),
            ConnectionSource::Sentinels(behind) => behind.primary_manager(&self.config, &self.channel).await,
        }
    }

    /// Receives what is published on this channel, also at primaries to come.
    pub(super) async fn subscribe(&self, channel: String) -> RedisResult<()> {
        *lock_or_recover(&self.channel) = Some(channel.clone());
        self.current_manager().await?.subscribe(channel).await
    }

    /// A call has failed.
    pub(super) fn record_failure(&self, error: &RedisError) {
        if hints_at_failover(error) {
            self.doubt_primary();
        }
        if error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) {
            self.replace_if_refused();
        }
    }

    /// The server answered, be it with an error.
    pub(super) fn record_answer(&self) {
        lock_or_recover(&self.heard).answer = Instant::now();
    }

    /// A call that began then got no answer in time. If no other call was answered since, the connection is replaced: one that a
    /// firewall or a proxy swallows stays open for ever, and the manager only reconnects when it breaks.
    pub(super) fn replace_if_silent(&self, begun: Instant) {
        self.doubt_primary();
        {
            let mut heard = lock_or_recover(&self.heard);
            if heard.answer >= begun || heard.replaced >= begun {
                return;
            }
            heard.replaced = Instant::now();
        }
        tracing::warn!(address = self.address, "A connection to Redis gives no answer; a new one takes its place.");
        self.replace_connection();
    }

    /// The server refused the login. The manager answers every later call with that; a new one finds out when the server lets it in.
    fn replace_if_refused(&self) {
        {
            let mut heard = lock_or_recover(&self.heard);
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
                        let old = std::mem::replace(&mut *lock_or_recover(manager), new.clone());
                        if let Some(channel) = lock_or_recover(&self.channel).clone() {
                            tokio::spawn(subscribe_again(new, channel));
                        }
                        // A server that is only blocked still performs what it was sent.
                        tokio::spawn(async move {
                            tokio::time::sleep(DEAD_PEER).await;
                            drop(old);
                        });
                    }
                    Err(error) => tracing::error!(%error, "A connection to Redis could not be replaced."),
                }
            }
            ConnectionSource::Sentinels(behind) => *lock_or_recover(&behind.primary) = None,
        }
    }

    /// The primary may be another by now.
    pub(super) fn doubt_primary(&self) {
        if let ConnectionSource::Sentinels(behind) = &self.source {
            behind.in_doubt.store(true, Ordering::SeqCst);
        }
    }
}

impl BehindSentinels {
    fn known_primary(&self) -> Option<PrimaryServer> {
        lock_or_recover(&self.primary).clone().filter(|_| !self.in_doubt.load(Ordering::SeqCst))
    }

    async fn primary_manager(
        &self,
        config: &ConnectionManagerConfig,
        channel: &Mutex<Option<String>>,
    ) -> RedisResult<ConnectionManager> {
        if let Some(primary) = self.known_primary() {
            return Ok(primary.manager);
        }
        // One caller asks, the others wait for its answer.
        let mut sentinels = self.sentinels.lock().await;
        if let Some(primary) = self.known_primary() {
            return Ok(primary.manager);
        }
        let client = sentinels.find_primary().await?;
        let address = client.get_connection_info().addr().to_string();
        let before = lock_or_recover(&self.primary).clone();
        let manager = match before {
            // A restart, or a cut connection: it reconnects by itself.
            Some(primary) if primary.address == address => primary.manager,
            _ => {
                let manager = ConnectionManager::new_lazy_with_config(client, config.clone())?;
                tracing::info!(address, "The sentinels name the primary.");
                // Known before it is asked for anything: a login that it refuses is tried once a second, not with every call.
                *lock_or_recover(&self.primary) = Some(PrimaryServer { address, manager: manager.clone() });
                let channel = lock_or_recover(channel).clone();
                if let Some(channel) = channel {
                    tokio::spawn(subscribe_again(manager.clone(), channel));
                }
                manager
            }
        };
        self.in_doubt.store(false, Ordering::SeqCst);
        Ok(manager)
    }
}

/// Subscribes on a connection that took the place of another. A take that the other one still answered would not notice that the
/// subscription is gone; one that fails subscribes again itself, so some tries are enough.
async fn subscribe_again(mut manager: ConnectionManager, channel: String) {
    for _ in 0..RESUBSCRIBE_TRIES {
        match manager.subscribe(&channel).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "The wake channel cannot be subscribed to yet."),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn lock_or_recover<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hints_at_failover(error: &RedisError) -> bool {
    let server_says = [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown, ServerErrorKind::BusyLoading];
    error.is_io_error() || server_says.into_iter().any(|kind| error.kind() == ErrorKind::Server(kind))
}

fn manager_config(config: &RedisConfig, wakes: broadcast::Sender<String>) -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        .set_response_timeout(Some(config.worker_timeout))
        // Enough to bridge a restart. Longer outages are the callers': each call then fails, and each reconnects.
        .set_number_of_retries(2)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_automatic_resubscription()
        .set_push_sender(move |push: PushInfo| {
            if let Some(queue) = woken_queue(push) {
                // A process that only enqueues has no listener.
                let _ = wakes.send(queue);
            }
            Ok::<(), redis::aio::SendError>(())
        })
}

fn connection_info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(StoreError::invalid_url)?;
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
