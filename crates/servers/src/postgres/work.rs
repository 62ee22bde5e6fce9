//! Counts of a server's work: statements from `pg_stat_statements`, rows and index entries from the WAL.
//!
//! The counts do not depend on the speed of the machine. Both modules are part of Postgres' contrib package. The WAL also
//! contains work of aborted transactions.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::PostgresServer;
use crate::ServerError;

/// Maximum WAL of a counted run. Postgres keeps it until it is read.
const KEPT_WAL: &str = "16GB";

/// Start of a count, as a position in the WAL.
#[derive(Debug, Clone)]
pub struct WorkStart(String);

/// Work of a server since the start of the count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct WorkCounts {
    /// Commits of transactions that write.
    pub commits: u64,
    /// WAL without full-page images. Their number depends on the time since the last checkpoint.
    pub wal_bytes: u64,
    pub full_page_bytes: u64,
    pub tables: BTreeMap<String, TableWork>,
    /// Statements by the name in their first line.
    pub statements: BTreeMap<String, StatementWork>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct TableWork {
    pub inserts: u64,
    /// Updates that write an entry into each index.
    pub updates: u64,
    pub hot_updates: u64,
    pub deletes: u64,
    /// Locks of rows, each a WAL record.
    pub locks: u64,
    pub index_entries: u64,
    pub wal_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct StatementWork {
    pub calls: u64,
    pub plans: u64,
    /// Different statements with this name.
    pub texts: u64,
}

impl TableWork {
    pub fn row_versions(self) -> u64 {
        self.inserts + self.updates + self.hot_updates
    }
}

impl PostgresServer {
    /// Restarts the server so that its work can be counted. Fails if the contrib modules are not installed.
    pub async fn restart_for_counting(&mut self) -> Result<(), ServerError> {
        let preload = "shared_preload_libraries = 'pg_stat_statements'";
        for setting in [preload, &format!("wal_keep_size = '{KEPT_WAL}'")] {
            self.run_statement(&format!("ALTER SYSTEM SET {setting}")).await?;
        }
        self.restart().await?;
        // The module defines this setting, so it exists only now.
        self.run_statement("ALTER SYSTEM SET pg_stat_statements.track_planning = on").await?;
        self.run_statement("SELECT pg_reload_conf()").await?;
        self.run_statement("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await?;
        self.run_statement("CREATE EXTENSION IF NOT EXISTS pg_walinspect").await?;
        Ok(())
    }

    /// Starts a count. The counters of statements start at 0.
    pub async fn start_count(&self) -> Result<WorkStart, ServerError> {
        self.run_statement("SELECT pg_stat_statements_reset()").await?;
        Ok(WorkStart(self.run_statement("SELECT pg_current_wal_flush_lsn()").await?))
    }

    /// Returns the work since `start`.
    pub async fn count_work(&self, start: &WorkStart) -> Result<WorkCounts, ServerError> {
        let counts = self.run_statement(&include_str!("work.sql").replace("{start}", &start.0)).await?;
        serde_json::from_str(&counts).map_err(|error| {
            let source = std::io::Error::from(error);
            ServerError::Io { what: "read the counts of Postgres' work".to_owned(), source }
        })
    }
}
