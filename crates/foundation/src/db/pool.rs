//! The one way to Postgres: connections on which every statement is answered in time, or given up.

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

/// A process that cannot have a connection within this time is better off trying again later.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that was idle for longer is asked whether it is still there before it is used: asking each time would cost
/// another round trip for each statement of a busy process. No restart of Postgres is over so soon.
const IDLE_UNASKED: Duration = Duration::from_millis(50);
/// Taking a connection that does not answer this is as bad as having none; another is made in the time that is left.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// What the server needs beyond `statement_timeout` to say that a statement took too long.
const GRACE: Duration = Duration::from_secs(1);
/// A request that waits longer for a connection, or for its batch, had better been refused.
pub const LONG_WAIT: Duration = Duration::from_millis(500);

/// What may wait for a connection before one more had better be refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitBounds {
    pub(super) longest: Duration,
    /// Statements, for each connection there may be: one behind more of them will not have its turn soon.
    pub(super) per_connection: usize,
}

impl WaitBounds {
    const REQUESTS: Self = Self { longest: LONG_WAIT, per_connection: 8 };
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    connections: PgPool,
    resting: RestingConnections,
    /// One for each connection there may be.
    permits: Arc<Semaphore>,
    statement_timeout: Duration,
    refusals: WriteRefusals,
    waiting: WaitQueue,
    bounds: WaitBounds,
    session: SessionMode,
}

/// Asks a connection that was idle for so long whether it is still there, unless that is no time.
pub(super) async fn check_alive(connection: &mut PgConnection, idle: Duration) -> Result<(), Error> {
    if idle <= IDLE_UNASKED {
        return Ok(());
    }
    tokio::time::timeout(PING_TIMEOUT, connection.ping()).await.unwrap_or(Err(Error::PoolTimedOut))
}

/// Who waits for a connection, and since when.
#[derive(Debug, Clone, Default)]
struct WaitQueue(Arc<Mutex<BTreeMap<u64, Instant>>>);

/// One who waits; dropped, it waits no more.
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
    /// `statement_timeout` is what the server was told.
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

    /// The same connections, through a pooler that hands out sessions for a transaction each, with these settings.
    #[must_use]
    pub(super) fn behind_pooler(self, settings: &[(&str, &str)]) -> Self {
        Self { session: SessionMode::shared(settings), ..self }
    }

    /// The same connections, for which more may wait, or for longer.
    #[must_use]
    pub(super) fn with_bounds(self, bounds: WaitBounds) -> Self {
        Self { bounds, ..self }
    }

    /// A pool of its own to the same server.
    pub(super) fn sibling_pool(&self, options: PgPoolOptions) -> Self {
        let connections = options.connect_lazy_with((*self.connections.connect_options()).clone());
        Self { session: self.session.clone(), ..Self::new(connections, self.statement_timeout) }
    }

    /// A pool of its own to the same server, for statements that find few rows by ids or places: each is planned once for a connection, to use
    /// indexes. A plan that was made while a table had few rows would read all of it, for as long as the connection lives. Behind a
    /// pooler each statement is planned when it is run, for the table as it is, but for those inside of functions.
    ///
    /// So it goes with an index of a few rows, such as all messages that wait: while nothing waits, reading all of it looks cheapest, and
    /// a backlog is read as a whole by each statement. Statements hide such an index by `state || ''`; a test finds those that do not.
    pub(super) fn by_index_pool(&self, options: PgPoolOptions) -> Self {
        if self.session.is_shared() {
            return self.sibling_pool(options);
        }
        let connect = (*self.connections.connect_options()).clone().options([
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
        ]);
        Self::new(options.connect_lazy_with(connect), self.statement_timeout)
    }

    /// A pool of its own to the same server, on which every transaction is READ ONLY, and no statement takes longer than `limit`
    /// or than those of this pool.
    pub(super) fn read_only_pool(&self, options: PgPoolOptions, limit: Duration) -> Self {
        let limit = limit.min(self.statement_timeout);
        let limit_ms = limit.as_millis().to_string();
        if self.session.is_shared() {
            let session = self.session.read_only(&limit_ms);
            return Self { session, statement_timeout: limit, ..self.sibling_pool(options) };
        }
        let connect = (*self.connections.connect_options()).clone();
        // Of two values of a setting the last holds.
        let connect =
            connect.options([("default_transaction_read_only", "on"), ("statement_timeout", limit_ms.as_str())]);
        Self::new(options.connect_lazy_with(connect), limit)
    }

    pub async fn acquire(&self) -> Result<Connection, Error> {
        let waiter = self.waiting.enter();
        let taken = tokio::time::timeout(ACQUIRE_TIMEOUT, self.take_connection()).await;
        let (held, permit) = taken.unwrap_or(Err(Error::PoolTimedOut))?;
        drop(waiter);
        let limit = self.statement_timeout + GRACE;
        Ok(Connection::new(held, permit, limit, self.resting.clone(), self.refusals.clone(), self.session.clone()))
    }

    /// Takes the connection that was in use last, or another one.
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

    /// Returns whether one more request had better be refused: every connection is taken, and others wait for one too long or are
    /// too many. A connection that is being made, or idle and dead, is waited for by one statement alone.
    pub fn is_overloaded(&self) -> bool {
        let most = self.connections.options().get_max_connections();
        if self.permits.available_permits() > 0 || self.connections.size() < most {
            return false;
        }
        let waiting = self.waiting.lock();
        let waits_long = waiting.first_key_value().is_some_and(|(_, since)| since.elapsed() > self.bounds.longest);
        waits_long || waiting.len() >= self.bounds.per_connection * most as usize
    }

    /// Has connections asked whether they take writes, as after a write was refused: for those who only read.
    pub(crate) fn suspect_read_only(&self) {
        self.refusals.record();
    }

    /// How many connections there are, idle ones too.
    pub fn size(&self) -> u32 {
        self.connections.size()
    }

    /// Returns when every connection is back, and closed.
    pub async fn close(&self) {
        self.permits.close();
        for held in self.resting.close() {
            // It is closed either way.
            let _ = tokio::time::timeout(PING_TIMEOUT, held.connection.close()).await;
        }
        self.connections.close().await;
    }
}

/// Each statement on a connection of its own.
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
