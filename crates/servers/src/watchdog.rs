//! Ends the server when this process is killed. A SIGKILL runs no destructor, and asking the kernel to signal our
//! children (`PR_SET_PDEATHSIG`) needs `unsafe` and Linux; a shell that reads a pipe needs neither. The kernel closes
//! the pipe's other end with us, the shell reads the end of its input, and acts.
//!
//! What it does not cover: the few microseconds between starting the server and writing its pid.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{ServerError, error::IoErrorContext};

const SCRIPT: &str = include_str!("watchdog.sh");

/// Dropping it ends the watch and leaves the server alone.
#[derive(Debug)]
pub(crate) struct ServerWatchdog {
    shell: Child,
}

impl ServerWatchdog {
    /// `throw_away` is removed once the server has ended.
    pub(crate) fn start(throw_away: Option<&Path>) -> Result<ServerWatchdog, ServerError> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "dispatchq-watchdog"])
            .arg(throw_away.unwrap_or(Path::new("")))
            .current_dir("/")
            // Its own group: a Ctrl-C in our terminal, or a test runner that kills our group, must not end it first.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .while_doing(|| "start the watchdog shell".into())?;
        Ok(ServerWatchdog { shell })
    }

    /// Watches this server from now on.
    pub(crate) fn watch_pid(&mut self, pid: u32) {
        self.write_command(&format!("{pid}\n"));
    }

    /// The server has ended; its pid may become another process's.
    pub(crate) fn forget_pid(&mut self) {
        self.write_command("\n");
    }

    /// Without a watchdog all works but the clean-up after our own sudden death, so that is no reason to fail.
    fn write_command(&mut self, line: &str) {
        let pipe = self.shell.stdin.as_mut().expect("stdin is piped and never taken");
        if let Err(error) = pipe.write_all(line.as_bytes()) {
            tracing::warn!(%error, "a private server's watchdog is gone");
        }
    }
}

impl Drop for ServerWatchdog {
    fn drop(&mut self) {
        // `wait` closes the pipe, which would be the signal to act: the shell must be dead by then.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
