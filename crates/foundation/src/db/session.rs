//! Dedicated sessions of Postgres, and sessions shared through a pooler in transaction mode.
//!
//! Such a pooler assigns another session to each transaction and ignores settings made at connection time. Each single
//! statement therefore runs in a transaction that starts with the settings and ends with them. Prepared statements have
//! no names: the next session would not know the name, or would know another statement by it.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Database, Execute, Postgres, SqlSafeStr, SqlStr, error::BoxDynError};

#[derive(Debug, Clone)]
pub(super) struct SessionMode {
    is_shared: bool,
    begin: SqlStr,
}

impl SessionMode {
    /// Returns the mode in which each connection has a session that keeps settings and prepared statements.
    pub(super) fn own() -> Self {
        Self { is_shared: false, begin: "BEGIN".into_sql_str() }
    }

    /// Returns the mode in which each transaction gets a session and applies these settings.
    pub(super) fn shared(settings: &[(&str, &str)]) -> Self {
        let settings: Vec<String> =
            settings.iter().map(|(name, value)| format!("; SET LOCAL {name} = {value}")).collect();
        Self { is_shared: true, begin: shared_text(format!("BEGIN{}", settings.concat())) }
    }

    /// Returns the same mode with READ ONLY transactions. Postgres uses the last statement timeout that is set.
    pub(super) fn read_only(&self, statement_ms: &str) -> Self {
        let begin = self.begin.as_str().replacen("BEGIN", "BEGIN READ ONLY", 1);
        let begin = format!("{begin}; SET LOCAL statement_timeout = {statement_ms}");
        Self { is_shared: self.is_shared, begin: shared_text(begin) }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(super) fn begin_statement(&self) -> SqlStr {
        self.begin.clone()
    }
}

/// Returns a statement that is cheap to clone.
fn shared_text(statement: String) -> SqlStr {
    AssertSqlSafe(Arc::<str>::from(statement)).into_sql_str()
}

/// Statement that is prepared for a single run.
pub(super) struct UnnamedStatement<E>(pub(super) E);

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for UnnamedStatement<E> {
    fn sql(self) -> SqlStr {
        self.0.sql()
    }

    fn statement(&self) -> Option<&<Postgres as Database>::Statement> {
        self.0.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<<Postgres as Database>::Arguments>, BoxDynError> {
        self.0.take_arguments()
    }

    fn persistent(&self) -> bool {
        false
    }
}
