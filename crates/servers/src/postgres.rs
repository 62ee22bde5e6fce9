//! A private Postgres with one empty database, `dispatchq`, and a user of that name with a random password, which is part of
//! the URL. Kept data has it in the file `password`.
//!
//! Throw-away data is not fsynced. That is safe for tests that crash it: they kill the process, not the machine, and
//! what a process has written survives it in the kernel's cache. Data kept in a directory is fsynced.
//!
//! Postgres refuses to run as root. Under root it runs as an `account` without rights, and its data lies where that user
//! may go: throw-away data in `/var/tmp/dispatchq-*`, kept data in its directory, or when a parent of that is
//! closed to others in a `/var/tmp/dispatchq-*` that a symbolic link in the directory points to. Copies that tests make of a
//! template lie in memory where there is room.

mod backup;
mod pooler;

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

pub use self::{backup::PostgresBackup, pooler::PgBouncer};
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

/// The user, and the database that exists from the start.
const NAME: &str = "dispatchq";

/// The database to which clients connect to make others.
const MAIN: &str = "postgres";

/// How the server has its clients prove who they are.
const METHOD: &str = "scram-sha-256";

/// Open to every user, unlike a home directory, and not cleared at boot.
const OPEN_DIR: &str = "/var/tmp";

/// Linux keeps it in memory. In a container it is mostly too small.
const MEMORY_DIR: &str = "/dev/shm";
/// For some dozen clusters of tests at once.
const LEAST_ROOM: u64 = 4 * 1024 * 1024 * 1024;

/// A private Postgres. Dropping it ends its processes, and removes the data unless [`PostgresServer::start_in`] started it.
#[derive(Debug)]
pub struct PostgresServer(ManagedServer<PostgresSetup>);

impl PostgresServer {
    /// Starts on a free port with throw-away data.
    pub async fn start() -> Result<PostgresServer, ServerError> {
        let (setup, home) = throw_away(None)?;
        PostgresServer::start_with(setup, home, None).await
    }

    /// Starts on a free port with a throw-away copy of the template `name` in `folder`. The first call makes the template: it starts
    /// an empty server and has `prepare`, which is given the URL, fill the database; if that fails there is no template. All
    /// copies have one password, which no other user may read.
    pub async fn start_prepared<E: From<ServerError>>(
        folder: &Path,
        name: &str,
        prepare: impl AsyncFnOnce(String) -> Result<(), E>,
    ) -> Result<PostgresServer, E> {
        let (setup, home) = throw_away(None)?;
        let template = template_filled_by(&setup, folder, name, prepare).await?;
        Ok(PostgresServer::start_copied(&template, setup, home).await?)
    }

    /// As [`PostgresServer::start_prepared`], for tests: its data lies in memory where there is room.
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

    /// Starts on `port` or a free one with its data in `dir`, which is made where it is missing and stays. One server
    /// at a time: a second is refused with [`ServerError::InUse`].
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

    /// Of the database `dispatchq`.
    pub fn url(&self) -> String {
        self.database_url(NAME)
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Of the running postmaster, or of the last one after `stop` and `kill`.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// The directory with its data and `server.log`.
    pub fn dir(&self) -> &Path {
        self.0.home.dir()
    }

    /// Makes an empty database, for tests that share one server, and returns its URL. The name must be new and, as it
    /// becomes part of a URL, of letters, digits and `_`. Copies of a template have nothing to make one from.
    pub async fn fresh_database(&self, name: &str) -> Result<String, ServerError> {
        self.run_sql(MAIN, &format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""))).await?;
        Ok(self.database_url(name))
    }

    /// Ends it in good order (SIGINT, a "fast shutdown"), and waits. Open connections are closed; SIGTERM would wait
    /// until the clients close them. Does nothing when it has ended.
    pub async fn stop(&mut self) -> Result<(), ServerError> {
        self.0.stop().await
    }

    /// Ends it like a crash (SIGKILL to the postmaster), and waits until its backends have noticed and are gone.
    pub async fn kill(&mut self) {
        self.0.kill().await;
    }

    /// Restarts it with fsync and full_page_writes, which throw-away data does without.
    pub async fn restart_durable(&mut self) -> Result<(), ServerError> {
        self.0.kind.durable = true;
        self.restart().await
    }

    /// Starts it again with the same port and data; stops it first if it runs.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.0.restart().await
    }

    /// Leaves it running with its data, also after this process has ended.
    pub fn detach(self) -> DetachedServer {
        let url = self.url();
        self.0.detach(url)
    }

    fn database_url(&self, name: &str) -> String {
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{name}", self.0.kind.password.as_str(), self.port())
    }

    /// Runs one statement in the database `dispatchq`, and returns what psql prints of its rows.
    pub async fn run_statement(&self, statement: &str) -> Result<String, ServerError> {
        self.run_sql(NAME, statement).await
    }

    /// Drops the three databases that initdb makes: half of the files that a copy of this cluster would have, and nothing reads them.
    async fn drop_other_databases(&self) -> Result<(), ServerError> {
        self.run_statement("UPDATE pg_database SET datistemplate = false").await?;
        for database in [MAIN, "template0", "template1"] {
            self.run_statement(&format!("DROP DATABASE {database}")).await?;
        }
        Ok(())
    }

    /// Runs one statement through psql.
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

