//! Postgres: connections with bounds, and the schema.
//! Design: docs/design/postgres.md.
//!
//! * [`failure`]: what an error of Postgres says about the statement that met it.
//! * `halving`: many changes in one statement, each told its own fate.
//! * [`pool`], [`connection`]: connections on which every statement is answered in time, or given up. `resting`: those between two
//!   statements.
//! * [`session`]: sessions of one's own, or shared through a pooler. [`refusals`]: connections that take no writes are replaced.
//! * [`readiness`]: whether Postgres takes writes, and the gate that stays closed while it does not.
//! * [`lock`]: one replica at a time. `outcome`: what becomes of a job whose statement failed.
//! * [`history_days`]: the partitions of the history, a day each.

mod connection;
mod failure;
mod halving;
mod outcome;
mod pool;
mod refusals;
mod resting;
mod session;

pub mod history_days;
pub mod lock;
pub mod readiness;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::LazyLock,
    time::Duration,
};

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection, PgExecutor, migrate::Migrator, postgres::PgPoolOptions};

pub use self::{
    connection::{Connection, Transaction},
    failure::{
        DatabaseFailure, classify_error, copy_error, is_out_of_time, is_refused_value, is_transient, is_unreadable,
    },
    halving::write_or_halve,
    outcome::{database_failed, database_pause},
    pool::Pool,
};
pub use self::{
    failure::{ends_the_pass, is_rolled_back_for_another},
    pool::LONG_WAIT,
};
use crate::{
    config::{address::without_password, database::DatabaseConfig},
    error::{DuringContext, ServiceError},
};

static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!("../../migrations");
    // A newer binary may have added to the schema. Whether this one runs on it is decided by `read_schema_state`.
    migrator.set_ignore_missing(true);
    migrator
});

/// Of requests and jobs, beside those of batches: one that is kept busy leaves one.
const LEAST_CONNECTIONS: u32 = 2;
/// See [`upkeep_pool`]: the locks of the reconciler and of the mirror, and the gate's question; in `serve`, whether keys changed.
pub const UPKEEP_CONNECTIONS: u32 = 3;
/// See [`read_only_pool`]. They are made when a viewer asks.
const READ_ONLY_CONNECTIONS: u32 = 3;
/// See [`page_pool`]. They are made when a page is asked for.
const PAGE_CONNECTIONS: u32 = 4;
/// A page whose statement takes longer is given up: dispatch needs the server more than one who looks at it.
const PAGE_LIMIT: Duration = Duration::from_secs(2);
const PAGE_WAITS: pool::WaitBounds = pool::WaitBounds { longest: PAGE_LIMIT, per_connection: 50 };

/// The time all deadlines are compared with.
pub async fn database_now(db: impl PgExecutor<'_>) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar(
        "-- now
                        SELECT dispatchq_now()",
    )
    .fetch_one(db)
    .await
}

/// Connects, or says what to do. Tries for as long as a connection may take: processes start beside their Postgres.
pub async fn connect_pool(config: &DatabaseConfig) -> Result<Pool, ServiceError> {
    let pool = lazy_pool(config)?;
    match pool.acquire().await {
        Ok(_) => Ok(pool),
        Err(error @ sqlx::Error::PoolTimedOut) => {
            // The pool tells no cause of its own.
            check_reachable(config).await?;
            Err(error).during(|| unreachable_text(config))
        }
        Err(error) => Err(error).during(|| unreachable_text(config)),
    }
}

/// Makes one connection and closes it. Fails at once with the first cause: a refused connection, an unknown host, a wrong
/// password.
pub async fn check_reachable(config: &DatabaseConfig) -> Result<(), ServiceError> {
    // A pooler refuses parameters of the start that it does not know.
    let options = config.connect_options()?.extra_float_digits(None);
    let made = tokio::time::timeout(pool::ACQUIRE_TIMEOUT, PgConnection::connect_with(&options)).await;
    let connection = made.unwrap_or(Err(sqlx::Error::PoolTimedOut)).during(|| unreachable_text(config))?;
    // It is closed either way.
    let _ = connection.close().await;
    Ok(())
}

