//! Redis Cluster: the node that a call goes to, and redirections. Design: docs/design/redis-and-shards.md.
//!
//! * `url`: `redis+cluster://` addresses. `map`: the node that serves each slot. `node`: the connection to one node.
//!
//! A node that does not serve a slot refuses the command without running it, so a refused call is sent again at once:
//! to the slot's new owner (`MOVED`), to the node that is taking the slot over (`ASK`), or to the same node a little
//! later (`TRYAGAIN`). A call whose answer was lost is never repeated here, because it may have run.
//!
//! Any sign of a failover makes the next call read the map again. Each reading starts with another node, so that a node
//! that is cut off and has an outdated map is not asked twice in a row.
//!
//! Wake messages belong to the shard's slot (`SPUBLISH`) and arrive over a separate connection to its owner. When a
//! slot moves, the server ends the subscription unasked. On a shared connection the client would treat that as the
//! answer to the current call.

mod map;
mod node;
mod url;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use apalis_redis::{Client, ConnectionManager};
use parking_lot::Mutex;
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError, RedisFuture, RedisResult,
    ServerErrorKind, TlsCertificates, Value,
    aio::{ConnectionLike, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};

pub(super) use self::url::ClusterUrl;
use self::{
    map::{NodeAddress, SlotMap},
    node::ClusterNode,
};
use super::manager::subscribe_again;

/// Maximum number of redirections of one call. A stable cluster needs one.
const MOST_REDIRECTIONS: u32 = 5;
/// Maximum number of times that a call waits for a slot that is being moved; the waits add up to one second.
const MOST_WAITS: u32 = 20;
const MOVING_PAUSE: Duration = Duration::from_millis(50);
/// Minimum time between two readings of the map while calls fail.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// State of the cluster, as this process knows it.
pub(super) struct Cluster {
    seeds: Vec<NodeAddress>,
    /// Login, encryption and settings of the connection to any node.
    template: ConnectionInfo,
    certificates: Option<TlsCertificates>,
    config: ConnectionManagerConfig,
    connect_timeout: Duration,
    /// Slot of the queue's own keys. Commands without a key go there.
    home: u16,
    known: Mutex<KnownCluster>,
    /// Held by the caller that reads the map; the others wait for it.
    reading: tokio::sync::Mutex<()>,
    /// Whether a call failed in a way that suggests a changed map.
    in_doubt: AtomicBool,
    wakes: Mutex<WakeSubscription>,
}

#[derive(Default)]
struct KnownCluster {
    map: SlotMap,
    nodes: HashMap<NodeAddress, Arc<ClusterNode>>,
    read_at: Option<Instant>,
    /// Position of the node that the next reading starts with.
    turn: usize,
}

/// Wake channel, and the node from which messages are received.
#[derive(Default)]
struct WakeSubscription {
    channel: Option<String>,
    source: Option<(NodeAddress, ConnectionManager)>,
}

impl Cluster {
    /// Creates the state without connecting.
    pub(super) fn new(
        url: ClusterUrl,
        home: u16,
        tcp_settings: TcpSettings,
        certificates: Option<TlsCertificates>,
        config: ConnectionManagerConfig,
        connect_timeout: Duration,
    ) -> Self {
        let seeds: Vec<NodeAddress> = url.seeds.iter().filter_map(|seed| address_of(seed.addr())).collect();
        // A URL has at least one host.
        let first = url.seeds.into_iter().next().expect("splitting a text gives at least one part");
        let settings = first.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let template = first.set_redis_settings(settings).set_tcp_settings(tcp_settings);
        Self {
            seeds,
            template,
            certificates,
            config,
            connect_timeout,
            home,
            known: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            in_doubt: AtomicBool::new(false),
            wakes: Mutex::default(),
        }
    }

    /// Records that the map may have changed.
    pub(super) fn doubt_map(&self) {
        self.in_doubt.store(true, Ordering::SeqCst);
    }

    /// Replaces the connections that have been silent for `patience`.
    pub(super) fn replace_silent_connections(&self, patience: Duration) {
        self.doubt_map();
        for node in self.known_nodes() {
            node.replace_if_silent(patience);
        }
    }

    /// Replaces all connections, after a login was refused.
    pub(super) fn replace_connections(&self) {
        for node in self.known_nodes() {
            node.replace_connection();
        }
    }

