//! The pool that every access to Postgres uses. Its statements have a client-side timeout.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream, stream::BoxStream};
use parking_lot::{Mutex, MutexGuard};
use sqlx::{
    Connection as _, Describe, Either, Error, Execute, Executor, PgConnection, PgPool, Postgres, SqlStr,
    postgres::{PgPoolOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    connection::{Connection, Transaction},
    refusals::WriteRefusals,
    resting::{HeldConnection, RestingConnections},
    session::SessionMode,
};

/// Maximum wait for a connection. After it the caller gets an error and can try again later.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time after which a connection is pinged before use. A ping before every statement would cost a busy process one
/// more round trip each. No Postgres restart is this short.
const IDLE_UNASKED: Duration = Duration::from_millis(50);
/// Timeout for the ping. A connection that does not respond is closed, and another one is opened in the remaining time.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Time beyond `statement_timeout` that the server gets to report its timeout.
const GRACE: Duration = Duration::from_secs(1);
/// Wait for a connection or for a batch after which new requests are refused.
pub const LONG_WAIT: Duration = Duration::from_millis(500);

/// Limits on the waiting statements, beyond which new requests are refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitBounds {
    pub(super) longest: Duration,
    /// Maximum waiting statements per connection. A request behind more of them would wait too long.
    pub(super) per_connection: usize,
}

impl WaitBounds {
    const REQUESTS: Self = Self { longest: LONG_WAIT, per_connection: 8 };
}

#[derive(Debug, Clone)]
pub struct Pool {
    connections: PgPool,
    resting: RestingConnections,
    /// One permit per allowed connection.
    permits: Arc<Semaphore>,
    statement_timeout: Duration,
    refusals: WriteRefusals,
    waiting: WaitQueue,
    bounds: WaitBounds,
    session: SessionMode,
}

/// Pings a connection that was idle for longer than [`IDLE_UNASKED`].
pub(super) async fn check_alive(connection: &mut PgConnection, idle: Duration) -> Result<(), Error> {
    if idle <= IDLE_UNASKED {
        return Ok(());
    }
    tokio::time::timeout(PING_TIMEOUT, connection.ping()).await.unwrap_or(Err(Error::PoolTimedOut))
}

/// Statements that wait for a connection, with their start times.
#[derive(Debug, Clone, Default)]
struct WaitQueue(Arc<Mutex<BTreeMap<u64, Instant>>>);

/// Entry in the [`WaitQueue`]; removed on drop.
struct Waiter<'a> {
    queue: &'a WaitQueue,
    number: u64,
}

impl WaitQueue {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock()
    }

    fn enter(&self) -> Waiter<'_> {
        let mut waiting = self.lock();
        let number = waiting.last_key_value().map_or(0, |(last, _)| last + 1);
        waiting.insert(number, Instant::now());
        Waiter { queue: self, number }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.queue.lock().remove(&self.number);
    }
}

impl Pool {
    /// Creates a pool. `statement_timeout` is the value that is set on the server.
    pub fn new(connections: PgPool, statement_timeout: Duration) -> Self {
        let most = connections.options().get_max_connections() as usize;
        Self {
            connections,
            resting: RestingConnections::default(),
            permits: Arc::new(Semaphore::new(most)),
            statement_timeout,
            refusals: WriteRefusals::new(most),
            waiting: WaitQueue::default(),
            bounds: WaitBounds::REQUESTS,
            session: SessionMode::own(),
        }
    }

    /// Returns the pool for connections through a pooler in transaction mode. `settings` apply to each transaction.
    /// `keeps_names` is whether the pooler keeps named statements.
    #[must_use]
    pub(super) fn behind_pooler(self, settings: &[(&str, &str)], keeps_names: bool) -> Self {
        Self { session: SessionMode::shared(settings, keeps_names), ..self }
    }

    /// Returns the pool with other limits on its waiting statements.
    #[must_use]
    pub(super) fn with_bounds(self, bounds: WaitBounds) -> Self {
        Self { bounds, ..self }
    }

    pub(super) fn sibling_pool(&self, options: PgPoolOptions) -> Self {
        let connections = options.connect_lazy_with((*self.connections.connect_options()).clone());
        Self { session: self.session.clone(), ..Self::new(connections, self.statement_timeout) }
    }

