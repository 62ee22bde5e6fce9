//! Ends the server when this process is killed. A SIGKILL runs no destructor. Asking the kernel to signal the children
//! (`PR_SET_PDEATHSIG`) needs `unsafe` and Linux; a shell that reads a pipe needs neither. When this process dies, the
//! kernel closes the other end of the pipe, and the shell reads the end of its input and ends the server.
//!
//! The watchdog does not cover the few microseconds between starting the server and writing its pid.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{ServerError, error::IoErrorContext};

const SCRIPT: &str = include_str!("watchdog.sh");

/// A watchdog shell. Dropping it ends only the shell.
#[derive(Debug)]
pub(crate) struct ServerWatchdog {
    shell: Child,
}

impl ServerWatchdog {
    /// Starts the shell. When the server has ended, the shell removes `throw_away`.
    pub(crate) fn start(throw_away: Option<&Path>) -> Result<ServerWatchdog, ServerError> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "dispatchq-watchdog"])
            .arg(throw_away.unwrap_or(Path::new("")))
            .current_dir("/")
            // A separate process group: Ctrl-C in the terminal, or a test runner that kills this process's group, must
            // not end the shell first.
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

    /// Forgets the server, which has ended. Another process may get its pid.
    pub(crate) fn forget_pid(&mut self) {
        self.write_command("\n");
    }

    /// Writes a line to the shell. Without a watchdog only the clean-up after a kill of this process is missing, so an
    /// error is only logged.
    fn write_command(&mut self, line: &str) {
        let pipe = self.shell.stdin.as_mut().expect("stdin is piped and never taken");
        if let Err(error) = pipe.write_all(line.as_bytes()) {
            tracing::warn!(%error, "a private server's watchdog is gone");
        }
    }
}

impl Drop for ServerWatchdog {
    fn drop(&mut self) {
        // `wait` closes the pipe, which would trigger the clean-up, so the shell must be dead before.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
