//! Connections on which every statement is answered in time, or given up.
//!
//! `statement_timeout` is kept by the server. A server that vanished without a word keeps nothing: sqlx would wait for it until
//! TCP gives up, a quarter of an hour later, and each statement that waits holds one of the pool's connections. So each wait
//! has a bound at our end, too, here, where every statement passes.
//!
//! Results are collected before they are handed on: ours are pages, and so one bound holds for all of a result.

use std::{
    collections::BTreeMap,
    future::Future,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream, stream::BoxStream};
use sqlx::{
    Describe, Either, Error, Execute, Executor, PgConnection, PgPool, Postgres, Row, SqlStr,
    pool::PoolConnection,
    postgres::{PgPoolOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo},
};

use super::failure::is_read_only;

/// What the server needs beyond `statement_timeout` to say that a statement took too long.
const GRACE: Duration = Duration::from_secs(1);
/// A connection handed back must answer within this time, or it is closed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// After a write was refused, connections are asked before they go back whether they take writes, until so many in a row, for
/// each there may be, said that they do: connections take turns.
const ASKED_PER_CONNECTION: usize = 4;
/// While no connection takes writes, so often one is replaced, to find out whether a new one does.
const READ_ONLY_REPLACED_EVERY: Duration = Duration::from_secs(1);
/// A request that waits longer for a connection had better been refused.
const LONG_WAIT: Duration = Duration::from_millis(500);
/// Statements that wait, for each connection there may be: more than that will not have their turn soon.
const WAITING_PER_CONNECTION: usize = 4;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    connections: PgPool,
    statement_timeout: Duration,
    refusals: WriteRefusals,
    waiting: WaitQueue,
    most: usize,
}

/// What is known of a server that refused a write. A connection that began while the server took no writes may refuse them for
/// as long as it lives, so it is replaced; while none takes writes, replacing all of them would only cost time.
#[derive(Debug, Clone, Default)]
struct WriteRefusals(Arc<Mutex<Suspicion>>);

#[derive(Debug, Default)]
struct Suspicion {
    /// So many answers are yet to be had; 0: no write was refused lately.
    to_ask: usize,
    /// When a connection last said that it takes writes.
    accepted: Option<Instant>,
    replaced: Option<Instant>,
}

fn is_within(at: Option<Instant>, time: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < time)
}

impl WriteRefusals {
    fn lock(&self) -> MutexGuard<'_, Suspicion> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, connections: usize) {
        self.lock().to_ask = ASKED_PER_CONNECTION * connections;
    }

    fn are_recent(&self) -> bool {
        self.lock().to_ask > 0
    }

    /// Returns whether a connection is to be kept that takes writes, or takes none.
    fn keeps(&self, takes_writes: bool, connections: usize) -> bool {
        let mut seen = self.lock();
        if takes_writes {
            seen.to_ask = seen.to_ask.saturating_sub(1);
            seen.accepted = Some(Instant::now());
            return true;
        }
        seen.to_ask = ASKED_PER_CONNECTION * connections;
        if is_within(seen.accepted, READ_ONLY_REPLACED_EVERY) || !is_within(seen.replaced, READ_ONLY_REPLACED_EVERY) {
            seen.replaced = Some(Instant::now());
            return false;
        }
        true
    }
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (refusals, waiting) = (WriteRefusals::default(), WaitQueue::default());
        Self { connections, statement_timeout, refusals, waiting, most }
    }

    /// A pool of its own to the same server.
    pub(super) fn sibling_pool(&self, options: PgPoolOptions) -> Self {
        let connections = options.connect_lazy_with((*self.connections.connect_options()).clone());
        Self::new(connections, self.statement_timeout)
    }

    pub async fn acquire(&self) -> Result<Connection, Error> {
        let waiter = self.waiting.enter();
        let held = self.connections.acquire().await?;
        drop(waiter);
        Ok(Connection {
            held: Some(held),
            limit: Some(self.statement_timeout + GRACE),
            in_transaction: false,
            rollback_due: false,
            is_spoilt: false,
            refusals: self.refusals.clone(),
            siblings: self.most,
        })
    }

    pub async fn begin(&self) -> Result<Transaction<'static>, Error> {
        let mut connection = self.acquire().await?;
        connection.send_begin().await?;
        Ok(Transaction { connection: TransactionConnection::Own(connection), joins: false, is_open: true })
    }

    /// Returns whether one more request had better be refused: others wait long for a connection already, or many wait.
    pub fn is_overloaded(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.len() >= WAITING_PER_CONNECTION * self.most
            || waiting.first_key_value().is_some_and(|(_, since)| since.elapsed() > LONG_WAIT)
    }

    /// How many connections there are, idle ones too.
    pub fn size(&self) -> u32 {
        self.connections.size()
    }

    /// Returns when every connection is back, and closed.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

/// One connection of the pool; dropped, it goes back.
#[derive(Debug)]
pub struct Connection {
    /// `None` only while it is dropped.
    held: Option<PoolConnection<Postgres>>,
    /// For each statement; `None`: it takes as long as it takes.
    limit: Option<Duration>,
    in_transaction: bool,
    /// A transaction was dropped before its commit: it is rolled back before the next statement.
    rollback_due: bool,
    /// It is closed instead of going back.
    is_spoilt: bool,
    refusals: WriteRefusals,
    /// How many connections the pool may have.
    siblings: usize,
}

