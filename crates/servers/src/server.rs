//! The life that both servers share: start on a free port, be ready or say why not, stop, be killed, start again.

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

/// How long a server may take to be ready, and to stop.
const READY_WAIT: Duration = Duration::from_secs(30);
const STOP_WAIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// How long to wait for the lock at a start, where an orphan of a killed owner may be about to end, and for the last
/// process of a server that was just ended.
pub(crate) const START_LOCK_WAIT: Duration = Duration::from_secs(3);
const END_LOCK_WAIT: Duration = Duration::from_secs(10);

/// Starts tried when another process binds the port first.
const PORT_TRIES: u32 = 5;
const PORT_PAUSE: Duration = Duration::from_millis(100);

/// A server left running. It has no owner: end it with `kill -INT <pid>`, then remove `dir` if the data was
/// throw-away.
#[derive(Clone, Debug)]
pub struct DetachedServer {
    /// Where it answers.
    pub url: String,
    /// Its process.
    pub pid: u32,
    /// Its data, log and lock.
    pub dir: PathBuf,
}

/// What differs between the servers.
pub(crate) trait ServerKind {
    const NAME: &'static str;
    /// Ends it in good order, even while clients are connected.
    const STOP: Signal;
    /// Ends it at once, leaving nothing behind but its data.
    const QUIT: Signal;

    /// The command that runs it in the foreground, logging to its standard output or error.
    fn server_command(&self, home: &ServerHome, port: u16) -> Command;

    /// Whether *this* process answers queries; another server on the same port does not count.
    fn is_ready(&self, port: u16, pid: u32) -> impl Future<Output = bool> + Send;
}

/// Fields are dropped in this order: the server ends, then nothing is left to watch, then its directory goes.
#[derive(Debug)]
pub(crate) struct ManagedServer<K> {
    process: Option<ServerProcess>,
    watchdog: ServerWatchdog,
    pub(crate) home: ServerHome,
    pub(crate) kind: K,
    port: u16,
    /// Its port, unless that was given: it is the server's while it is down, too.
    reserved: Option<ReservedPort>,
    pid: u32,
}

impl<K: ServerKind> ManagedServer<K> {
    /// Watched, but not started yet.
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

    /// Starts on `port`, or on a free one.
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

    /// False when another process has the port.
    async fn start_on(&mut self, port: u16) -> Result<bool, ServerError> {
        let lock = self.home.lock_dir(K::NAME, START_LOCK_WAIT).await?;
        let log = self.home.open_log()?;
        let log_start = self.home.log_end();
        let mut command = self.kind.server_command(&self.home, port);
        command
            .stdin(lock)
            .stdout(log.try_clone().while_doing(|| "share the server's log".into())?)
            .stderr(Stdio::from(log))
            // Its own group: a Ctrl-C in our terminal is for us, and we end the server when we no longer need it.
            .process_group(0);
        let process = self.process.insert(ServerProcess::spawn(&mut command, K::QUIT)?);
        // The command holds our copy of the lock.
        drop(command);
        self.pid = process.pid();
        self.port = port;
        self.watchdog.watch_pid(self.pid);

        let deadline = Instant::now() + READY_WAIT;
        loop {
            if let Some(status) = process.exit_status() {
                self.record_end();
                let log = self.home.log_tail(log_start);
                // In the words of glibc and macOS, of Go, and of musl.
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
        // Nothing survives SIGKILL; a process the kernel holds in I/O may take a moment, which dropping it waits for.
        process.end_with_signal(Signal::SIGKILL, STOP_WAIT).await;
        self.record_end();
        self.last_process_gone().await;
    }

    /// On the same port and data; a server that still runs is stopped first.
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

    /// Reaps the process first: while it is a zombie its pid is still its own.
    fn record_end(&mut self) {
        self.process = None;
        self.watchdog.forget_pid();
    }

    /// A killed Postgres leaves backends behind that notice within moments. A restart would find its memory
    /// in use, so that is waited for; should one hang, `start` says so.
    async fn last_process_gone(&self) {
        if let Err(error) = self.home.lock_dir(K::NAME, END_LOCK_WAIT).await {
            tracing::warn!(%error, "a process of a private server outlives it");
        }
    }

    fn timeout_error(&self, what: &'static str, wait: Duration, log_start: u64) -> ServerError {
        ServerError::Timeout { server: K::NAME, what, secs: wait.as_secs(), log: self.home.log_tail(log_start) }
    }
}
