//! PgBouncer in front of a private Postgres, in transaction mode.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use tokio::net::TcpStream;

use super::{NAME, OPEN_DIR, PostgresServer};
use crate::{
    ServerError,
    account::UnprivilegedAccount,
    error::IoErrorContext,
    home::ServerHome,
    login::ServerPassword,
    programs,
    server::{ManagedServer, ServerKind},
};

/// File with the names and passwords of clients. PgBouncer also uses them to log in to Postgres.
const USERS: &str = "users.txt";

/// A PgBouncer in transaction mode, with fewer Postgres sessions than a process has connections. Dropping it ends the
/// process.
#[derive(Debug)]
pub struct PgBouncer {
    server: ManagedServer<PoolerSetup>,
    password: ServerPassword,
}

impl PgBouncer {
    /// Starts on a free port, with the login of this Postgres.
    pub async fn start(postgres: &PostgresServer) -> Result<PgBouncer, ServerError> {
        let own = &postgres.0.kind;
        let home = ServerHome::throw_away(OPEN_DIR.as_ref(), "dispatchq-pgbouncer-")?;
        let password = own.password.clone();
        let users = home.dir().join(USERS);
        let doing = || format!("write {}", users.display());
        fs::write(&users, format!("\"{NAME}\" \"{}\"\n", password.as_str())).while_doing(doing)?;
        fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).while_doing(doing)?;
        // PgBouncer also refuses to run as root.
        if let Some(account) = own.account {
            account.own_path(home.dir())?;
            account.own_path(&users)?;
        }
        let program = programs::find_pgbouncer()?;
        let keeps_statements = keeps_statements(&program);
        let kind = PoolerSetup { program, account: own.account, postgres_port: postgres.port(), keeps_statements };
        let mut server = ManagedServer::new(kind, home)?;
        server.start(None).await?;
        Ok(PgBouncer { server, password })
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Returns whether it keeps named statements of clients.
    pub fn keeps_statements(&self) -> bool {
        self.server.kind.keeps_statements
    }

    /// Returns the URL of the database `dispatchq` through the pooler.
    pub fn url(&self) -> String {
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{NAME}", self.password.as_str(), self.port())
    }
}

#[derive(Debug)]
struct PoolerSetup {
    program: PathBuf,
    account: Option<UnprivilegedAccount>,
    postgres_port: u16,
    keeps_statements: bool,
}

/// Returns whether this PgBouncer can keep named statements of clients: version 1.21 or later.
fn keeps_statements(program: &Path) -> bool {
    let printed = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    let version = printed.strip_prefix("PgBouncer ").unwrap_or_default();
    let mut numbers = version.split(['.', '\n']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(1), Some(21))
}

impl ServerKind for PoolerSetup {
    const NAME: &'static str = "pgbouncer";
    const STOP: Signal = Signal::SIGTERM;
    const QUIT: Signal = Signal::SIGKILL;

    fn server_command(&self, home: &ServerHome, port: u16) -> Command {
        let file = home.dir().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = 12\nmax_client_conn = 500\n{}",
            self.postgres_port,
            home.dir().join(USERS).display(),
            if self.keeps_statements { "max_prepared_statements = 200\n" } else { "" }
        );
        // If the file cannot be written, PgBouncer does not start and reports it.
        let _ = fs::write(&file, text);
        let mut command = Command::new(&self.program);
        command.current_dir("/").arg(&file);
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    async fn is_ready(&self, port: u16, _pid: u32) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok()
    }
}
