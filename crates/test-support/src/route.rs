//! The way from the application under test to its Postgres: straight, or through a pooler.

use std::env;

use servers::{PgBouncer, PostgresServer};

/// `on`: a PgBouncer in transaction mode stands before each Postgres. `make test-pooler` sets it. Children do not inherit it.
const SWITCH: &str = "DISPATCHQ_TEST_POOLER";

/// Returns whether a pooler stands before each Postgres.
pub fn is_pooled() -> bool {
    match env::var(SWITCH).as_deref().unwrap_or_default() {
        "" | "off" => false,
        "on" => true,
        other => panic!("{SWITCH} is on or off, not '{other}'"),
    }
}

/// How the application under test reaches a Postgres. Dropping it ends the pooler, if there is one.
#[derive(Debug)]
pub struct DatabaseRoute {
    url: String,
    pooler: Option<PgBouncer>,
}

impl DatabaseRoute {
    /// The way that the environment asks for.
    pub async fn to(postgres: &PostgresServer) -> Self {
        if !is_pooled() {
            return Self { url: postgres.url(), pooler: None };
        }
        let pooler = PgBouncer::start(postgres).await.unwrap();
        Self { url: pooler.url(), pooler: Some(pooler) }
    }

    /// What `database.url` is to be.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What `database.pooler` is to be.
    pub fn is_pooled(&self) -> bool {
        self.pooler.is_some()
    }
}
