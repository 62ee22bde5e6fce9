//! The open connections of one listener, and the order in which they close when a limit is reached.
//!
//! 1. The oldest connection whose request body is incomplete and whose caller is unknown.
//! 2. The oldest connection that has sent no request.
//! 3. The connection that has waited longest for its next request.
//!
//! A flood of slow or silent sockets therefore closes only such sockets, not connections with a request in progress. If
//! every connection has a request in progress, the listener closes the new one.
//!
//! A new connection has [`FIRST_CHANCE`] to send its first request. Until then it does not close when the limit of all
//! connections is reached. A flood of new sockets therefore cannot close a client's connection before the server has read
//! the client's request. The limit of an address closes connections of any age, so that the listener never waits for one
//! crowded address.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::client::ClientAddress;
use ipnet::IpNet;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// Time during which a connection without a request does not close to make room for a newer one.
const FIRST_CHANCE: Duration = Duration::from_millis(100);

/// Maximum numbers of open connections.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimits {
    pub(super) in_all: usize,
    pub(super) per_address: usize,
    /// Networks of trusted proxies. Their connections carry many clients and count only in `in_all`.
    pub(super) proxies: Vec<IpNet>,
}

#[derive(Debug, Clone)]
pub(super) struct OpenConnections {
    most: Arc<ConnectionLimits>,
    open: Arc<Mutex<ConnectionTable>>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    /// Counter that increases with every connection and every request. It orders connections by age.
    clock: u64,
    all: ConnectionGroup,
    by_address: HashMap<IpAddr, ConnectionGroup>,
    registered: HashMap<u64, Registered>,
}

/// A connection that is counted.
#[derive(Debug)]
struct Registered {
    opened: Instant,
    closing: CancellationToken,
}

/// Reason why the listener does not admit a new connection.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Every open connection has a request in progress. The listener closes the new one.
    Full,
    /// The next connection to close is younger than [`FIRST_CHANCE`]. The listener tries again after this time.
    TooEarly(Duration),
}

/// The connections of one address, or all connections.
#[derive(Debug, Default)]
struct ConnectionGroup {
    count: usize,
    /// Connections that may close to make room, the next one first.
    waiting: BTreeSet<IdleConnection>,
}

/// State in which a connection may close to make room. The variants are in the order of closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WaitKind {
    /// The body of the request is incomplete, and the caller is unknown.
    Body,
    /// The connection has sent no request yet.
    FirstRequest,
    NextRequest,
}

/// A connection that may close to make room. Within one kind the oldest sorts first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IdleConnection {
    kind: WaitKind,
    since: u64,
    id: u64,
    address: Option<IpAddr>,
}

/// One open connection. Dropping it ends its registration.
#[derive(Debug)]
pub(super) struct ClientConnection {
    id: u64,
    /// `None` for a trusted proxy.
    address: Option<IpAddr>,
    /// `None` while a request is in progress.
    waiting: Mutex<Option<IdleConnection>>,
    connections: OpenConnections,
    /// Cancelled when the connection must close or the server stops.
    pub(super) closing: CancellationToken,
}

impl OpenConnections {
    pub(super) fn new(most: ConnectionLimits) -> Self {
        Self { most: Arc::new(most), open: Arc::default() }
    }

