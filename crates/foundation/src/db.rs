//! Postgres: connections with timeouts, and the schema. Design: docs/design/postgres.md.
//!
//! * [`failure`]: classification of Postgres errors. `halving`: batches that are split when one item fails.
//! * [`pool`], [`connection`]: connections whose statements have a timeout. `resting`: idle connections.
//! * [`session`]: dedicated sessions, and sessions shared through a pooler. [`refusals`]: replacement of connections
//!   that refuse writes.
//! * [`readiness`]: whether Postgres accepts writes.
//! * [`lock`]: work that one replica does at a time. `outcome`: outcome of a job whose statement failed.
//! * [`history_days`]: daily partitions of the history.

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
    // A newer binary may have added migrations. `read_schema_state` decides whether this binary can run on the schema.
    migrator.set_ignore_missing(true);
    migrator
});

/// Minimum connections for requests and jobs, batches excluded: with two, one stays free while the other is busy.
const LEAST_CONNECTIONS: u32 = 2;
/// Connections of [`upkeep_pool`]: the locks of the reconciler and of the mirror, and the readiness query. `serve` also
/// uses them to check whether keys changed.
pub const UPKEEP_CONNECTIONS: u32 = 3;
/// Connections of [`read_only_pool`], opened when a viewer sends a request.
const READ_ONLY_CONNECTIONS: u32 = 3;
/// Connections of [`page_pool`], opened when a page is requested.
const PAGE_CONNECTIONS: u32 = 4;
/// Statement timeout for pages. Dispatching has priority over people who look at pages.
const PAGE_LIMIT: Duration = Duration::from_secs(2);
const PAGE_WAITS: pool::WaitBounds = pool::WaitBounds { longest: PAGE_LIMIT, per_connection: 50 };

/// Returns the time of Postgres, which all deadlines are compared with.
pub async fn database_now(db: impl PgExecutor<'_>) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar(
        "-- now
                        SELECT dispatchq_now()",
    )
    .fetch_one(db)
    .await
}

/// Connects to Postgres and retries until the acquire timeout, because processes may start together with Postgres. The
/// error names the remedy.
pub async fn connect_pool(config: &DatabaseConfig) -> Result<Pool, ServiceError> {
    let pool = lazy_pool(config)?;
    match pool.acquire().await {
        Ok(_) => Ok(pool),
        Err(error @ sqlx::Error::PoolTimedOut) => {
            // The pool's timeout has no cause, so a single connection is tried to find it.
            check_reachable(config).await?;
            Err(error).during(|| unreachable_text(config))
        }
        Err(error) => Err(error).during(|| unreachable_text(config)),
    }
}

/// Opens one connection and closes it. Fails immediately with the first cause: a refused connection, an unknown host, a
/// wrong password.
pub async fn check_reachable(config: &DatabaseConfig) -> Result<(), ServiceError> {
    // A pooler refuses startup parameters that it does not know.
    let options = config.connect_options()?.extra_float_digits(None);
    let made = tokio::time::timeout(pool::ACQUIRE_TIMEOUT, PgConnection::connect_with(&options)).await;
    let connection = made.unwrap_or(Err(sqlx::Error::PoolTimedOut)).during(|| unreachable_text(config))?;
    // A failure is ignored: the connection is closed either way.
    let _ = connection.close().await;
    Ok(())
}

fn unreachable_text(config: &DatabaseConfig) -> String {
    format!(
        "cannot reach Postgres at {}; is it running? check database.url or DISPATCHQ_DATABASE__URL",
        without_password(&config.url)
    )
}

