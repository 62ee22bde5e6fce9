//! A private Postgres with one empty database, `dispatchq`, and a user of that name. Its random password is part of the
//! URL. Kept data has the password in the file `password`.
//!
//! Throw-away data is not fsynced. This is safe for tests that crash Postgres: they kill the process, not the machine,
//! and the kernel's cache keeps what a process has written. Data kept in a directory is fsynced.
//!
//! Postgres refuses to run as root. Under root it runs as an unprivileged `account`, and its data is in a directory
//! that this user can reach. Throw-away data is in `/var/tmp/dispatchq-*`. Kept data is in its own directory. If a
//! parent of that directory is closed to other users, the data is in a `/var/tmp/dispatchq-*`, and a symbolic link in
//! the directory points to it. Copies of a template for tests are in memory if there is enough room.

mod backup;
mod pooler;
mod work;

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;

pub use self::{
    backup::PostgresBackup,
    pooler::PgBouncer,
    work::{StatementWork, TableWork, WorkCounts, WorkStart},
};
use crate::{
    ServerError,
    account::UnprivilegedAccount,
    error::IoErrorContext,
    home::ServerHome,
    login::ServerPassword,
    programs::{self, PostgresPrograms},
    server::{DetachedServer, ManagedServer, START_LOCK_WAIT, ServerKind},
    template::DataTemplate,
};

/// Name of the user, and of the database that exists from the start.
const NAME: &str = "dispatchq";

/// Database that clients connect to when they create other databases.
const MAIN: &str = "postgres";

/// Authentication method.
const METHOD: &str = "scram-sha-256";

/// Directory that every user can reach, unlike a home directory. It is not cleared at boot.
const OPEN_DIR: &str = "/var/tmp";

/// Directory that Linux keeps in memory. In a container it is usually too small.
const MEMORY_DIR: &str = "/dev/shm";
/// Minimum free space in [`MEMORY_DIR`], in bytes: enough for several dozen test clusters at once.
const LEAST_ROOM: u64 = 4 * 1024 * 1024 * 1024;

/// A private Postgres. Dropping it ends its processes, and removes the data unless [`PostgresServer::start_in`] started
/// it.
#[derive(Debug)]
pub struct PostgresServer(ManagedServer<PostgresSetup>);

impl PostgresServer {
    /// Starts on a free port with throw-away data.
    pub async fn start() -> Result<PostgresServer, ServerError> {
        let (setup, home) = throw_away(None)?;
        PostgresServer::start_with(setup, home, None).await
    }

    /// Starts on a free port with a throw-away copy of the template `name` in `folder`. The first call makes the
    /// template: it starts an empty server and calls `prepare` with the URL to fill the database. If `prepare` fails,
    /// no template is made. All copies have the same password, which no other user can read.
    pub async fn start_prepared<E: From<ServerError>>(
        folder: &Path,
        name: &str,
        prepare: impl AsyncFnOnce(String) -> Result<(), E>,
    ) -> Result<PostgresServer, E> {
        let (setup, home) = throw_away(None)?;
        let template = template_filled_by(&setup, folder, name, prepare).await?;
        Ok(PostgresServer::start_copied(&template, setup, home).await?)
    }

    /// Starts a copy like [`PostgresServer::start_prepared`], for tests. Its data is in memory if there is enough room.
    pub async fn start_copy(
        folder: &Path,
        name: &str,
        prepare: impl AsyncFnOnce(String),
    ) -> Result<PostgresServer, ServerError> {
        let (setup, home) = throw_away(memory_dir())?;
        let prepare = async move |url: String| {
            prepare(url).await;
            Ok::<(), ServerError>(())
        };
        let template = template_filled_by(&setup, folder, name, prepare).await?;
        PostgresServer::start_copied(&template, PostgresSetup { is_quiet: true, ..setup }, home).await
    }

    async fn start_copied(
        template: &DataTemplate,
        setup: PostgresSetup,
        home: ServerHome,
    ) -> Result<PostgresServer, ServerError> {
        let mut server = ManagedServer::new(setup, home)?;
        template.copy_to(server.home.dir(), server.kind.account)?;
        server.kind.initialize_data(&server.home).await?;
        server.start(None).await?;
        Ok(PostgresServer(server))
    }

