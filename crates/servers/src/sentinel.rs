//! Three sentinels that watch a private Redis and its replica, and fail over within a second or two. For tests.

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::{
    RedisServer, ServerError,
    error::IoErrorContext,
    home::ServerHome,
    programs,
    redis::is_ready,
    server::{ManagedServer, ServerKind},
};

const COUNT: usize = 3;
/// Number of sentinels that must agree that the primary is down.
const QUORUM: usize = 2;
const CONFIG: &str = "sentinel.conf";
/// Name of the primary in the sentinels.
const PRIMARY: &str = "main";
/// Timeout for the sentinels to find each other. They announce themselves every two seconds.
const ACQUAINTED_WAIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A group of sentinels. Dropping it ends the processes.
#[derive(Debug)]
pub struct SentinelGroup(Vec<ManagedServer<SentinelSetup>>);

impl SentinelGroup {
    /// Starts the sentinels on free ports. Returns when each knows the primary's replica and the other two sentinels,
    /// so that it can fail over.
    pub async fn start(primary: &RedisServer) -> Result<SentinelGroup, ServerError> {
        let mut sentinels = Vec::new();
        for _ in 0..COUNT {
            sentinels.push(start_one(primary.port()).await?);
        }
        let deadline = Instant::now() + ACQUAINTED_WAIT;
        for sentinel in &sentinels {
            while !knows_others(sentinel.port()).await.unwrap_or(false) {
                if Instant::now() > deadline {
                    let (server, what, log) = (SentinelSetup::NAME, "find the others", sentinel.home.log_tail(0));
                    return Err(ServerError::Timeout { server, what, secs: ACQUAINTED_WAIT.as_secs(), log });
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(SentinelGroup(sentinels))
    }

    /// Returns `redis+sentinel://host:port,host:port,host:port/primary`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.0.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        format!("redis+sentinel://{}/{PRIMARY}", hosts.join(","))
    }

    /// Returns the URL of one sentinel, for commands to it.
    pub fn sentinel_url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.0[0].port())
    }
}

async fn start_one(primary_port: u16) -> Result<ManagedServer<SentinelSetup>, ServerError> {
    let program = programs::redis_server()?;
    let home = ServerHome::throw_away(&env::temp_dir(), "dispatchq-sentinel-")?;
    let text = format!(
        "sentinel monitor {PRIMARY} 127.0.0.1 {primary_port} {QUORUM}\n\
         sentinel down-after-milliseconds {PRIMARY} 500\n\
         sentinel failover-timeout {PRIMARY} 4000\n"
    );
    let config = home.dir().join(CONFIG);
    fs::write(&config, text).while_doing(|| format!("write {}", config.display()))?;
    let mut server = ManagedServer::new(SentinelSetup { program }, home)?;
    server.start(None).await?;
    Ok(server)
}

/// Returns whether the sentinel knows the replica and the other sentinels. The answer is a list of names and values,
/// each on its own line after a line with its length.
async fn knows_others(port: u16) -> std::io::Result<bool> {
    let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
    stream.write_all(format!("SENTINEL MASTER {PRIMARY}\r\nPING\r\n").as_bytes()).await?;
    let mut lines = stream.lines();
    let mut words = Vec::new();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "+PONG" => break,
            line if line.starts_with(['$', '*']) => {}
            line => words.push(line.to_owned()),
        }
    }
    let knows = |name: &str, count: &str| words.windows(2).any(|pair| pair[0] == name && pair[1] == count);
    Ok(knows("num-slaves", "1") && knows("num-other-sentinels", &(COUNT - 1).to_string()))
}

#[derive(Debug)]
struct SentinelSetup {
    program: PathBuf,
}

impl ServerKind for SentinelSetup {
    const NAME: &'static str = "redis-sentinel";
    const STOP: Signal = Signal::SIGTERM;
    const QUIT: Signal = Signal::SIGKILL;

    fn server_command(&self, home: &ServerHome, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(home.dir().join(CONFIG))
            .args(["--sentinel", "--port", &port.to_string()])
            .args(["--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(home.dir())
            .args(["--daemonize", "no"]);
        command
    }

    async fn is_ready(&self, port: u16, pid: u32) -> bool {
        is_ready(port, pid, None).await
    }
}
