//! A connection on which every statement has a timeout on the client side.
//!
//! The server enforces `statement_timeout`. If the server vanishes, sqlx waits until TCP gives up, about 15 minutes
//! later, and each waiting statement occupies a connection of the pool. Every statement passes through this module,
//! which therefore bounds each wait.
//!
//! Results are collected before they are returned. They are pages of bounded size, so one timeout covers the whole
//! result.

use std::{
    future::Future,
    ops::{Deref, DerefMut},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream, stream::BoxStream};
use sqlx::{
    Describe, Either, Error, Execute, Executor, PgConnection, Postgres, Row, SqlStr,
    postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo},
};

use tokio::sync::OwnedSemaphorePermit;

use super::{
    failure::is_read_only,
    refusals::WriteRefusals,
    resting::{HeldConnection, RestingConnections},
    session::{SessionMode, SharedStatement},
};

/// Timeout for a connection that is returned. A connection that does not respond is closed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connection of a pool. Dropping it returns it to the pool.
#[derive(Debug)]
pub struct Connection {
    /// `None` only during the drop.
    held: Option<HeldConnection>,
    /// Permit that counts this connection against the pool's maximum.
    permit: Option<OwnedSemaphorePermit>,
    /// Idle connections of the pool. The connection goes there when its statements are finished.
    resting: RestingConnections,
    /// A statement is running, was abandoned before its result arrived, or failed. The connection may be dead.
    is_in_doubt: bool,
    /// Timeout for each statement.
    limit: Duration,
    /// Whether the statements of this transaction have no time limit.
    is_unlimited: bool,
    transaction: TransactionState,
    /// A statement got no response. The connection runs no further statement and is closed instead of returned.
    is_lost: bool,
    refusals: WriteRefusals,
    session: SessionMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    None,
    Open,
    /// A nested transaction was abandoned. The transaction accepts no further statements and does not commit.
    Broken,
    /// The transaction was dropped before its commit, or it wraps a single statement. It is rolled back before the next
    /// statement.
    Abandoned,
}

impl Connection {
    /// Creates a connection. `limit` is the timeout for each statement.
    pub(super) fn new(
        held: HeldConnection,
        permit: OwnedSemaphorePermit,
        limit: Duration,
        resting: RestingConnections,
        refusals: WriteRefusals,
        session: SessionMode,
    ) -> Self {
        Self {
            held: Some(held),
            permit: Some(permit),
            resting,
            is_in_doubt: false,
            limit,
            is_unlimited: false,
            transaction: TransactionState::None,
            is_lost: false,
            refusals,
            session,
        }
    }

    /// Starts a transaction, or joins the open one. A joined transaction commits or rolls back together with the open
    /// one.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        let joins = matches!(self.transaction, TransactionState::Open | TransactionState::Broken);
        if !joins {
            self.send_begin().await?;
        }
        Ok(Transaction { connection: TransactionConnection::Borrowed(self), joins, is_open: true })
    }

    /// Takes the connection out of its pool. Its statements have no client-side timeout.
    pub fn detach(mut self) -> Result<PgConnection, Error> {
        self.held.take().map(|held| held.connection.detach()).ok_or(Error::PoolClosed)
    }

    async fn send_begin(&mut self) -> Result<(), Error> {
        self.end_abandoned().await?;
        // Set before BEGIN is sent: if the response to BEGIN is not awaited, the transaction is rolled back too.
        self.transaction = TransactionState::Abandoned;
        let begin = self.session.begin_statement();
        self.answer_in_time(|connection| connection.execute(begin)).await?;
        self.transaction = TransactionState::Open;
        Ok(())
    }

    /// Starts the transaction that wraps a single statement in a shared session. Returns `false` if the statement needs
    /// none.
    async fn begin_alone(&mut self) -> Result<bool, Error> {
        self.end_abandoned().await?;
        if !self.session.is_shared() || self.transaction != TransactionState::None {
            return Ok(false);
        }
        self.send_begin().await?;
        // Set until the statement ends: if the statement is dropped midway, its transaction is rolled back.
        self.transaction = TransactionState::Abandoned;
        Ok(true)
    }

    /// Ends the transaction of [`begin_alone`](Self::begin_alone). Returns the result after the COMMIT.
    async fn end_alone<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        let ended = self.end_transaction(if answer.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
        let answer = answer?;
        ended.map(|()| answer)
    }

    /// Returns the result after Postgres has released the locks of a failed single statement. Postgres reports the
    /// error before it releases the locks, and another session could still run into them.
    async fn end_failed<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        let is_told = answer.as_ref().is_err_and(|error| error.as_database_error().is_some());
        if is_told && self.transaction == TransactionState::None {
            // A ping failure is ignored: an ended session holds no locks.
            let _ = self.answer_in_time(sqlx::Connection::ping).await;
        }
        answer
    }

    async fn end_abandoned(&mut self) -> Result<(), Error> {
        match self.transaction {
            TransactionState::Abandoned => self.end_transaction("ROLLBACK").await,
            TransactionState::Broken => Err(given_up()),
            TransactionState::None | TransactionState::Open => Ok(()),
        }
    }

    async fn end_transaction(&mut self, how: &'static str) -> Result<(), Error> {
        self.is_unlimited = false;
        self.execute_in_time(how).await?;
        self.transaction = TransactionState::None;
        Ok(())
    }

    async fn execute_in_time(&mut self, statement: &'static str) -> Result<(), Error> {
        self.answer_in_time(|connection| connection.execute(statement)).await.map(drop)
    }

    /// Runs `ask` after it has rolled back an abandoned transaction. Fails after the timeout.
    async fn in_time<'a, T, F>(&'a mut self, ask: impl FnOnce(&'a mut PgConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        self.end_abandoned().await?;
        self.answer_in_time(ask).await
    }

    async fn answer_in_time<'a, T, F>(&'a mut self, ask: impl FnOnce(&'a mut PgConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        if self.is_lost {
            return Err(no_answer());
        }
        let connection = &mut *self.held.as_mut().ok_or(Error::PoolClosed)?.connection;
        self.is_in_doubt = true;
        let answer = if self.is_unlimited {
            ask(connection).await
        } else {
            tokio::time::timeout(self.limit, ask(connection)).await.unwrap_or_else(|_| {
                self.is_lost = true;
                Err(no_answer())
            })
        };
        self.is_in_doubt = answer.is_err();
        if answer.as_ref().is_err_and(is_read_only) {
            self.refusals.record();
        }
        answer
    }
}

