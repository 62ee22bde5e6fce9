//! Classification of Postgres errors: one table of SQLSTATEs for the whole program.

use std::{borrow::Cow, error::Error as StdError, fmt, io};

use sqlx::{
    error::{DatabaseError, ErrorKind},
    postgres::PgDatabaseError,
};

/// Kinds of failures that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseFailure {
    /// Nothing was changed, and the same statement may succeed later. A job does not lose a retry.
    Transient,
    /// The connection was lost, so a COMMIT may have happened. Like [`Transient`](Self::Transient), but the caller must
    /// read the row before it decides anything.
    OutcomeUnknown,
    /// The statement is at fault and would fail again. A job loses a retry, and operators are alerted. A statement
    /// timeout (57014) belongs here.
    Own,
}

pub fn classify_error(error: &sqlx::Error) -> DatabaseFailure {
    match error {
        sqlx::Error::Database(e) => classify_sqlstate(e.code().as_deref().unwrap_or_default(), routine_of(&**e)),
        // The connection broke, possibly after the statement was sent.
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => DatabaseFailure::OutcomeUnknown,
        // The statement was never sent.
        sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::BeginFailed => {
            DatabaseFailure::Transient
        }
        _ => DatabaseFailure::Own,
    }
}

/// Returns whether the same statement may succeed later without any change.
pub fn is_transient(error: &sqlx::Error) -> bool {
    classify_error(error) != DatabaseFailure::Own
}

/// Returns whether a row contains a value that this version cannot decode, because another version wrote it.
pub fn is_unreadable(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
}

/// Returns whether a pass should stop because its next row would fail too. A lock timeout concerns only its own row.
pub fn ends_the_pass(error: &sqlx::Error) -> bool {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    is_transient(error) && code.is_none_or(|code| code != LOCK_NOT_AVAILABLE)
}

/// Returns whether Postgres rolled the transaction back because of another transaction. The caller may retry
/// immediately.
pub fn is_rolled_back_for_another(error: &sqlx::Error) -> bool {
    const SERIALIZATION_FAILURE: &str = "40001";
    const DEADLOCK_DETECTED: &str = "40P01";
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| [SERIALIZATION_FAILURE, DEADLOCK_DETECTED].contains(&&*code))
}

/// Returns whether the session refuses writes: its server is a standby, or a primary that is shutting down.
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    const READ_ONLY_SQL_TRANSACTION: &str = "25006";
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == READ_ONLY_SQL_TRANSACTION)
}

pub fn is_out_of_time(error: &sqlx::Error) -> bool {
    const QUERY_CANCELED: &str = "57014";
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == QUERY_CANCELED)
}

/// Returns whether Postgres refused a value: SQLSTATE class 22 (data) or 23 (constraint). The caller sent the value, so
/// this is no outage.
pub fn is_refused_value(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}

/// Returns the server function that raised the error.
fn routine_of(error: &dyn DatabaseError) -> Option<&str> {
    match error.try_downcast_ref::<CopiedError>() {
        Some(copy) => copy.routine.as_deref(),
        None => error.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::routine),
    }
}

/// Returns a copy of the error. A failed batch reports it to each of its callers.
pub fn copy_error(error: &sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::Database(e) => sqlx::Error::Database(Box::new(CopiedError {
            message: e.message().to_owned(),
            code: e.code().map(Cow::into_owned),
            constraint: e.constraint().map(str::to_owned),
            table: e.table().map(str::to_owned),
            routine: routine_of(&**e).map(str::to_owned),
        })),
        sqlx::Error::Io(e) => sqlx::Error::Io(io::Error::new(e.kind(), e.to_string())),
        sqlx::Error::Tls(e) => sqlx::Error::Tls(e.to_string().into()),
        sqlx::Error::PoolTimedOut => sqlx::Error::PoolTimedOut,
        sqlx::Error::PoolClosed => sqlx::Error::PoolClosed,
        sqlx::Error::BeginFailed => sqlx::Error::BeginFailed,
        sqlx::Error::WorkerCrashed => sqlx::Error::WorkerCrashed,
        sqlx::Error::RowNotFound => sqlx::Error::RowNotFound,
        sqlx::Error::Protocol(text) => sqlx::Error::Protocol(text.clone()),
        // All remaining variants classify as `Own`, and so does this one.
        other => sqlx::Error::Encode(other.to_string().into()),
    }
}

/// Copy of a database error.
#[derive(Debug)]
struct CopiedError {
    message: String,
    code: Option<String>,
    constraint: Option<String>,
    table: Option<String>,
    routine: Option<String>,
}

impl fmt::Display for CopiedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for CopiedError {}

impl DatabaseError for CopiedError {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        self.code.as_deref().map(Cow::Borrowed)
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }

    fn constraint(&self) -> Option<&str> {
        self.constraint.as_deref()
    }

    fn table(&self) -> Option<&str> {
        self.table.as_deref()
    }

    fn kind(&self) -> ErrorKind {
        match self.code.as_deref() {
            Some("23505") => ErrorKind::UniqueViolation,
            Some("23503") => ErrorKind::ForeignKeyViolation,
            Some("23502") => ErrorKind::NotNullViolation,
            Some("23514") => ErrorKind::CheckViolation,
            _ => ErrorKind::Other,
        }
    }
}