/// Returns the template `name` in `folder`, and makes it if it is not there.
async fn template_filled_by<E: From<ServerError>>(
    setup: &PostgresSetup,
    folder: &Path,
    name: &str,
    prepare: impl AsyncFnOnce(String) -> Result<(), E>,
) -> Result<DataTemplate, E> {
    // Another version of Postgres cannot read it.
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

/// Returns where copies of templates for tests lie: in memory where there is room. Each is some 1,500 files, which take seconds to make
/// on a disk that others write to.
fn memory_dir() -> Option<&'static Path> {
    let memory = Path::new(MEMORY_DIR);
    let room = statvfs(memory).ok()?;
    (room.blocks_available() * room.fragment_size() >= LEAST_ROOM).then_some(memory)
}

/// What a server with throw-away data begins with.
///
/// In `parent`, or where every user may go.
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
    /// Empty until initialized.
    data: PathBuf,
    password: ServerPassword,
    durable: bool,
    /// Its background processes do not look for work several times a second, which is much of what a short test costs.
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

    /// A command that runs as the right user and hears nothing of the caller's own Postgres settings.
    fn program_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // The other user might not be allowed into our directory. The locale is fixed because macOS needs one, and so
        // that messages are in English.
        command.current_dir("/").env("LC_ALL", "C");
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| name.starts_with("PG"))) {
            command.env_remove(name);
        }
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Finds the data directory and the password, and makes them where they are missing. Data gets its name only when it is
    /// complete, so an interrupted initdb leaves nothing that looks like data.
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
            fs::remove_dir_all(new).while_doing(|| format!("remove {}, which was left half made", new.display()))?;
        }
        fs::create_dir(new).while_doing(|| format!("make {}", new.display()))?;
        self.run_initdb(new).await?;
        fs::rename(new, data).while_doing(|| format!("rename {}", new.display()))
    }

    async fn init_elsewhere(&self, data: &Path) -> Result<(), ServerError> {
        let doing = || format!("make a directory in {OPEN_DIR}");
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
    /// An "immediate shutdown": the postmaster ends its backends and frees its shared memory, which SIGKILL would leave
    /// to no process.
    const QUIT: Signal = Signal::SIGQUIT;

    fn server_command(&self, _home: &ServerHome, port: u16) -> Command {
        let mut command = self.program_command(&self.programs.postgres);
        command.arg("-D").arg(&self.data);
        let mut settings = vec![
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "shared_buffers=128MB",
            "max_connections=200",
            // In the data directory, where a killed server's leftovers are removed with the rest.
            "dynamic_shared_memory_type=mmap",
        ];
        if !self.durable {
            settings.extend(["fsync=off", "full_page_writes=off", "max_wal_size=1GB"]);
        }
        if self.is_quiet {
            settings.extend(["bgwriter_delay=10s", "wal_writer_delay=10s", "checkpoint_timeout=1h"]);
            // Segments that are kept for later use would be copied with a template.
            settings.push("wal_recycle=off");
        }
        command.arg("-c").arg(format!("port={port}"));
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        command
    }

    /// The postmaster writes its own pid and state into its data directory, which is how `pg_ctl` waits for it too.
    async fn is_ready(&self, _port: u16, pid: u32) -> bool {
        let state = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let mut lines = state.lines();
        lines.next() == Some(&pid.to_string()) && lines.next_back().is_some_and(|line| line.trim_end() == "ready")
    }
}

/// Whether any user may reach this directory. Looks at the permissions for "others" only.
fn is_open(dir: &Path) -> bool {
    dir.ancestors().all(|dir| fs::metadata(dir).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0))
}

/// Runs a program to its end and returns what it printed. Dropping the future ends the program.
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