    /// Starts on `port`, or on a free port, with its data in `dir`. The directory is created if it is missing, and is
    /// kept. A second server on the same data is refused with [`ServerError::InUse`].
    pub async fn start_in(dir: &Path, port: Option<u16>) -> Result<PostgresServer, ServerError> {
        PostgresServer::start_with(PostgresSetup::new()?, ServerHome::open_kept(dir)?, port).await
    }

    async fn start_with(
        setup: PostgresSetup,
        home: ServerHome,
        port: Option<u16>,
    ) -> Result<PostgresServer, ServerError> {
        let mut server = ManagedServer::new(setup, home)?;
        server.kind.initialize_data(&server.home).await?;
        server.start(port).await?;
        let postgres = PostgresServer(server);
        let exists = postgres.run_sql(MAIN, &format!("SELECT 1 FROM pg_database WHERE datname = '{NAME}'")).await?;
        if exists.is_empty() {
            postgres.fresh_database(NAME).await?;
        }
        Ok(postgres)
    }

    /// Returns the URL of the database `dispatchq`.
    pub fn url(&self) -> String {
        self.database_url(NAME)
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns the pid of the running postmaster. After `stop` or `kill`, the pid of the last one.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Returns the directory with its data and `server.log`.
    pub fn dir(&self) -> &Path {
        self.0.home.dir()
    }

    /// Creates an empty database and returns its URL, for tests that share one server. The name must be new. It becomes
    /// part of a URL, so it must consist of letters, digits and `_`. Copies of a template have no template database to
    /// create one from.
    pub async fn fresh_database(&self, name: &str) -> Result<String, ServerError> {
        self.run_sql(MAIN, &format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""))).await?;
        Ok(self.database_url(name))
    }

    /// Stops the server (SIGINT, a "fast shutdown") and waits for its end. This closes open connections; SIGTERM would
    /// wait until the clients close them. Does nothing if the server has ended.
    pub async fn stop(&mut self) -> Result<(), ServerError> {
        self.0.stop().await
    }

    /// Ends the server like a crash (SIGKILL to the postmaster), and waits until its backends have ended too.
    pub async fn kill(&mut self) {
        self.0.kill().await;
    }

    /// Restarts the server with fsync and full_page_writes, which are off for throw-away data.
    pub async fn restart_durable(&mut self) -> Result<(), ServerError> {
        self.0.kind.durable = true;
        self.restart().await
    }

    /// Restarts the server on the same port and data. Stops it first if it runs.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.0.restart().await
    }

    /// Leaves the server and its data in place, even after this process ends.
    pub fn detach(self) -> DetachedServer {
        let url = self.url();
        self.0.detach(url)
    }

    fn database_url(&self, name: &str) -> String {
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{name}", self.0.kind.password.as_str(), self.port())
    }

    /// Runs one statement in the database `dispatchq`. Returns its rows as psql prints them.
    pub async fn run_statement(&self, statement: &str) -> Result<String, ServerError> {
        self.run_sql(NAME, statement).await
    }

    /// Drops the three databases that initdb creates. They are half of the files that a copy of this cluster would
    /// have, and nothing reads them.
    async fn drop_other_databases(&self) -> Result<(), ServerError> {
        self.run_statement("UPDATE pg_database SET datistemplate = false").await?;
        for database in [MAIN, "template0", "template1"] {
            self.run_statement(&format!("DROP DATABASE {database}")).await?;
        }
        Ok(())
    }

    /// Runs one statement with psql.
    async fn run_sql(&self, database: &str, statement: &str) -> Result<String, ServerError> {
        let setup = &self.0.kind;
        let mut command = setup.program_command(&setup.programs.psql);
        command
            .args(["--no-psqlrc", "--no-password", "--tuples-only", "--no-align", "--quiet"])
            .args(["--host", "127.0.0.1", "--port", &self.port().to_string()])
            .args(["--username", NAME, "--dbname", database, "--command", statement])
            .env("PGPASSWORD", setup.password.as_str());
        run_program("psql", command).await
    }
}