/// Returns the kind of failure of an SQLSTATE. `routine` is the server function that raised it.
fn classify_sqlstate(code: &str, routine: Option<&str>) -> DatabaseFailure {
    use DatabaseFailure::{OutcomeUnknown, Own, Transient};
    match code {
        // A prepared statement whose table changed; the next run prepares it again. Any other 0A000 asks for a feature
        // that Postgres lacks.
        "0A000" if routine == Some("RevalidateCachedQuery") => Transient,
        // Read-only: a standby, or a primary that is shutting down.
        "25006"
        // The transaction had already failed before this statement.
        | "25P02" | "25P03"
        // The prepared statement is missing, because a pooler switched to another session, for example after a
        // failover.
        | "26000"
        // The server refuses the login, for example while a password or database is being replaced. No statement ran.
        | "28000" | "28P01" | "3D000"
        // A conflict with another transaction.
        | "40001" | "40P01"
        // Locked by another session.
        | "55006" | "55P03" => Transient,
        "40003" => OutcomeUnknown,
        _ if code.starts_with("08") => OutcomeUnknown,
        // Out of memory, disk space or connections; shutting down or starting up.
        _ if code.starts_with("53") || code.starts_with("57P") => Transient,
        _ => Own,
    }
}

#[cfg(test)]
mod tests {
    use super::{DatabaseFailure::*, *};

    // Fault F2
    #[test]
    fn sqlstates_classify_as_in_table() {
        let rows = [
            ("08000", OutcomeUnknown, "connection exception"),
            ("08003", OutcomeUnknown, "connection does not exist"),
            ("08006", OutcomeUnknown, "connection failure"),
            ("08P01", OutcomeUnknown, "protocol violation"),
            ("0A000", Own, "feature not supported"),
            ("22P02", Own, "invalid text representation"),
            ("23505", Own, "unique violation"),
            ("23514", Own, "check violation"),
            ("25001", Own, "active SQL transaction"),
            ("25006", Transient, "read-only SQL transaction"),
            ("25P02", Transient, "in failed SQL transaction"),
            ("25P03", Transient, "idle in transaction for too long"),
            ("26000", Transient, "prepared statement does not exist"),
            ("28000", Transient, "not let in by pg_hba.conf"),
            ("28P01", Transient, "password authentication failed"),
            ("3D000", Transient, "database does not exist"),
            ("40001", Transient, "serialization failure"),
            ("40002", Own, "transaction integrity constraint violation"),
            ("40003", OutcomeUnknown, "statement completion unknown"),
            ("40P01", Transient, "deadlock"),
            ("42501", Own, "insufficient privilege"),
            ("42601", Own, "syntax error"),
            ("42P01", Own, "undefined table"),
            ("53000", Transient, "insufficient resources"),
            ("53100", Transient, "disk full"),
            ("53200", Transient, "out of memory"),
            ("53300", Transient, "too many connections"),
            ("53400", Transient, "configuration limit exceeded"),
            ("55000", Own, "object not in prerequisite state"),
            ("55006", Transient, "object in use"),
            ("55P03", Transient, "lock timeout"),
            ("57014", Own, "statement timeout"),
            ("57P01", Transient, "admin shutdown"),
            ("57P02", Transient, "crash shutdown"),
            ("57P03", Transient, "cannot connect now"),
            ("57P04", Transient, "database dropped"),
            ("57P05", Transient, "idle session timeout"),
            ("XX000", Own, "internal error"),
            ("", Own, "no SQLSTATE at all"),
        ];
        for (code, failure, what) in rows {
            assert_eq!(classify_sqlstate(code, None), failure, "{code} {what}");
        }
        assert_eq!(classify_sqlstate("0A000", Some("RevalidateCachedQuery")), Transient, "a cached plan");
    }

    #[test]
    fn copied_error_keeps_fields_and_kind() {
        let error = CopiedError {
            message: "duplicate key".to_owned(),
            code: Some("23505".to_owned()),
            constraint: Some("orders_pkey".to_owned()),
            table: Some("orders".to_owned()),
            routine: Some("_bt_check_unique".to_owned()),
        };
        let copy = copy_error(&sqlx::Error::Database(Box::new(error)));
        let said = copy.as_database_error().unwrap();
        assert_eq!(
            (said.message(), said.constraint(), said.table()),
            ("duplicate key", Some("orders_pkey"), Some("orders"))
        );
        assert_eq!((classify_error(&copy), said.is_unique_violation()), (Own, true));
        for error in [
            sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()),
            sqlx::Error::PoolTimedOut,
            sqlx::Error::RowNotFound,
        ] {
            assert_eq!(classify_error(&copy_error(&error)), classify_error(&error), "{error}");
        }
    }

    // Fault F2
    #[test]
    fn lost_connection_leaves_the_outcome_unknown() {
        let rows = [
            (sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()), OutcomeUnknown),
            (sqlx::Error::Protocol("unexpected message".to_owned()), OutcomeUnknown),
            (sqlx::Error::PoolTimedOut, Transient),
            (sqlx::Error::PoolClosed, Transient),
            (sqlx::Error::RowNotFound, Own),
        ];
        for (error, failure) in rows {
            assert_eq!(classify_error(&error), failure, "{error}");
        }
    }
}