    fn known_nodes(&self) -> Vec<Arc<ClusterNode>> {
        self.known.lock().nodes.values().cloned().collect()
    }

    /// Subscribes to this channel of the home slot, also on later owners.
    pub(super) async fn subscribe(&self, channel: String) -> RedisResult<()> {
        self.wakes.lock().channel = Some(channel.clone());
        let owner = self.owner_of(self.home).await?;
        let known = self.wakes.lock().source.clone();
        let mut source = match known {
            Some((address, manager)) if address == owner.address => manager,
            _ => owner.open_connection()?,
        };
        let subscribed = subscribe_sharded(&mut source, &channel).await;
        let mut wakes = self.wakes.lock();
        // After an error the next try uses a new connection.
        wakes.source = subscribed.is_ok().then(|| (owner.address.clone(), source));
        subscribed
    }

    /// Subscribes at the new owner of the home slot, if the owner has changed.
    fn follow_wakes(&self) {
        let owner = self.known.lock().map.owner(self.home).cloned();
        let mut wakes = self.wakes.lock();
        let (Some(owner), Some(channel)) = (owner, wakes.channel.clone()) else { return };
        if wakes.source.as_ref().is_some_and(|(address, _)| *address == owner) {
            return;
        }
        match self.node_at(&owner).and_then(|node| node.open_connection()) {
            Ok(manager) => {
                wakes.source = Some((owner, manager.clone()));
                tokio::spawn(subscribe_again(manager, async move |manager: &mut ConnectionManager| {
                    subscribe_sharded(manager, &channel).await
                }));
            }
            Err(error) => tracing::error!(%error, "Cannot subscribe to the wake channel."),
        }
    }

    /// Returns one slot of each node that serves any, for commands that go to every node.
    pub(super) async fn a_slot_of_each_owner(&self) -> RedisResult<Vec<u16>> {
        self.owner_of(self.home).await?;
        Ok(self.known.lock().map.a_slot_of_each_owner())
    }

    /// Returns the node that serves a slot. Reads the map first if it is unknown or in doubt.
    async fn owner_of(&self, slot: u16) -> RedisResult<Arc<ClusterNode>> {
        if let Some(owner) = self.known_owner(slot) {
            return self.node_at(&owner);
        }
        let _reading = self.reading.lock().await;
        if let Some(owner) = self.known_owner(slot) {
            return self.node_at(&owner);
        }
        self.read_map().await?;
        let owner = self.known.lock().map.owner(slot).cloned();
        let owner =
            owner.ok_or_else(|| RedisError::from((ServerErrorKind::ClusterDown.into(), "no node serves the slot")))?;
        self.node_at(&owner)
    }

    fn known_owner(&self, slot: u16) -> Option<NodeAddress> {
        let known = self.known.lock();
        let is_fresh = known.read_at.is_some_and(|at| at.elapsed() < READ_PAUSE);
        known.map.owner(slot).filter(|_| is_fresh || !self.in_doubt.load(Ordering::SeqCst)).cloned()
    }

    /// Reads the map from the first node that answers.
    async fn read_map(&self) -> RedisResult<()> {
        let candidates: Vec<NodeAddress> = {
            let mut known = self.known.lock();
            let mut candidates: Vec<NodeAddress> = known.map.nodes.iter().chain(&self.seeds).cloned().collect();
            candidates.dedup();
            let turn = known.turn % candidates.len().max(1);
            known.turn = turn + 1;
            candidates.rotate_left(turn);
            candidates
        };
        let mut failure = None;
        for address in candidates {
            match self.read_map_from(&address).await {
                Ok(map) => {
                    self.in_doubt.store(false, Ordering::SeqCst);
                    self.install_map(map);
                    return Ok(());
                }
                Err(error) => failure = Some(error),
            }
            // If the caller gives up now, the next caller starts with the next node.
            self.known.lock().turn += 1;
        }
        Err(failure.unwrap_or_else(|| RedisError::from((ErrorKind::Io, "the cluster has no node"))))
    }

    async fn read_map_from(&self, address: &NodeAddress) -> RedisResult<SlotMap> {
        let node = self.node_at(address)?;
        let answer =
            tokio::time::timeout(self.connect_timeout, async { node.send(redis::cmd("CLUSTER").arg("SLOTS")).await });
        let answer = answer.await.map_err(|_| RedisError::from((ErrorKind::Io, "a node does not answer")))??;
        let map = SlotMap::parse(answer, address)?;
        if map.owner(self.home).is_none() {
            return Err(RedisError::from((ServerErrorKind::ClusterDown.into(), "no node serves the queue's slot")));
        }
        Ok(map)
    }

