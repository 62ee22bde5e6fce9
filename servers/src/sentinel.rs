//! Sentinels that watch a private Redis and fail over to its replica. Tuned to notice within half a second: for tests.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::error::Doing;
use crate::home::Home;
use crate::programs;
use crate::redis::is_ready;
use crate::server::{Kind, Server};
use crate::{Redis, ServerError};

/// How many of them must agree that the primary is gone.
const QUORUM: usize = 2;
const CONFIG: &str = "sentinel.conf";

/// One sentinel. Start three of them. Dropping it ends the process.
#[derive(Debug)]
pub struct Sentinel(Server<Setup>);

impl Sentinel {
    /// The name by which the sentinels know the primary.
    pub const PRIMARY: &str = "main";

    /// Starts on a free port and watches this primary. It finds replicas and other sentinels by itself, in a second or two.
    pub async fn start(primary: &Redis) -> Result<Sentinel, ServerError> {
        let program = programs::redis_server()?;
        let home = Home::throw_away(&env::temp_dir(), "dispatchq-sentinel-")?;
        let (name, port) = (Self::PRIMARY, primary.port());
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {port} {QUORUM}\n\
             sentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 4000\n"
        );
        let config = home.dir().join(CONFIG);
        fs::write(&config, text).doing(|| format!("write {}", config.display()))?;
        let mut server = Server::new(Setup { program }, home)?;
        server.start(None).await?;
        Ok(Sentinel(server))
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Of the sentinel itself, for asking it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }
}

#[derive(Debug)]
struct Setup {
    program: PathBuf,
}

impl Kind for Setup {
    const NAME: &'static str = "redis-sentinel";
    const STOP: Signal = Signal::SIGTERM;
    const QUIT: Signal = Signal::SIGKILL;

    fn command(&self, home: &Home, port: u16) -> Command {
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
        is_ready(port, pid).await
    }
}