    /// Creates a separate pool to the same server for statements that find a few rows by ids or coordinates. Each
    /// statement is planned once per connection and must use an index. A plan made while a table had few rows would
    /// scan the whole table for the lifetime of the connection. Behind a pooler that keeps no named statements, each
    /// statement is planned when it runs, except for statements inside functions.
    ///
    /// The same applies to an index with few rows, such as that of all waiting messages. While nothing waits, scanning
    /// that index looks cheapest, and later each statement would read the whole backlog. Statements hide such an index
    /// with `state || ''`; a test finds those that do not.
    pub(super) fn by_index_pool(&self, options: PgPoolOptions) -> Self {
        const BY_INDEX: [(&str, &str); 4] = [
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
        ];
        if self.session.is_shared() {
            return Self { session: self.session.with_names(&BY_INDEX), ..self.sibling_pool(options) };
        }
        let connect = (*self.connections.connect_options()).clone().options(BY_INDEX);
        Self::new(options.connect_lazy_with(connect), self.statement_timeout)
    }

    /// Creates a separate pool to the same server whose transactions are all READ ONLY. The statement timeout is
    /// `limit` or that of this pool, whichever is shorter.
    pub(super) fn read_only_pool(&self, options: PgPoolOptions, limit: Duration) -> Self {
        let limit = limit.min(self.statement_timeout);
        let limit_ms = limit.as_millis().to_string();
        if self.session.is_shared() {
            let session = self.session.read_only(&limit_ms);
            return Self { session, statement_timeout: limit, ..self.sibling_pool(options) };
        }
        let connect = (*self.connections.connect_options()).clone();
        // If an option is given twice, Postgres uses the last value.
        let connect =
            connect.options([("default_transaction_read_only", "on"), ("statement_timeout", limit_ms.as_str())]);
        Self::new(options.connect_lazy_with(connect), limit)
    }

    /// Returns a pool on the same connections that reads only the orders of a scope, given as JSON.
    #[must_use]
    pub fn scoped(&self, scope: &str) -> Self {
        Self { session: self.session.scoped(scope), ..self.clone() }
    }

    pub async fn acquire(&self) -> Result<Connection, Error> {
        let waiter = self.waiting.enter();
        let taken = tokio::time::timeout(ACQUIRE_TIMEOUT, self.take_connection()).await;
        let (held, permit) = taken.unwrap_or(Err(Error::PoolTimedOut))?;
        drop(waiter);
        let limit = self.statement_timeout + GRACE;
        Ok(Connection::new(held, permit, limit, self.resting.clone(), self.refusals.clone(), self.session.clone()))
    }

    /// Takes the most recently used idle connection, or opens another one.
    async fn take_connection(&self) -> Result<(HeldConnection, OwnedSemaphorePermit), Error> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Error::PoolClosed)?;
        while let Some((mut held, idle)) = self.resting.take_latest() {
            if check_alive(&mut held.connection, idle).await.is_ok() {
                return Ok((held, permit));
            }
            held.connection.close_on_drop();
        }
        Ok((HeldConnection::new(self.connections.acquire().await?), permit))
    }

    pub async fn begin(&self) -> Result<Transaction<'static>, Error> {
        Transaction::begin(self.acquire().await?).await
    }

    /// Returns whether a new request should be refused: every connection is in use, and the waiting statements exceed a
    /// limit. While the pool opens a connection or replaces a dead one, it is not overloaded.
    pub fn is_overloaded(&self) -> bool {
        let most = self.connections.options().get_max_connections();
        if self.permits.available_permits() > 0 || self.connections.size() < most {
            return false;
        }
        let waiting = self.waiting.lock();
        let waits_long = waiting.first_key_value().is_some_and(|(_, since)| since.elapsed() > self.bounds.longest);
        waits_long || waiting.len() >= self.bounds.per_connection * most as usize
    }

    /// Makes the pool check its connections for write access, as after a refused write. Used by callers that only read.
    pub(crate) fn suspect_read_only(&self) {
        self.refusals.record();
    }

    /// Returns the number of open connections, idle ones included.
    pub fn size(&self) -> u32 {
        self.connections.size()
    }

    /// Waits until all connections are returned, and closes them.
    pub async fn close(&self) {
        self.permits.close();
        for held in self.resting.close() {
            // A failure is ignored: the connection is closed either way.
            let _ = tokio::time::timeout(PING_TIMEOUT, held.connection.close()).await;
        }
        self.connections.close().await;
    }
}

/// Runs each statement on a separate connection.
impl<'c> Executor<'c> for &'c Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let collected = async move { self.acquire().await?.fetch_many(query).try_collect::<Vec<_>>().await };
        stream::once(collected).map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        async move { self.acquire().await?.fetch_optional(query).await }.boxed()
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        async move { self.acquire().await?.prepare_with(sql, parameters).await }.boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        async move { self.acquire().await?.describe(sql).await }.boxed()
    }
}
