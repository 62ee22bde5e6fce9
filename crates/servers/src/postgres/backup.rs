//! Base backups of a running server, and standbys that follow it.

use super::{NAME, PostgresServer, PostgresSetup, memory_dir, run_program, throw_away};
use crate::{ServerError, home::ServerHome, server::ManagedServer};

/// Data of a server at the end of the backup, with its password. Dropping it removes the data.
#[derive(Debug)]
pub struct PostgresBackup {
    setup: PostgresSetup,
    home: ServerHome,
}

impl PostgresServer {
    /// Copies the data with `pg_basebackup` while the server runs.
    pub async fn take_backup(&self) -> Result<PostgresBackup, ServerError> {
        self.run_base_backup(&[]).await
    }

    /// Starts a standby on a free port. It has a copy of this server's data, follows this server until it is promoted,
    /// and answers reads.
    pub async fn start_standby(&self) -> Result<PostgresServer, ServerError> {
        self.run_base_backup(&["--write-recovery-conf"]).await?.start(None).await
    }

    /// Promotes a standby: it stops following and accepts writes.
    pub async fn promote(&self) -> Result<(), ServerError> {
        self.run_statement("SELECT pg_promote()").await.map(drop)
    }

    async fn run_base_backup(&self, options: &[&str]) -> Result<PostgresBackup, ServerError> {
        let own = &self.0.kind;
        let (setup, home) = throw_away(memory_dir())?;
        let setup = PostgresSetup { password: own.password.clone(), is_quiet: own.is_quiet, ..setup };
        // `pg_basebackup` is in the same directory as psql.
        let mut command = setup.program_command(&setup.programs.psql.with_file_name("pg_basebackup"));
        command
            .arg("--pgdata")
            .arg(home.dir().join("data"))
            .args(["--host", "127.0.0.1", "--port", &self.port().to_string()])
            .args(["--username", NAME, "--no-password", "--no-sync", "--checkpoint=fast", "--wal-method=stream"])
            .args(options)
            .env("PGPASSWORD", own.password.as_str());
        run_program("pg_basebackup", command).await?;
        setup.password.keep_in(home.dir())?;
        Ok(PostgresBackup { setup, home })
    }
}

impl PostgresBackup {
    /// Starts a server with this data, on `port` or on a free port.
    pub async fn start(self, port: Option<u16>) -> Result<PostgresServer, ServerError> {
        let mut server = ManagedServer::new(self.setup, self.home)?;
        server.kind.initialize_data(&server.home).await?;
        server.start(port).await?;
        Ok(PostgresServer(server))
    }
}