fn unreachable_text(config: &DatabaseConfig) -> String {
    format!(
        "cannot reach Postgres at {}; is it running? check database.url or DISPATCHQ_DATABASE__URL",
        without_password(&config.url)
    )
}

/// No statement, lock or forgotten transaction may hold a connection for ever.
fn lazy_pool(config: &DatabaseConfig) -> Result<Pool, ServiceError> {
    let options = config.connect_options()?;
    let statement_ms = config.statement_timeout.as_millis().to_string();
    let settings = [
        ("statement_timeout", statement_ms.as_str()),
        ("lock_timeout", "5000"),
        // Between two statements of a transaction we wait for nothing else. A process that stands still there, or whose
        // connection was swallowed, keeps no lock for longer than other processes wait for one.
        ("idle_in_transaction_session_timeout", "5000"),
        // Our statements are short: compiling one costs more than it ever saves.
        ("jit", "off"),
    ];
    let options = options.application_name("dispatchq");
    let others = config.max_connections.saturating_sub(batch_connections(config));
    let pool = pool_options(others.max(LEAST_CONNECTIONS));
    if config.pooler {
        // It knows none of our options, and refuses those it does not know.
        let connections = pool.connect_lazy_with(options.extra_float_digits(None));
        return Ok(Pool::new(connections, config.statement_timeout).behind_pooler(&settings));
    }
    let options = options.options(settings).options([
        // What a process that vanished without a word held, locks included, is free within half a minute. sqlx has no such
        // settings for our end: see `pool`.
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "25000"),
    ]);
    Ok(Pool::new(pool.connect_lazy_with(options), config.statement_timeout))
}

/// Returns the connections of batches and of other statements that find a few rows by index, whose plans are kept: half of those that the
/// settings allow. The other half, `db`, is for all else.
pub fn batch_pool(db: &Pool, config: &DatabaseConfig) -> Pool {
    db.by_index_pool(pool_options(batch_connections(config)))
}

fn batch_connections(config: &DatabaseConfig) -> u32 {
    (config.max_connections / 2).max(1)
}

/// Returns a few connections apart from those of requests and jobs: for locks that are held while work is done on other
/// connections, and for asking whether Postgres takes writes. However busy a process is, these are free.
pub fn upkeep_pool(db: &Pool) -> Pool {
    db.sibling_pool(pool_options(UPKEEP_CONNECTIONS))
}

/// Returns a few connections on which every transaction is READ ONLY: for callers who only read, whatever a handler does.
pub fn read_only_pool(db: &Pool) -> Pool {
    db.read_only_pool(pool_options(READ_ONLY_CONNECTIONS), Duration::MAX)
}

/// Returns the connections of pages: every transaction is READ ONLY, and each statement ends after two seconds. They are few, so
/// however many people look, orders keep the others. All who are told of a change ask at once: they wait for their turn.
pub fn page_pool(db: &Pool) -> Pool {
    db.read_only_pool(pool_options(PAGE_CONNECTIONS), PAGE_LIMIT).with_bounds(PAGE_WAITS)
}

fn pool_options(max_connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(pool::ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move { pool::check_alive(connection, meta.idle_for).await.map(|()| true) })
        })
}

/// What the schema of a database is to this binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaState {
    Current,
    /// A newer binary added to the schema, up to this migration. This binary runs on it.
    Expanded(i64),
    /// Migrations this binary brings and the database lacks.
    Behind(usize),
    /// This migration of a newer binary took away what this binary uses.
    Ahead(i64),
    /// The database has another text of this migration: its schema is from before the first release.
    Changed(i64),
}