/// Returns the template `name` in `folder`. Makes it if it does not exist.
async fn template_filled_by<E: From<ServerError>>(
    setup: &PostgresSetup,
    folder: &Path,
    name: &str,
    prepare: impl AsyncFnOnce(String) -> Result<(), E>,
) -> Result<DataTemplate, E> {
    // Another version of Postgres cannot read the template, so the name contains a hash of the program's path.
    let mut program = DefaultHasher::new();
    setup.programs.postgres.hash(&mut program);
    let template = DataTemplate::new(folder, &format!("{name}-{:016x}", program.finish()));
    if !template.is_made() {
        let _lock = template.lock_template().await?;
        if !template.is_made() {
            let (first, home) = throw_away(None)?;
            let first = PostgresSetup { is_quiet: true, ..first };
            let mut first = PostgresServer::start_with(first, home, None).await?;
            prepare(first.url()).await?;
            first.drop_other_databases().await?;
            first.stop().await?;
            template.make_template(first.dir())?;
        }
    }
    Ok(template)
}

/// Returns the directory for copies of templates: in memory if there is enough room. A copy has about 1,500 files,
/// which take seconds to create on a busy disk.
fn memory_dir() -> Option<&'static Path> {
    let memory = Path::new(MEMORY_DIR);
    let room = statvfs(memory).ok()?;
    (room.blocks_available() * room.fragment_size() >= LEAST_ROOM).then_some(memory)
}

/// Prepares a server with throw-away data.
///
/// Its directory is in `parent`, or in a directory that every user can reach.
fn throw_away(parent: Option<&Path>) -> Result<(PostgresSetup, ServerHome), ServerError> {
    let setup = PostgresSetup { durable: false, ..PostgresSetup::new()? };
    let open_dir = || if setup.account.is_some() { PathBuf::from(OPEN_DIR) } else { env::temp_dir() };
    let parent = parent.map_or_else(open_dir, Path::to_path_buf);
    let home = ServerHome::throw_away(&parent, "dispatchq-postgres-")?;
    if let Some(account) = setup.account {
        account.own_path(home.dir())?;
    }
    Ok((setup, home))
}

#[derive(Debug)]
struct PostgresSetup {
    programs: PostgresPrograms,
    account: Option<UnprivilegedAccount>,
    /// Data directory. Empty until initialized.
    data: PathBuf,
    password: ServerPassword,
    durable: bool,
    /// Whether background processes rarely look for work. Several times a second would be a large part of the cost of a
    /// short test.
    is_quiet: bool,
}

impl PostgresSetup {
    fn new() -> Result<PostgresSetup, ServerError> {
        let (programs, account) = (programs::find_postgres()?, UnprivilegedAccount::for_postgres()?);
        Ok(PostgresSetup {
            programs,
            account,
            data: PathBuf::new(),
            password: ServerPassword::random_letters()?,
            durable: true,
            is_quiet: false,
        })
    }