impl Connection {
    /// Lets statements take as long as they take, at both ends, until this transaction or this use of the connection ends.
    pub async fn lift_limit(&mut self) -> Result<(), Error> {
        if self.in_transaction {
            self.execute("SET LOCAL statement_timeout = 0").await?;
        } else {
            self.execute("SET statement_timeout = 0").await?;
            self.is_spoilt = true;
        }
        self.limit = None;
        Ok(())
    }

    /// Begins a transaction, or joins the one that this connection is in: that one commits then, or is rolled back, for both.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        let joins = self.in_transaction && !self.rollback_due;
        if !joins {
            self.send_begin().await?;
        }
        Ok(Transaction { connection: TransactionConnection::Borrowed(self), joins, is_open: true })
    }

    async fn send_begin(&mut self) -> Result<(), Error> {
        self.roll_back_if_due().await?;
        // From here on: a BEGIN whose answer is not waited for is rolled back, too.
        self.in_transaction = true;
        self.rollback_due = true;
        self.execute_in_time("BEGIN").await?;
        self.rollback_due = false;
        Ok(())
    }

    async fn roll_back_if_due(&mut self) -> Result<(), Error> {
        if self.rollback_due { self.end_transaction("ROLLBACK").await } else { Ok(()) }
    }

    /// Ends the transaction.
    async fn end_transaction(&mut self, how: &'static str) -> Result<(), Error> {
        self.execute_in_time(how).await?;
        (self.in_transaction, self.rollback_due) = (false, false);
        Ok(())
    }

    async fn execute_in_time(&mut self, statement: &'static str) -> Result<(), Error> {
        self.answer_in_time(|connection| connection.execute(statement)).await.map(drop)
    }

    /// The connection itself, without bounds, for what needs one.
    pub fn as_raw(&mut self) -> Result<&mut PgConnection, Error> {
        self.held.as_deref_mut().ok_or(Error::PoolClosed)
    }

    /// Waits for an answer, no longer than it may take.
    async fn in_time<'a, T, F>(&'a mut self, ask: impl FnOnce(&'a mut PgConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        self.roll_back_if_due().await?;
        self.answer_in_time(ask).await
    }

    async fn answer_in_time<'a, T, F>(&'a mut self, ask: impl FnOnce(&'a mut PgConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        let connection = self.held.as_deref_mut().ok_or(Error::PoolClosed)?;
        let answer = match self.limit {
            Some(limit) => tokio::time::timeout(limit, ask(connection)).await.unwrap_or_else(|_| {
                self.is_spoilt = true;
                Err(no_answer())
            }),
            None => ask(connection).await,
        };
        if answer.as_ref().is_err_and(is_read_only) {
            self.refusals.record(self.siblings);
        }
        answer
    }
}

/// As a connection that broke: it is transient, and the statement may have been carried out.
fn no_answer() -> Error {
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "Postgres did not answer in time"))
}

impl Drop for Connection {
    /// What was dropped in the middle of a statement still runs, and is answered first.
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        if self.is_spoilt {
            held.close_on_drop();
            return;
        }
        let (in_transaction, refusals, siblings) = (self.in_transaction, self.refusals.clone(), self.siblings);
        // sqlx sets no limit to this: after a network that swallowed everything, such connections would fill the pool.
        tokio::spawn(async move {
            let is_clean = async {
                if in_transaction {
                    held.execute("ROLLBACK").await?;
                }
                Ok::<_, Error>(!refusals.are_recent() || refusals.keeps(takes_writes(&mut held).await?, siblings))
            };
            if matches!(tokio::time::timeout(RELEASE_TIMEOUT, is_clean).await, Ok(Ok(true))) {
                let _ = tokio::time::timeout(RELEASE_TIMEOUT, held.return_to_pool()).await;
            } else {
                held.close_on_drop();
            }
        });
    }
}

async fn takes_writes(connection: &mut PgConnection) -> Result<bool, Error> {
    let row = connection.fetch_one("SHOW transaction_read_only").await?;
    row.try_get::<&str, _>(0).map(|value| value == "off")
}

/// A connection in a transaction. Dropped before its commit, it is rolled back.
#[derive(Debug)]
pub struct Transaction<'c> {
    connection: TransactionConnection<'c>,
    /// It is part of another.
    joins: bool,
    is_open: bool,
}

#[derive(Debug)]
enum TransactionConnection<'c> {
    Own(Connection),
    Borrowed(&'c mut Connection),
}

impl Transaction<'_> {
    pub async fn commit(mut self) -> Result<(), Error> {
        if self.rollback_due {
            return Err(Error::Protocol("a part of this transaction was given up".to_owned()));
        }
        if !self.joins {
            self.end_transaction("COMMIT").await?;
        }
        self.is_open = false;
        Ok(())
    }

    pub async fn rollback(mut self) -> Result<(), Error> {
        self.end_transaction("ROLLBACK").await?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.rollback_due = true;
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match &self.connection {
            TransactionConnection::Own(connection) => connection,
            TransactionConnection::Borrowed(connection) => connection,
        }
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        match &mut self.connection {
            TransactionConnection::Own(connection) => connection,
            TransactionConnection::Borrowed(connection) => connection,
        }
    }
}

impl<'c> Executor<'c> for &'c mut Connection {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let collected = self.in_time(|connection| connection.fetch_many(query).try_collect::<Vec<_>>());
        stream::once(collected).map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.in_time(|connection| connection.fetch_optional(query)).boxed()
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        self.in_time(|connection| connection.prepare_with(sql, parameters)).boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        self.in_time(|connection| connection.describe(sql)).boxed()
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