/// Creates the pool without connecting. Its timeouts prevent a statement, lock or abandoned transaction from blocking a
/// connection forever.
fn lazy_pool(config: &DatabaseConfig) -> Result<Pool, ServiceError> {
    let options = config.connect_options()?;
    let statement_ms = config.statement_timeout.as_millis().to_string();
    let settings = [
        ("statement_timeout", statement_ms.as_str()),
        ("lock_timeout", "5000"),
        // A transaction waits for nothing but its own statements. If its process hangs or its connection is lost, its
        // locks are released as soon as other processes stop waiting for them.
        ("idle_in_transaction_session_timeout", "5000"),
        // The statements are short, so compiling them costs more than it saves.
        ("jit", "off"),
    ];
    let options = options.application_name("dispatchq");
    let others = config.max_connections.saturating_sub(batch_connections(config));
    let pool = pool_options(others.max(LEAST_CONNECTIONS));
    if config.pooler {
        // The pooler refuses startup options that it does not know.
        let connections = pool.connect_lazy_with(options.extra_float_digits(None));
        return Ok(Pool::new(connections, config.statement_timeout).behind_pooler(&settings, config.pooler_statements));
    }
    let options = options.options(settings).options([
        // Postgres releases the locks of a vanished process within 30 seconds. sqlx has no such settings for the client
        // side; see `pool`.
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "25000"),
    ]);
    Ok(Pool::new(pool.connect_lazy_with(options), config.statement_timeout))
}

/// Creates the pool for batches and for other statements that find a few rows by index, whose plans are cached. It gets
/// half of `max_connections`; `db` gets the other half.
pub fn batch_pool(db: &Pool, config: &DatabaseConfig) -> Pool {
    db.by_index_pool(pool_options(batch_connections(config)))
}

fn batch_connections(config: &DatabaseConfig) -> u32 {
    (config.max_connections / 2).max(1)
}

/// Creates a small pool that requests and jobs do not use. It serves the readiness query and locks that are held while
/// work runs on other connections. Its connections are free however busy the process is.
pub fn upkeep_pool(db: &Pool) -> Pool {
    db.sibling_pool(pool_options(UPKEEP_CONNECTIONS))
}

/// Creates a small pool whose transactions are all READ ONLY, for callers that may only read.
pub fn read_only_pool(db: &Pool) -> Pool {
    db.read_only_pool(pool_options(READ_ONLY_CONNECTIONS), Duration::MAX)
}

/// Creates the pool for pages: every transaction is READ ONLY, and each statement times out after two seconds. The pool
/// is small, so people who look at pages leave connections for orders. After a change all open pages reload at once, so
/// more statements may wait here than in other pools.
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

/// State of the database's schema relative to this binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaState {
    Current,
    /// A newer binary added to the schema, up to this migration. This binary can run on it.
    Expanded(i64),
    /// The database lacks this many migrations of this binary.
    Behind(usize),
    /// This migration of a newer binary removed something that this binary uses.
    Ahead(i64),
    /// The database has this migration with another text: its schema is from before the first release.
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

/// Returns whether a binary that knows the migrations `known` can run after a newer migration with this description. A
/// migration that removes something is called `contract NUMBER ...`: binaries that know migration NUMBER no longer use
/// what it removes. All other migrations only add.
fn spares_older_binary(description: &str, known: &[i64]) -> bool {
    let mut words = description.split_whitespace();
    if words.next() != Some("contract") {
        return true;
    }
    words.next().and_then(|number| number.parse().ok()).is_some_and(|number: i64| known.contains(&number))
}

/// Returns the number of the newest migration of this binary.
pub fn newest_migration() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Returns a hash of the migrations. Builds with different migrations have different fingerprints.
pub fn schema_fingerprint() -> u64 {
    let mut hasher = DefaultHasher::new();
    for migration in MIGRATOR.iter() {
        (migration.version, &migration.checksum).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns an error if the schema lacks something that this binary uses.
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

/// Applies the missing migrations. It can run repeatedly and in several processes at once. Additions of a newer binary
/// are kept.
pub async fn migrate_schema(db: &Pool) -> Result<(), ServiceError> {
    match read_schema_state(db).await? {
        SchemaState::Ahead(version) => return Err(newer_schema(version)),
        SchemaState::Changed(version) => return Err(changed_schema(version)),
        SchemaState::Current | SchemaState::Expanded(_) | SchemaState::Behind(_) => {}
    }
    let mut session = db.acquire().await?.detach()?;
    // A migration has no time limit.
    sqlx::query("SET statement_timeout = 0").execute(&mut session).await?;
    MIGRATOR
        .run(&mut session)
        .await
        .map_err(sqlx::Error::from)
        .during(|| "a migration failed; fix the cause that it names and run it again".to_owned())?;
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
