//! Life cycle that all private servers share: start on a free port, become ready or fail with the log, stop, kill,
//! restart.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::{
    ServerError,
    error::IoErrorContext,
    home::ServerHome,
    ports::{self, ReservedPort},
    process::ServerProcess,
    watchdog::ServerWatchdog,
};

/// Timeouts for becoming ready and for stopping.
const READY_WAIT: Duration = Duration::from_secs(30);
const STOP_WAIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Timeouts for the lock of the directory: at a start, where an orphan of a killed owner may be ending, and after an
/// end, until the last process of the server has ended.
pub(crate) const START_LOCK_WAIT: Duration = Duration::from_secs(3);
const END_LOCK_WAIT: Duration = Duration::from_secs(10);

/// Maximum number of starts when another process binds the port first.
const PORT_TRIES: u32 = 5;
const PORT_PAUSE: Duration = Duration::from_millis(100);

/// A server that was left running without an owner. End it with `kill -INT <pid>`, then remove `dir` if the data was
/// throw-away.
#[derive(Clone, Debug)]
pub struct DetachedServer {
    /// URL of the server.
    pub url: String,
    /// Pid of the server.
    pub pid: u32,
    /// Directory with its data, log and lock.
    pub dir: PathBuf,
}

/// Differences between the servers.
pub(crate) trait ServerKind {
    const NAME: &'static str;
    /// Signal that stops the server gracefully, even while clients are connected.
    const STOP: Signal;
    /// Signal that ends the server immediately and leaves only its data behind.
    const QUIT: Signal;

    /// Returns the command that runs the server in the foreground, with its log on standard output or error.
    fn server_command(&self, home: &ServerHome, port: u16) -> Command;

    /// Returns whether the process with this pid answers queries. Another server on the same port does not count.
    fn is_ready(&self, port: u16, pid: u32) -> impl Future<Output = bool> + Send;
}

/// A managed server. Its fields are dropped in this order: the server ends, then its watchdog, then its directory is
/// removed.
#[derive(Debug)]
pub(crate) struct ManagedServer<K> {
    process: Option<ServerProcess>,
    watchdog: ServerWatchdog,
    pub(crate) home: ServerHome,
    pub(crate) kind: K,
    port: u16,
    /// Reservation of the port, unless the caller chose it. The port stays reserved while the server is down.
    reserved: Option<ReservedPort>,
    pid: u32,
}

impl<K: ServerKind> ManagedServer<K> {
    /// Creates a server with a running watchdog. The server itself is not started.
    pub(crate) fn new(kind: K, home: ServerHome) -> Result<ManagedServer<K>, ServerError> {
        let watchdog = ServerWatchdog::start(home.is_throw_away().then(|| home.dir()))?;
        Ok(ManagedServer { process: None, watchdog, home, kind, port: 0, reserved: None, pid: 0 })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts on `port`, or on a free port.
    pub(crate) async fn start(&mut self, port: Option<u16>) -> Result<(), ServerError> {
        let started = Instant::now();
        for _ in 0..PORT_TRIES {
            let candidate = port.unwrap_or_else(|| self.reserved.insert(ReservedPort::find()).port());
            if ports::is_free(candidate) && self.start_on(candidate).await? {
                let (ms, server) = (started.elapsed().as_millis(), K::NAME);
                tracing::debug!(server, port = self.port, pid = self.pid, ms, "a private server is ready");
                return Ok(());
            }
            self.port = candidate;
            tokio::time::sleep(PORT_PAUSE).await;
        }
        Err(ServerError::PortTaken { server: K::NAME, port: self.port })
    }

    /// Starts on this port. Returns false if another process has the port.
    async fn start_on(&mut self, port: u16) -> Result<bool, ServerError> {
        let lock = self.home.lock_dir(K::NAME, START_LOCK_WAIT).await?;
        let log = self.home.open_log()?;
        let log_start = self.home.log_end();
        let mut command = self.kind.server_command(&self.home, port);
        command
            .stdin(lock)
            .stdout(log.try_clone().while_doing(|| "share the server's log".into())?)
            .stderr(Stdio::from(log))
            // A separate process group: Ctrl-C in the terminal must reach only this process, which then ends the
            // server.
            .process_group(0);
        let process = self.process.insert(ServerProcess::spawn(&mut command, K::QUIT)?);
        // The command contains this process's copy of the lock.
        drop(command);
        self.pid = process.pid();
        self.port = port;
        self.watchdog.watch_pid(self.pid);

        let deadline = Instant::now() + READY_WAIT;
        loop {
            if let Some(status) = process.exit_status() {
                self.record_end();
                let log = self.home.log_tail(log_start);
                // Wordings of glibc and macOS, of Go, and of musl.
                let words = log.to_ascii_lowercase();
                if words.contains("address already in use") || words.contains("address in use") {
                    return Ok(false);
                }
                return Err(ServerError::Failed { program: K::NAME, reason: format!("ended with {status}"), log });
            }
            if self.kind.is_ready(port, self.pid).await {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                self.record_end();
                return Err(self.timeout_error("become ready", READY_WAIT, log_start));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) async fn stop(&mut self) -> Result<(), ServerError> {
        let log_start = self.home.log_end();
        let Some(process) = &mut self.process else { return Ok(()) };
        if !process.end_with_signal(K::STOP, STOP_WAIT).await {
            return Err(self.timeout_error("stop", STOP_WAIT, log_start));
        }
        self.record_end();
        self.last_process_gone().await;
        Ok(())
    }

    pub(crate) async fn kill(&mut self) {
        let Some(process) = &mut self.process else { return };
        // SIGKILL always works, but a process in uninterruptible I/O may take a moment. Dropping it waits for that.
        process.end_with_signal(Signal::SIGKILL, STOP_WAIT).await;
        self.record_end();
        self.last_process_gone().await;
    }

    /// Restarts the server on the same port and data. Stops it first if it runs.
    pub(crate) async fn restart(&mut self) -> Result<(), ServerError> {
        self.stop().await?;
        self.start(Some(self.port)).await
    }

    pub(crate) fn detach(self, url: String) -> DetachedServer {
        drop(self.watchdog);
        if let Some(process) = self.process {
            process.detach();
        }
        DetachedServer { url, pid: self.pid, dir: self.home.keep_dir() }
    }

    /// Reaps the process before the watchdog forgets its pid: while the process is a zombie, no other process gets the
    /// pid.
    fn record_end(&mut self) {
        self.process = None;
        self.watchdog.forget_pid();
    }

    /// Waits until the last process of the server has ended. Backends of a killed Postgres notice its end within
    /// moments, and until then a restart would find the shared memory in use. If a backend hangs, `start` reports it.
    async fn last_process_gone(&self) {
        if let Err(error) = self.home.lock_dir(K::NAME, END_LOCK_WAIT).await {
            tracing::warn!(%error, "a process of a private server still runs after its end");
        }
    }

    fn timeout_error(&self, what: &'static str, wait: Duration, log_start: u64) -> ServerError {
        ServerError::Timeout { server: K::NAME, what, secs: wait.as_secs(), log: self.home.log_tail(log_start) }
    }
}