    /// Returns a command that runs as the right user, without the Postgres settings of the caller's environment.
    fn program_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // The other user might not be able to enter the current directory. The locale is fixed because macOS needs one,
        // and to get messages in English.
        command.current_dir("/").env("LC_ALL", "C");
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| name.starts_with("PG"))) {
            command.env_remove(name);
        }
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Finds the data directory and the password, and creates them if they are missing. Data is renamed to its final
    /// name when it is complete, so an interrupted initdb leaves nothing that looks like data.
    async fn initialize_data(&mut self, home: &ServerHome) -> Result<(), ServerError> {
        let data = home.dir().join("data");
        if let Some(password) = ServerPassword::kept_in(home.dir())? {
            self.password = password;
        }
        if !data.join("PG_VERSION").exists() {
            let _lock = home.lock_dir(PostgresSetup::NAME, START_LOCK_WAIT).await?;
            self.password.keep_in(home.dir())?;
            if self.account.is_some() && !is_open(home.dir()) {
                self.init_elsewhere(&data).await?;
            } else {
                self.init_data_dir(&home.dir().join("data.new"), &data).await?;
            }
        }
        self.data = fs::canonicalize(&data).while_doing(|| format!("find {}", data.display()))?;
        Ok(())
    }

    async fn init_data_dir(&self, new: &Path, data: &Path) -> Result<(), ServerError> {
        if new.exists() {
            fs::remove_dir_all(new).while_doing(|| format!("remove the incomplete {}", new.display()))?;
        }
        fs::create_dir(new).while_doing(|| format!("create {}", new.display()))?;
        self.run_initdb(new).await?;
        fs::rename(new, data).while_doing(|| format!("rename {}", new.display()))
    }

    async fn init_elsewhere(&self, data: &Path) -> Result<(), ServerError> {
        let doing = || format!("create a directory in {OPEN_DIR}");
        let new = tempfile::Builder::new().prefix("dispatchq-data-").tempdir_in(OPEN_DIR).while_doing(doing)?;
        self.run_initdb(new.path()).await?;
        if data.is_symlink() {
            fs::remove_file(data).while_doing(|| format!("remove {}, whose data is gone", data.display()))?;
        }
        symlink(new.path(), data).while_doing(|| format!("link {}", data.display()))?;
        let _ = new.keep();
        Ok(())
    }

    async fn run_initdb(&self, dir: &Path) -> Result<(), ServerError> {
        if let Some(account) = self.account {
            account.own_path(dir)?;
        }
        let doing = || format!("write a password file in {OPEN_DIR}");
        let mut verifier =
            tempfile::Builder::new().prefix("dispatchq-login-").tempfile_in(OPEN_DIR).while_doing(doing)?;
        verifier.write_all(self.password.scram_verifier()?.as_bytes()).while_doing(doing)?;
        if let Some(account) = self.account {
            account.own_path(verifier.path())?;
        }
        let mut command = self.program_command(&self.programs.initdb);
        command.arg("--pgdata").arg(dir).args(["--username", NAME, "--encoding=UTF8", "--no-locale"]);
        command.args(["--auth", METHOD]).arg("--pwfile").arg(verifier.path());
        if !self.durable {
            // Segments of 16 MB would be most of what a copy of a small cluster writes.
            command.args(["--no-sync", "--wal-segsize=1"]);
        }
        run_program("initdb", command).await.map(drop)
    }
}

impl ServerKind for PostgresSetup {
    const NAME: &'static str = "postgres";
    const STOP: Signal = Signal::SIGINT;
    /// Signal for an "immediate shutdown": the postmaster ends its backends and frees its shared memory. After SIGKILL,
    /// no process would free it.
    const QUIT: Signal = Signal::SIGQUIT;

    fn server_command(&self, _home: &ServerHome, port: u16) -> Command {
        let mut command = self.program_command(&self.programs.postgres);
        command.arg("-D").arg(&self.data);
        let mut settings = vec![
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "shared_buffers=128MB",
            "max_connections=200",
            // In the data directory, so that the leftovers of a killed server are removed with the data.
            "dynamic_shared_memory_type=mmap",
        ];
        if !self.durable {
            settings.extend(["fsync=off", "full_page_writes=off", "max_wal_size=1GB"]);
        }
        if self.is_quiet {
            settings.extend(["bgwriter_delay=10s", "wal_writer_delay=10s", "checkpoint_timeout=1h"]);
            // Recycled segments would be copied with a template.
            settings.push("wal_recycle=off");
        }
        command.arg("-c").arg(format!("port={port}"));
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        command
    }

    /// Reads the pid and state that the postmaster writes to its data directory; `pg_ctl` waits in the same way.
    async fn is_ready(&self, _port: u16, pid: u32) -> bool {
        let state = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let mut lines = state.lines();
        lines.next() == Some(&pid.to_string()) && lines.next_back().is_some_and(|line| line.trim_end() == "ready")
    }
}

/// Returns whether any user can reach this directory. Checks only the permissions of "others".
fn is_open(dir: &Path) -> bool {
    dir.ancestors().all(|dir| fs::metadata(dir).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0))
}

/// Runs a program to its end and returns its output. Dropping the future ends the program.
async fn run_program(program: &'static str, command: Command) -> Result<String, ServerError> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.while_doing(|| format!("run {program}"))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(ServerError::Failed { program, reason: format!("ended with {}", output.status), log });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