    fn install_map(&self, map: SlotMap) {
        {
            let mut known = self.known.lock();
            let before = known.map.owner(self.home).cloned();
            let after = map.owner(self.home).cloned();
            known.nodes.retain(|address, _| map.nodes.contains(address) || self.seeds.contains(address));
            known.map = map;
            known.read_at = Some(Instant::now());
            if let (true, Some(after)) = (before != after, after) {
                tracing::info!(node = %after, "The cluster names the node that serves the queue.");
            }
        }
        self.follow_wakes();
    }

    /// Returns the node at an address; creates it if it is new.
    fn node_at(&self, address: &NodeAddress) -> RedisResult<Arc<ClusterNode>> {
        if let Some(node) = self.known.lock().nodes.get(address) {
            return Ok(node.clone());
        }
        let host = address.host.to_string();
        let addr = match self.template.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port: address.port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, address.port),
        };
        let info = self.template.clone().set_addr(addr);
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        let node = Arc::new(ClusterNode::new(address.clone(), client?, self.config.clone())?);
        Ok(self.known.lock().nodes.entry(address.clone()).or_insert(node).clone())
    }

    /// Returns the node that a redirection names. That node owns the slot (`MOVED`) or is about to (`ASK`).
    fn redirected(&self, error: &RedisError, asked: &ClusterNode) -> RedisResult<Arc<ClusterNode>> {
        let named = error.redirect_node();
        let named = named.and_then(|(text, slot)| Some((NodeAddress::parse(text, &asked.address)?, slot)));
        let (address, slot) = named.ok_or_else(|| error.clone())?;
        if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) {
            self.known.lock().map.set_owner(slot, address.clone());
            // Other slots may have moved, too.
            self.doubt_map();
            if slot == self.home {
                self.follow_wakes();
            }
        }
        self.node_at(&address)
    }

    /// Runs a command on the node that serves a slot.
    async fn run(&self, cmd: &Cmd, slot: u16) -> RedisResult<Value> {
        let mut node = self.owner_of(slot).await?;
        let (mut redirections, mut waits, mut is_asking) = (0, 0, false);
        loop {
            let answer = if is_asking { node.ask(cmd).await } else { node.send(cmd).await };
            let Err(error) = answer else { return answer };
            match error.kind() {
                ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask))
                    if redirections < MOST_REDIRECTIONS =>
                {
                    redirections += 1;
                    is_asking = kind == ServerErrorKind::Ask;
                    node = self.redirected(&error, &node)?;
                }
                ErrorKind::Server(ServerErrorKind::TryAgain) if waits < MOST_WAITS => {
                    waits += 1;
                    (redirections, is_asking) = (0, false);
                    tokio::time::sleep(MOVING_PAUSE).await;
                    node = self.owner_of(slot).await?;
                }
                _ => return Err(error),
            }
        }
    }
}

async fn subscribe_sharded(manager: &mut ConnectionManager, channel: &str) -> RedisResult<()> {
    manager.send_packed_command(redis::cmd("SSUBSCRIBE").arg(channel)).await?.extract_error().map(drop)
}

fn address_of(addr: &ConnectionAddr) -> Option<NodeAddress> {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(NodeAddress { host: host.as_str().into(), port: *port })
        }
        _ => None,
    }
}

/// Connection to the cluster for calls about one slot.
#[derive(Clone)]
pub(super) struct SlotConnection {
    cluster: Arc<Cluster>,
    slot: u16,
}

impl SlotConnection {
    /// Creates the connection. `None` is for calls that name no key.
    pub(super) fn new(cluster: Arc<Cluster>, slot: Option<u16>) -> Self {
        let slot = slot.unwrap_or(cluster.home);
        Self { cluster, slot }
    }
}

impl ConnectionLike for SlotConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.cluster.run(cmd, self.slot))
    }

    /// Sends a pipeline without following redirections, because some of its commands may have run.
    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let node = self.cluster.owner_of(self.slot).await?;
            node.send_all(pipeline, offset, count).await
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
