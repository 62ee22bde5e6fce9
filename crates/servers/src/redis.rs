//! A private redis-server.
//!
//! Its data is an append-only file, fsynced every second, without snapshots. Redis writes a command to that file before
//! it answers, so killing the process loses nothing it has acknowledged; only a machine that loses power could lose the
//! last second. It never evicts: a full Redis must refuse a timer, not forget one.

use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::{
    ServerError,
    home::ServerHome,
    programs,
    server::{DetachedServer, ManagedServer, ServerKind},
    tls::{self, TlsEndpoint},
};

/// How long an answer may take before the server counts as not ready yet.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// A private redis-server. Dropping it ends the process, and removes the data unless [`RedisServer::start_in`] started it.
#[derive(Debug)]
pub struct RedisServer(ManagedServer<RedisSetup>);

impl RedisServer {
    /// Starts on a free port with throw-away data.
    pub async fn start() -> Result<RedisServer, ServerError> {
        RedisServer::start_with_env(&[]).await
    }

    /// As [`RedisServer::start`], with these variables in its environment: a library to be loaded first, for example.
    pub async fn start_with_env(env: &[(&str, &str)]) -> Result<RedisServer, ServerError> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RedisServer::start_throw_away(RedisSetup { program: programs::redis_server()?, env, args: Vec::new() }).await
    }

    /// As [`RedisServer::start`], with these arguments added.
    pub(crate) async fn start_with_args(args: Vec<String>) -> Result<RedisServer, ServerError> {
        RedisServer::start_throw_away(RedisSetup { program: programs::redis_server()?, env: Vec::new(), args }).await
    }

    async fn start_throw_away(kind: RedisSetup) -> Result<RedisServer, ServerError> {
        let home = ServerHome::throw_away(&env::temp_dir(), "dispatchq-redis-")?;
        RedisServer::start_with(kind, home, None).await
    }

    /// Starts on `port` or a free one with its data in `dir`, which is made where it is missing and stays. One server
    /// at a time: a second is refused with [`ServerError::InUse`].
    pub async fn start_in(dir: &Path, port: Option<u16>) -> Result<RedisServer, ServerError> {
        let kind = RedisSetup { program: programs::redis_server()?, env: Vec::new(), args: Vec::new() };
        RedisServer::start_with(kind, ServerHome::open_kept(dir)?, port).await
    }

    async fn start_with(kind: RedisSetup, home: ServerHome, port: Option<u16>) -> Result<RedisServer, ServerError> {
        let mut server = ManagedServer::new(kind, home)?;
        server.start(port).await?;
        Ok(RedisServer(server))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Of the running process, or of the last one after `stop` and `kill`.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// The directory with its data and `server.log`.
    pub fn dir(&self) -> &Path {
        self.0.home.dir()
    }

    /// Asks it to flush its data and end (SIGTERM), and waits. Does nothing when it has ended.
    pub async fn stop(&mut self) -> Result<(), ServerError> {
        self.0.stop().await
    }

    /// Ends it like a crash (SIGKILL), and waits until it is gone.
    pub async fn kill(&mut self) {
        self.0.kill().await;
    }

    /// Starts it again with the same port and data; stops it first if it runs.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.0.restart().await
    }

    /// Lets it speak TLS, too, with a certificate of an authority made for it; until it is restarted. Needs `openssl`.
    pub async fn serve_tls(&self) -> Result<TlsEndpoint, ServerError> {
        tls::serve_tls(self).await
    }

    /// Leaves it running with its data, also after this process has ended.
    pub fn detach(self) -> DetachedServer {
        let url = self.url();
        self.0.detach(url)
    }
}

#[derive(Debug)]
struct RedisSetup {
    program: PathBuf,
    /// Variables added to its environment.
    env: Vec<(String, String)>,
    /// Arguments added to its own.
    args: Vec<String>,
}

impl ServerKind for RedisSetup {
    const NAME: &'static str = "redis-server";
    const STOP: Signal = Signal::SIGTERM;
    const QUIT: Signal = Signal::SIGKILL;

    fn server_command(&self, home: &ServerHome, port: u16) -> Command {
        let mut command = Command::new(&self.program);
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
        is_ready(port, pid).await
    }
}

/// Whether this process answers, be it a server or a sentinel.
pub(crate) async fn is_ready(port: u16, pid: u32) -> bool {
    matches!(tokio::time::timeout(ANSWER_WAIT, answers_ping(port, pid)).await, Ok(Ok(true)))
}

/// PING answers an error while the data is still being loaded, and INFO tells whose answer it is.
async fn answers_ping(port: u16, pid: u32) -> std::io::Result<bool> {
    let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
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