pub async fn read_schema_state(db: &Pool) -> Result<SchemaState, sqlx::Error> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(db).await?;
    let applied: Vec<(i64, String, Vec<u8>)> = if exists {
        sqlx::query_as("SELECT version, description, checksum FROM _sqlx_migrations WHERE success ORDER BY version")
            .fetch_all(db)
            .await?
    } else {
        Vec::new()
    };
    let is_changed = |version: i64, checksum: &[u8]| {
        MIGRATOR.iter().any(|known| known.version == version && known.checksum.as_ref() != checksum)
    };
    if let Some((version, ..)) = applied.iter().find(|(version, _, checksum)| is_changed(*version, checksum)) {
        return Ok(SchemaState::Changed(*version));
    }
    let known: Vec<i64> = MIGRATOR.iter().map(|m| m.version).collect();
    let mut newest = None;
    for (version, description, _) in applied.iter().filter(|(version, ..)| !known.contains(version)) {
        if !spares_older_binary(description, &known) {
            return Ok(SchemaState::Ahead(*version));
        }
        newest = Some(*version);
    }
    let missing = known.iter().filter(|version| !applied.iter().any(|(other, ..)| other == *version)).count();
    Ok(match (missing, newest) {
        (0, None) => SchemaState::Current,
        (0, Some(version)) => SchemaState::Expanded(version),
        (missing, _) => SchemaState::Behind(missing),
    })
}

/// Returns whether a binary that knows these migrations runs after a newer one of this description. A migration that takes
/// something away is called `contract NUMBER ...`: binaries that know migration NUMBER no longer use it. All others only add.
fn spares_older_binary(description: &str, known: &[i64]) -> bool {
    let mut words = description.split_whitespace();
    if words.next() != Some("contract") {
        return true;
    }
    words.next().and_then(|number| number.parse().ok()).is_some_and(|number: i64| known.contains(&number))
}

/// Differs from that of a build with other migrations.
pub fn schema_fingerprint() -> u64 {
    let mut hasher = DefaultHasher::new();
    for migration in MIGRATOR.iter() {
        (migration.version, &migration.checksum).hash(&mut hasher);
    }
    hasher.finish()
}

/// Refuses a schema that lacks what this binary uses: it would read and write nonsense.
pub async fn check_schema(db: &Pool) -> Result<(), ServiceError> {
    match read_schema_state(db).await? {
        SchemaState::Current | SchemaState::Expanded(_) => Ok(()),
        SchemaState::Behind(n) => Err(ServiceError::Unusable(format!(
            "the database lacks {n} migration(s) of this version; run: dispatchq migrate"
        ))),
        SchemaState::Ahead(version) => Err(newer_schema(version)),
        SchemaState::Changed(version) => Err(changed_schema(version)),
    }
}

fn newer_schema(version: i64) -> ServiceError {
    ServiceError::Unusable(format!(
        "the database was migrated by a newer dispatchq (migration {version}); upgrade this binary"
    ))
}

fn changed_schema(version: i64) -> ServiceError {
    ServiceError::Unusable(format!(
        "the schema of the database is from before the first release (migration {version} differs) and cannot be \
         upgraded; use an empty database"
    ))
}

/// Brings the schema up to date; safe to run twice and from several places at once. What a newer binary added stays.
pub async fn migrate_schema(db: &Pool) -> Result<(), ServiceError> {
    match read_schema_state(db).await? {
        SchemaState::Ahead(version) => return Err(newer_schema(version)),
        SchemaState::Changed(version) => return Err(changed_schema(version)),
        SchemaState::Current | SchemaState::Expanded(_) | SchemaState::Behind(_) => {}
    }
    let mut session = db.acquire().await?.detach()?;
    // A migration takes as long as it takes.
    sqlx::query("SET statement_timeout = 0").execute(&mut session).await?;
    MIGRATOR
        .run(&mut session)
        .await
        .map_err(sqlx::Error::from)
        .during(|| "a migration failed; mend what it names, and run it again".to_owned())?;
    history_days::add_ahead(&mut session).await.during(|| "the days of the history could not be added".to_owned())?;
    session.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unknown_contract_migration_bars_older_binary() {
        let known = [1, 2];
        for description in ["area tags", "contractors", "contract 0002 area tags"] {
            assert!(spares_older_binary(description, &known), "{description}");
        }
        for description in ["contract 0003 area tags", "contract", "contract area tags"] {
            assert!(!spares_older_binary(description, &known), "{description}");
        }
    }

    #[test]
    fn every_contract_names_a_migration_before_it() {
        let known: Vec<i64> = MIGRATOR.iter().map(|m| m.version).collect();
        for migration in MIGRATOR.iter() {
            let before: Vec<i64> = known.iter().copied().filter(|version| *version < migration.version).collect();
            assert!(spares_older_binary(&migration.description, &before), "{}", migration.description);
        }
    }
}
