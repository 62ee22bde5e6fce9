//! Whether a connection has a session of Postgres to itself, or shares sessions with others through a pooler in transaction mode.
//!
//! Such a pooler hands a connection another session for each transaction, and takes no settings when a connection is made. So what
//! belongs together is one transaction: each statement that stands alone gets one, which begins with our settings and ends with them.
//! And no statement is kept at the server under a name: the next session would not know it, or know another's by that name.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Database, Execute, Postgres, SqlSafeStr, SqlStr, error::BoxDynError};

/// How the sessions of a pool are used.
#[derive(Debug, Clone)]
pub(super) struct SessionMode {
    is_shared: bool,
    /// What a transaction begins with.
    begin: SqlStr,
}

impl SessionMode {
    /// Each connection has a session, which keeps settings and prepared statements.
    pub(super) fn own() -> Self {
        Self { is_shared: false, begin: "BEGIN".into_sql_str() }
    }

    /// Each transaction has a session, and these settings.
    pub(super) fn shared(settings: &[(&str, &str)]) -> Self {
        let settings: Vec<String> =
            settings.iter().map(|(name, value)| format!("; SET LOCAL {name} = {value}")).collect();
        Self { is_shared: true, begin: shared_text(format!("BEGIN{}", settings.concat())) }
    }

    /// The same, and no transaction takes writes; of two limits of a statement the last holds.
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

/// A statement that each connection has a copy of, at no cost.
fn shared_text(statement: String) -> SqlStr {
    AssertSqlSafe(Arc::<str>::from(statement)).into_sql_str()
}

/// A statement that is prepared for one run alone.
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
