//! A connection on which every statement is answered in time, or given up.
//!
//! `statement_timeout` is kept by the server. A server that vanished without a word keeps nothing: sqlx would wait for it until
//! TCP gives up, a quarter of an hour later, and each statement that waits holds one of the pool's connections. So each wait
//! has a bound at our end, too, here, where every statement passes.
//!
//! Results are collected before they are handed on: ours are pages, and so one bound holds for all of a result.

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
    session::{SessionMode, UnnamedStatement},
};

/// A connection handed back must answer within this time, or it is closed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection of a pool; dropped, it goes back.
#[derive(Debug)]
pub struct Connection {
    /// `None` only while it is dropped.
    held: Option<HeldConnection>,
    /// Its place among those that there may be.
    permit: Option<OwnedSemaphorePermit>,
    /// Where it rests when it has answered all that it was asked.
    resting: RestingConnections,
    /// A statement is under way, was given up before its answer had come, or failed: it may be dead.
    is_in_doubt: bool,
    /// For each statement.
    limit: Duration,
    /// The statements of this transaction take as long as they take.
    is_unlimited: bool,
    transaction: TransactionState,
    /// A statement got no answer: it is closed instead of going back, and asked nothing more.
    is_lost: bool,
    refusals: WriteRefusals,
    session: SessionMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    None,
    Open,
    /// A part of it was given up. Nothing more is done in it, and it does not commit.
    Broken,
    /// It was dropped before its commit, or is that of a statement that stands alone: it is rolled back before the next statement.
    Abandoned,
}

impl Connection {
    /// `limit` is for each statement.
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

    /// Begins a transaction, or joins the one that this connection is in: that one commits then, or is rolled back, for both.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        let joins = matches!(self.transaction, TransactionState::Open | TransactionState::Broken);
        if !joins {
            self.send_begin().await?;
        }
        Ok(Transaction { connection: TransactionConnection::Borrowed(self), joins, is_open: true })
    }

    /// Takes the connection out of its pool. Its statements have no limit at our end.
    pub fn detach(mut self) -> Result<PgConnection, Error> {
        self.held.take().map(|held| held.connection.detach()).ok_or(Error::PoolClosed)
    }

    async fn send_begin(&mut self) -> Result<(), Error> {
        self.end_abandoned().await?;
        // From here on: a BEGIN whose answer is not waited for is rolled back, too.
        self.transaction = TransactionState::Abandoned;
        let begin = self.session.begin_statement();
        self.answer_in_time(|connection| connection.execute(begin)).await?;
        self.transaction = TransactionState::Open;
        Ok(())
    }

    /// Begins the transaction of a statement that stands alone, where sessions are shared. `false`: it needs none.
    async fn begin_alone(&mut self) -> Result<bool, Error> {
        self.end_abandoned().await?;
        if !self.session.is_shared() || self.transaction != TransactionState::None {
            return Ok(false);
        }
        self.send_begin().await?;
        // Until it has ended: a statement that is dropped in the middle is rolled back.
        self.transaction = TransactionState::Abandoned;
        Ok(true)
    }

    /// Ends what [`begin_alone`](Self::begin_alone) began, and returns the answer once that is written.
    async fn end_alone<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        let ended = self.end_transaction(if answer.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
        let answer = answer?;
        ended.map(|()| answer)
    }

    /// Returns the answer once Postgres has ended a statement that stood alone and failed: it tells the error before it gives back what
    /// the statement had locked, and another session would meet those locks.
    async fn end_failed<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        let is_told = answer.as_ref().is_err_and(|error| error.as_database_error().is_some());
        if is_told && self.transaction == TransactionState::None {
            // A session that ended with its statement holds nothing.
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

    /// Waits for an answer, no longer than it may take.
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

/// As a connection that broke: it is transient, and the statement may have been carried out.
fn no_answer() -> Error {
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "Postgres did not answer in time"))
}

fn given_up() -> Error {
    Error::Protocol("a part of this transaction was given up".to_owned())
}

impl Drop for Connection {
    /// What was dropped in the middle of a statement still runs, and is answered first.
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
        // sqlx sets no limit to this: after a network that swallowed everything, such connections would fill the pool.
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

impl Transaction<'static> {
    /// Begins a transaction on a connection that is in none.
    pub(super) async fn begin(mut connection: Connection) -> Result<Self, Error> {
        connection.send_begin().await?;
        Ok(Self { connection: TransactionConnection::Own(connection), joins: false, is_open: true })
    }
}

impl Transaction<'_> {
    /// Lets the statements of this transaction take as long as they take, at both ends.
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

    /// Rolls back; a part of another transaction takes the whole with it.
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
            let (is_alone, query) = (self.begin_alone().await?, UnnamedStatement(query));
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
            let (is_alone, query) = (self.begin_alone().await?, UnnamedStatement(query));
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
