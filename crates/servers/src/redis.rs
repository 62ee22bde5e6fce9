//! A private redis-server.
//!
//! Its data is an append-only file without snapshots, fsynced every second. Redis writes a command to this file before
//! it answers, so killing the process loses no acknowledged command. Only a power loss could lose the last second. It
//! never evicts: a full Redis must refuse a timer instead of dropping one.

use std::env;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::{
    ServerError,
    error::IoErrorContext,
    home::ServerHome,
    login::ServerPassword,
    programs,
    server::{DetachedServer, ManagedServer, ServerKind},
    tls::{self, TlsEndpoint},
};

/// Timeout for an answer; a slower server counts as not ready.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Settings file of a server with a password. Every user of the machine can see the arguments of a process.
const SETTINGS: &str = "redis.conf";

/// A private redis-server. Dropping it ends the process, and removes the data unless [`RedisServer::start_in`] or
/// [`RedisServer::start_private_in`] started it.
#[derive(Debug)]
pub struct RedisServer(ManagedServer<RedisSetup>);

impl RedisServer {
    /// Starts on a free port with throw-away data.
    pub async fn start() -> Result<RedisServer, ServerError> {
        RedisServer::start_with_env(&[]).await
    }

    /// Starts like [`RedisServer::start`], with these environment variables, for example to preload a library.
    pub async fn start_with_env(env: &[(&str, &str)]) -> Result<RedisServer, ServerError> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RedisServer::start_throw_away(RedisSetup {
            program: programs::redis_server()?,
            env,
            args: Vec::new(),
            password: None,
        })
        .await
    }

    /// Starts like [`RedisServer::start`], with these additional arguments.
    pub(crate) async fn start_with_args(args: Vec<String>) -> Result<RedisServer, ServerError> {
        RedisServer::start_throw_away(RedisSetup {
            program: programs::redis_server()?,
            env: Vec::new(),
            args,
            password: None,
        })
        .await
    }

    async fn start_throw_away(kind: RedisSetup) -> Result<RedisServer, ServerError> {
        let home = ServerHome::throw_away(&env::temp_dir(), "dispatchq-redis-")?;
        RedisServer::start_with(kind, home, None).await
    }

    /// Starts on `port`, or on a free port, with its data in `dir`. The directory is created if it is missing, and is
    /// kept. A second server on the same data is refused with [`ServerError::InUse`].
    pub async fn start_in(dir: &Path, port: Option<u16>) -> Result<RedisServer, ServerError> {
        let kind = RedisSetup { program: programs::redis_server()?, env: Vec::new(), args: Vec::new(), password: None };
        RedisServer::start_with(kind, ServerHome::open_kept(dir)?, port).await
    }

    /// Starts like [`RedisServer::start_in`], for its owner only: the port requires a password, and other users cannot
    /// read the data.
    pub async fn start_private_in(dir: &Path, port: Option<u16>) -> Result<RedisServer, ServerError> {
        let home = ServerHome::open_kept(dir)?;
        let password = ServerPassword::kept_in(home.dir())?.map_or_else(ServerPassword::random_letters, Ok)?;
        let doing = || format!("set the permissions of {}", home.dir().display());
        fs::set_permissions(home.dir(), Permissions::from_mode(0o700)).while_doing(doing)?;
        password.keep_in(home.dir())?;
        let path = home.dir().join(SETTINGS);
        let doing = || format!("write {}", path.display());
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).while_doing(doing)?;
        writeln!(file, "requirepass {}", password.as_str()).while_doing(doing)?;
        let program = programs::redis_server()?;
        let kind = RedisSetup { program, env: Vec::new(), args: Vec::new(), password: Some(password) };
        RedisServer::start_with(kind, home, port).await
    }

    async fn start_with(kind: RedisSetup, home: ServerHome, port: Option<u16>) -> Result<RedisServer, ServerError> {
        let mut server = ManagedServer::new(kind, home)?;
        server.start(port).await?;
        Ok(RedisServer(server))
    }

    pub fn url(&self) -> String {
        let login =
            self.0.kind.password.as_ref().map(|password| format!(":{}@", password.as_str())).unwrap_or_default();
        format!("redis://{login}127.0.0.1:{}/", self.port())
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns the pid of the running process. After `stop` or `kill`, the pid of the last one.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Returns the directory with its data and `server.log`.
    pub fn dir(&self) -> &Path {
        self.0.home.dir()
    }

    /// Stops the server (SIGTERM), which flushes its data, and waits for its end. Does nothing if the server has ended.
    pub async fn stop(&mut self) -> Result<(), ServerError> {
        self.0.stop().await
    }

    /// Ends the server like a crash (SIGKILL), and waits for its end.
    pub async fn kill(&mut self) {
        self.0.kill().await;
    }

    /// Restarts the server on the same port and data. Stops it first if it runs.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.0.restart().await
    }

    /// Enables TLS on another port until the server is restarted. The certificate comes from a new authority. Needs
    /// `openssl`.
    pub async fn serve_tls(&self) -> Result<TlsEndpoint, ServerError> {
        tls::serve_tls(self.dir(), self.port()).await
    }

    /// Leaves the server and its data in place, even after this process ends.
    pub fn detach(self) -> DetachedServer {
        let url = self.url();
        self.0.detach(url)
    }
}

#[derive(Debug)]
struct RedisSetup {
    program: PathBuf,
    /// Additional environment variables.
    env: Vec<(String, String)>,
    /// Additional arguments.
    args: Vec<String>,
    /// Password of the port. `None`: any user of this machine may connect.
    password: Option<ServerPassword>,
}

impl ServerKind for RedisSetup {
    const NAME: &'static str = "redis-server";
    const STOP: Signal = Signal::SIGTERM;
    const QUIT: Signal = Signal::SIGKILL;

    fn server_command(&self, home: &ServerHome, port: u16) -> Command {
        let mut command = if self.password.is_some() {
            // The umask makes the server's files readable only for their owner.
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(&self.program).arg(home.dir().join(SETTINGS));
            shell
        } else {
            Command::new(&self.program)
        };
        command
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .args(["--port", &port.to_string()])
            .args(["--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(home.dir())
            .args(["--appendonly", "yes"])
            .args(["--appendfsync", "everysec"])
            .args(["--save", ""])
            .args(["--maxmemory-policy", "noeviction"])
            .args(["--daemonize", "no"])
            .args(&self.args);
        command
    }

    async fn is_ready(&self, port: u16, pid: u32) -> bool {
        is_ready(port, pid, self.password.as_ref()).await
    }
}

/// Returns whether this process answers, as a server or a sentinel.
pub(crate) async fn is_ready(port: u16, pid: u32, password: Option<&ServerPassword>) -> bool {
    matches!(tokio::time::timeout(ANSWER_WAIT, answers_ping(port, pid, password)).await, Ok(Ok(true)))
}

/// Returns whether the process with this pid answers. PING returns an error while data is loaded, and INFO contains the
/// pid of the process.
async fn answers_ping(port: u16, pid: u32, password: Option<&ServerPassword>) -> std::io::Result<bool> {
    let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
    if let Some(password) = password {
        stream.write_all(format!("AUTH {}\r\n", password.as_str()).as_bytes()).await?;
    }
    stream.write_all(b"INFO server\r\nPING\r\n").await?;
    let mut lines = stream.lines();
    let (info, mut ours) = (format!("process_id:{pid}"), false);
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "+PONG" => return Ok(ours),
            line if line.starts_with('-') => return Ok(false),
            line => ours |= line == info,
        }
    }
    Ok(false)
}