    /// Admits a connection. If a limit is reached, another connection closes to make room.
    pub(super) fn admit_peer(
        &self,
        peer: IpAddr,
        now: Instant,
        stop: &CancellationToken,
    ) -> Result<Arc<ClientConnection>, Refusal> {
        let peer = ClientAddress(peer.to_canonical());
        let is_proxy = self.most.proxies.iter().any(|network| network.contains(&peer.0));
        let address = (!is_proxy).then(|| peer.network());
        let mut open = self.lock_table();
        if let Some(group) = address.and_then(|address| open.by_address.get(&address))
            && group.count >= self.most.per_address
        {
            // Without regard to its age: the listener must not wait for one address while others have room.
            let first = group.waiting.first().copied().ok_or(Refusal::Full)?;
            open.evict_connection(first);
        }
        if open.all.count >= self.most.in_all {
            let first = open.all.waiting.first().copied().ok_or(Refusal::Full)?;
            open.check_age(first, now)?;
            open.evict_connection(first);
        }
        open.clock += 1;
        let id = open.clock;
        let closing = stop.child_token();
        open.registered.insert(id, Registered { opened: now, closing: closing.clone() });
        let waiting = IdleConnection { kind: WaitKind::FirstRequest, since: id, id, address };
        open.add_connection(waiting);
        let waiting = Mutex::new(Some(waiting));
        Ok(Arc::new(ClientConnection { id, address, waiting, connections: self.clone(), closing }))
    }

    fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.open.lock()
    }
}

impl ConnectionTable {
    fn groups_of(&mut self, address: Option<IpAddr>) -> impl Iterator<Item = &mut ConnectionGroup> {
        let own = address.map(|address| self.by_address.entry(address).or_default());
        [&mut self.all].into_iter().chain(own)
    }

    fn add_connection(&mut self, waiting: IdleConnection) {
        for group in self.groups_of(waiting.address) {
            group.count += 1;
            group.waiting.insert(waiting);
        }
    }

    /// Refuses to close a connection that still waits for its first request and is too young.
    fn check_age(&self, waiting: IdleConnection, now: Instant) -> Result<(), Refusal> {
        let Some(registered) = self.registered.get(&waiting.id) else { return Ok(()) };
        let age = now.saturating_duration_since(registered.opened);
        if waiting.kind == WaitKind::FirstRequest && age < FIRST_CHANCE {
            return Err(Refusal::TooEarly(FIRST_CHANCE - age));
        }
        Ok(())
    }

    /// Closes a connection and stops counting it.
    fn evict_connection(&mut self, waiting: IdleConnection) {
        if let Some(registered) = self.registered.remove(&waiting.id) {
            registered.closing.cancel();
            self.remove_connection(waiting.address, Some(waiting));
        }
    }

    fn remove_connection(&mut self, address: Option<IpAddr>, waiting: Option<IdleConnection>) {
        for group in self.groups_of(address) {
            group.count -= 1;
            if let Some(waiting) = &waiting {
                group.waiting.remove(waiting);
            }
        }
        if let Some(address) = address
            && self.by_address.get(&address).is_some_and(|group| group.count == 0)
        {
            self.by_address.remove(&address);
        }
    }
}

impl ClientConnection {
    /// Returns whether the connection has sent no request yet.
    pub(super) fn is_silent(&self) -> bool {
        self.lock_idle_state().is_some_and(|waiting| waiting.kind == WaitKind::FirstRequest)
    }

    /// Returns whether a request waits for the rest of its body while its caller is unknown.
    pub(super) fn waits_for_body(&self) -> bool {
        self.lock_idle_state().is_some_and(|waiting| waiting.kind == WaitKind::Body)
    }

