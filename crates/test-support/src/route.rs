//! The connection of the application under test to Postgres, direct or through a pooler.

use std::env;

use servers::{PgBouncer, PostgresServer};

/// `on` runs a PgBouncer in transaction mode in front of each Postgres. `make test-pooler` sets it. Child processes do
/// not inherit it.
const SWITCH: &str = "DISPATCHQ_TEST_POOLER";

/// Returns whether each Postgres has a pooler in front of it.
pub fn is_pooled() -> bool {
    match env::var(SWITCH).as_deref().unwrap_or_default() {
        "" | "off" => false,
        "on" => true,
        other => panic!("{SWITCH} is on or off, not '{other}'"),
    }
}

/// Connection of the application under test to a Postgres. Dropping it stops the pooler, if there is one.
#[derive(Debug)]
pub struct DatabaseRoute {
    url: String,
    pooler: Option<PgBouncer>,
}

impl DatabaseRoute {
    /// Returns the connection that the environment selects.
    pub async fn to(postgres: &PostgresServer) -> Self {
        if !is_pooled() {
            return Self { url: postgres.url(), pooler: None };
        }
        let pooler = PgBouncer::start(postgres).await.unwrap();
        Self { url: pooler.url(), pooler: Some(pooler) }
    }

    /// Returns the value for `database.url`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the value for `database.pooler`.
    pub fn is_pooled(&self) -> bool {
        self.pooler.is_some()
    }

    /// Returns the value for `database.pooler_statements`.
    pub fn keeps_statements(&self) -> bool {
        self.pooler.as_ref().is_some_and(PgBouncer::keeps_statements)
    }
}
