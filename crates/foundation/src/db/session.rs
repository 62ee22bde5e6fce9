//! Dedicated sessions of Postgres, and sessions shared through a pooler in transaction mode.
//!
//! Such a pooler assigns another session to each transaction and ignores settings made at connection time. Each single
//! statement therefore runs in a transaction that starts with the settings and ends with them. Reads for staff with a
//! scope run in the same way, also in a dedicated session. Prepared statements have no names, because the next session
//! would not know the name, or would know another statement by it. If the pooler keeps named statements, those of batches
//! have names.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Database, Execute, Postgres, SqlSafeStr, SqlStr, error::BoxDynError};

/// Role of transactions for staff with a scope. It may only read, and policies limit it to the orders of the scope.
const SCOPED_ROLE: &str = "dispatchq_scoped";

#[derive(Debug, Clone)]
pub(super) struct SessionMode {
    is_shared: bool,
    /// Whether the pooler keeps named statements.
    keeps_names: bool,
    has_names: bool,
    begin: SqlStr,
}

impl SessionMode {
    /// Returns the mode in which each connection has a session that keeps settings and prepared statements.
    pub(super) fn own() -> Self {
        Self { is_shared: false, keeps_names: true, has_names: true, begin: "BEGIN".into_sql_str() }
    }

    /// Returns the mode in which each transaction gets a session and applies these settings. `keeps_names` is whether the
    /// pooler keeps named statements.
    pub(super) fn shared(settings: &[(&str, &str)], keeps_names: bool) -> Self {
        let begin = "BEGIN".into_sql_str();
        Self { is_shared: true, keeps_names, has_names: false, begin }.with_settings(settings)
    }

    /// Returns the mode whose statements have names, with more settings for each transaction. Returns the same mode if the
    /// pooler keeps no names.
    pub(super) fn with_names(&self, settings: &[(&str, &str)]) -> Self {
        if !self.keeps_names {
            return self.clone();
        }
        Self { has_names: true, ..self.with_settings(settings) }
    }

    /// Returns the same mode with more settings for each transaction. The last value of a setting applies.
    fn with_settings(&self, settings: &[(&str, &str)]) -> Self {
        let settings: String = settings.iter().map(|(name, value)| format!("; SET LOCAL {name} = {value}")).collect();
        Self { begin: shared_text(format!("{}{settings}", self.begin.as_str())), ..self.clone() }
    }

    /// Returns the same mode with READ ONLY transactions.
    pub(super) fn read_only(&self, statement_ms: &str) -> Self {
        let begin = self.begin.as_str().replacen("BEGIN", "BEGIN READ ONLY", 1);
        Self { begin: shared_text(begin), ..self.clone() }.with_settings(&[("statement_timeout", statement_ms)])
    }

    /// Returns the mode in which each transaction reads with the rights of [`SCOPED_ROLE`]. `scope` is JSON; the
    /// policies of the tables read it. It is set in hexadecimal digits, so no value can end the statement.
    pub(super) fn scoped(&self, scope: &str) -> Self {
        let (begin, scope) = (self.begin.as_str(), hex::encode(scope));
        let begin = format!("{begin}; SET LOCAL ROLE {SCOPED_ROLE}; SET LOCAL dispatchq.scope = '{scope}'");
        Self { is_shared: true, keeps_names: false, has_names: false, begin: shared_text(begin) }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns whether statements have names, so that a session plans them once.
    pub(super) fn has_names(&self) -> bool {
        self.has_names
    }

    pub(super) fn begin_statement(&self) -> SqlStr {
        self.begin.clone()
    }
}

/// Returns a statement that is cheap to clone.
fn shared_text(statement: String) -> SqlStr {
    AssertSqlSafe(Arc::<str>::from(statement)).into_sql_str()
}

/// Statement in a shared session. Without a name it is prepared for a single run.
pub(super) struct SharedStatement<E> {
    pub(super) query: E,
    pub(super) has_name: bool,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for SharedStatement<E> {
    fn sql(self) -> SqlStr {
        self.query.sql()
    }

    fn statement(&self) -> Option<&<Postgres as Database>::Statement> {
        self.query.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<<Postgres as Database>::Arguments>, BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.has_name && self.query.persistent()
    }
}