/// Returns an I/O error, like that of a broken connection: it is transient, and the statement may have been executed.
fn no_answer() -> Error {
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "Postgres did not answer in time"))
}

fn given_up() -> Error {
    Error::Protocol("a nested transaction was abandoned".to_owned())
}

impl Drop for Connection {
    /// Returns the connection to the pool. An abandoned statement still runs, so its response is read first.
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        if self.is_lost {
            let mut held = held.connection;
            held.close_on_drop();
            return;
        }
        let in_transaction = self.transaction != TransactionState::None;
        let mut held = if in_transaction || self.is_in_doubt || self.refusals.are_recent() {
            held.connection
        } else {
            let Some(held) = self.resting.keep(held) else { return };
            held.connection
        };
        let (refusals, permit) = (self.refusals.clone(), self.permit.take());
        // sqlx has no timeout for this. After a network failure such connections would fill the pool.
        tokio::spawn(async move {
            let _permit = permit;
            let may_go_back = async {
                if in_transaction {
                    held.execute("ROLLBACK").await?;
                }
                Ok::<_, Error>(!refusals.are_recent() || refusals.keeps(takes_writes(&mut held).await?))
            };
            if matches!(tokio::time::timeout(RELEASE_TIMEOUT, may_go_back).await, Ok(Ok(true))) {
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

/// Connection in a transaction. Dropping it before the commit rolls the transaction back.
#[derive(Debug)]
pub struct Transaction<'c> {
    connection: TransactionConnection<'c>,
    /// Whether it is nested in another transaction.
    joins: bool,
    is_open: bool,
}

#[derive(Debug)]
enum TransactionConnection<'c> {
    Own(Connection),
    Borrowed(&'c mut Connection),
}

impl Transaction<'static> {
    /// Starts a transaction on a connection that has none.
    pub(super) async fn begin(mut connection: Connection) -> Result<Self, Error> {
        connection.send_begin().await?;
        Ok(Self { connection: TransactionConnection::Own(connection), joins: false, is_open: true })
    }
}

impl Transaction<'_> {
    /// Removes the time limit of the statements in this transaction, on the server and on the client.
    pub async fn lift_limit(&mut self) -> Result<(), Error> {
        self.execute("SET LOCAL statement_timeout = 0").await?;
        self.is_unlimited = true;
        Ok(())
    }

    pub async fn commit(mut self) -> Result<(), Error> {
        if self.transaction != TransactionState::Open {
            return Err(given_up());
        }
        if !self.joins {
            self.end_transaction("COMMIT").await?;
        }
        self.is_open = false;
        Ok(())
    }

    /// Rolls back. A nested transaction also rolls back the outer one.
    pub async fn rollback(mut self) -> Result<(), Error> {
        if !self.joins {
            self.end_transaction("ROLLBACK").await?;
            self.is_open = false;
        }
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.transaction = if self.joins { TransactionState::Broken } else { TransactionState::Abandoned };
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
        let collected = async move {
            if !self.session.is_shared() {
                let answer = self.in_time(|connection| connection.fetch_many(query).try_collect::<Vec<_>>()).await;
                return self.end_failed(answer).await;
            }
            let is_alone = self.begin_alone().await?;
            let query = SharedStatement { query, has_name: self.session.has_names() };
            let answer = self.answer_in_time(|connection| connection.fetch_many(query).try_collect::<Vec<_>>()).await;
            if is_alone { self.end_alone(answer).await } else { answer }
        };
        stream::once(collected).map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let asked = async move {
            if !self.session.is_shared() {
                let answer = self.in_time(|connection| connection.fetch_optional(query)).await;
                return self.end_failed(answer).await;
            }
            let is_alone = self.begin_alone().await?;
            let query = SharedStatement { query, has_name: self.session.has_names() };
            let answer = self.answer_in_time(|connection| connection.fetch_optional(query)).await;
            if is_alone { self.end_alone(answer).await } else { answer }
        };
        asked.boxed()
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