    /// Records the start of a request. Once its body is complete or its caller is known, the connection cannot close to
    /// make room. This ends when the answer is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, has_body: bool) -> AtWork {
        self.change_idle_state(has_body.then_some(WaitKind::Body));
        AtWork(self.clone())
    }

    /// Protects the connection from closing to make room, because the caller is known or the body is complete.
    fn protect_request(&self) {
        if self.waits_for_body() {
            self.change_idle_state(None);
        }
    }

    fn end_request(&self) {
        self.change_idle_state(Some(WaitKind::NextRequest));
    }

    /// Sets the state of the connection. `None` means that a request is in progress.
    fn change_idle_state(&self, kind: Option<WaitKind>) {
        let mut open = self.connections.lock_table();
        open.clock += 1;
        let now = kind.map(|kind| IdleConnection { kind, since: open.clock, id: self.id, address: self.address });
        let was = std::mem::replace(&mut *self.lock_idle_state(), now);
        if open.registered.contains_key(&self.id) {
            for group in open.groups_of(self.address) {
                if let Some(was) = &was {
                    group.waiting.remove(was);
                }
                group.waiting.extend(now);
            }
        }
    }

    fn lock_idle_state(&self) -> MutexGuard<'_, Option<IdleConnection>> {
        self.waiting.lock()
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let mut open = self.connections.lock_table();
        if open.registered.remove(&self.id).is_some() {
            let waiting = *self.lock_idle_state();
            open.remove_connection(self.address, waiting);
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct AtWork(Arc<ClientConnection>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

/// Connection of a request, for code that identifies the caller. It is in the extensions of each request.
#[derive(Debug, Clone)]
pub struct RequestConnection(pub(super) Arc<ClientConnection>);

impl RequestConnection {
    /// Records that the caller of this request is known. The connection then stays open even while the body is
    /// incomplete.
    pub fn caller_is_known(&self) {
        self.0.protect_request();
    }

    /// Records that the body is complete.
    pub(super) fn body_is_complete(&self) {
        self.0.protect_request();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(in_all: usize, per_address: usize, proxies: &[&str]) -> OpenConnections {
        let proxies = proxies.iter().map(|n| n.parse().unwrap()).collect();
        OpenConnections::new(ConnectionLimits { in_all, per_address, proxies })
    }

    /// Admits a connection at a time when all others are older than [`FIRST_CHANCE`].
    fn admit(connections: &OpenConnections, peer: &str) -> Option<Arc<ClientConnection>> {
        let opened = connections.lock_table().registered.values().map(|other| other.opened).max();
        let now = opened.map_or_else(Instant::now, |opened| opened + FIRST_CHANCE);
        match connections.admit_peer(peer.parse().unwrap(), now, &CancellationToken::new()) {
            Ok(connection) => Some(connection),
            Err(Refusal::Full) => None,
            Err(Refusal::TooEarly(wait)) => panic!("must wait for {wait:?}"),
        }
    }

    fn has_to_go(connections: &[&Arc<ClientConnection>]) -> Vec<bool> {
        connections.iter().map(|connection| connection.closing.is_cancelled()).collect()
    }

    #[test]
    fn silent_connection_closes_before_idle_one() {
        let all = connections(3, 9, &[]);
        let good = admit(&all, "192.0.2.1").unwrap();
        drop(good.begin_request(false));
        let silent = admit(&all, "192.0.2.2").unwrap();
        let later = admit(&all, "192.0.2.2").unwrap();
        let fourth = admit(&all, "192.0.2.3").unwrap();
        assert_eq!(has_to_go(&[&good, &silent, &later, &fourth]), [false, true, false, false]);
        let fifth = admit(&all, "192.0.2.3").unwrap();
        assert_eq!(has_to_go(&[&good, &later, &fourth, &fifth]), [false, true, false, false]);
    }

    #[test]
    fn longest_idle_connection_closes_first() {
        let all = connections(2, 9, &[]);
        let (first, second) = (admit(&all, "192.0.2.1").unwrap(), admit(&all, "192.0.2.1").unwrap());
        drop(second.begin_request(false));
        drop(first.begin_request(false));
        let at_work = first.begin_request(false);
        let third = admit(&all, "192.0.2.1").unwrap();
        assert_eq!(has_to_go(&[&first, &second]), [false, true]);
        let also_at_work = third.begin_request(false);
        assert!(admit(&all, "192.0.2.9").is_none(), "all are at work");
        drop((at_work, also_at_work));
        assert!(admit(&all, "192.0.2.9").is_some());
    }

    #[test]
    fn full_address_closes_its_own_connection() {
        let all = connections(9, 1, &["192.0.2.7/32"]);
        let (here, there) = (admit(&all, "192.0.2.1").unwrap(), admit(&all, "192.0.2.2").unwrap());
        let next = admit(&all, "192.0.2.1").unwrap();
        assert_eq!(has_to_go(&[&here, &there, &next]), [true, false, false]);
        let proxied: Vec<_> = (0..5).map(|_| admit(&all, "192.0.2.7").unwrap()).collect();
        assert_eq!(has_to_go(&proxied.iter().collect::<Vec<_>>()), [false; 5]);
    }

    #[test]
    fn new_connection_is_protected_at_first() {
        let all = connections(1, 9, &[]);
        let (now, stop) = (Instant::now(), CancellationToken::new());
        let first = admit(&all, "192.0.2.1").unwrap();
        let second = all.admit_peer("192.0.2.2".parse().unwrap(), now, &stop);
        assert!(matches!(second, Err(Refusal::TooEarly(wait)) if wait <= FIRST_CHANCE), "{second:?}");
        assert!(!first.closing.is_cancelled());
        let second = all.admit_peer("192.0.2.2".parse().unwrap(), now + FIRST_CHANCE * 2, &stop);
        assert!(second.is_ok() && first.closing.is_cancelled(), "{second:?}");
    }

    #[test]
    fn crowded_address_never_delays_another() {
        let all = connections(9, 1, &[]);
        let (now, stop) = (Instant::now(), CancellationToken::new());
        let first = admit(&all, "192.0.2.1").unwrap();
        let second = all.admit_peer("192.0.2.1".parse().unwrap(), now, &stop);
        assert!(second.is_ok() && first.closing.is_cancelled(), "{second:?}");
        assert!(all.admit_peer("192.0.2.2".parse().unwrap(), now, &stop).is_ok());
    }

    // Rule F35: Connections of unknown callers with incomplete bodies are closed before any others.
    #[test]
    fn incomplete_body_of_unknown_caller_goes_first() {
        let all = connections(4, 9, &[]);
        let silent = admit(&all, "192.0.2.1").unwrap();
        let [slow, known, complete] = [2, 3, 4].map(|n| admit(&all, &format!("192.0.2.{n}")).unwrap());
        let _requests = [&slow, &known, &complete].map(|connection| connection.begin_request(true));
        assert!(slow.waits_for_body() && known.waits_for_body());
        RequestConnection(known.clone()).caller_is_known();
        RequestConnection(complete.clone()).body_is_complete();
        let fifth = admit(&all, "192.0.2.5").unwrap();
        assert_eq!(has_to_go(&[&silent, &slow, &known, &complete, &fifth]), [false, true, false, false, false]);
        let sixth = admit(&all, "192.0.2.6").unwrap();
        assert_eq!(has_to_go(&[&silent, &known, &complete, &fifth, &sixth]), [true, false, false, false, false]);
    }

    // Rule F35: A request of a known caller keeps its connection, however slowly its body arrives.
    #[test]
    fn known_caller_keeps_its_connection() {
        let all = connections(1, 9, &[]);
        let known = admit(&all, "192.0.2.1").unwrap();
        let request = known.begin_request(true);
        RequestConnection(known.clone()).caller_is_known();
        assert!(admit(&all, "192.0.2.2").is_none() && !known.closing.is_cancelled());
        drop(request);
        // The protection ended with its request.
        let _next = known.begin_request(true);
        assert!(admit(&all, "192.0.2.2").is_some() && known.closing.is_cancelled());
    }

    #[test]
    fn closed_connections_are_no_longer_counted() {
        let all = connections(2, 2, &[]);
        for _ in 0..3 {
            let (one, other) = (admit(&all, "192.0.2.1").unwrap(), admit(&all, "192.0.2.1").unwrap());
            let at_work = one.begin_request(false);
            let third = admit(&all, "192.0.2.1").unwrap();
            assert_eq!(has_to_go(&[&one, &other]), [false, true]);
            drop((at_work, one, other, third));
        }
        let open = all.lock_table();
        assert_eq!(
            (open.all.count, open.all.waiting.len(), open.by_address.len(), open.registered.len()),
            (0, 0, 0, 0)
        );
    }
}
