//! Ends `serve` and `work` if this process is killed. The private servers have their own watchdog, which explains why
//! it is a shell that reads a pipe.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

const SCRIPT: &str = include_str!("watchdog.sh");

/// A watchdog shell. Dropping it ends only the shell.
#[derive(Debug)]
pub(crate) struct ProcessWatchdog {
    shell: Child,
}

impl ProcessWatchdog {
    /// Starts the shell. It removes `dir` if this process dies.
    pub(crate) fn start(dir: &Path) -> io::Result<Self> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "dispatchq-run-watchdog"])
            .arg(dir)
            .current_dir("/")
            // A separate process group: Ctrl-C in the terminal must not end the shell before this process.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { shell })
    }

    pub(crate) fn watch_pid(&mut self, pid: u32) {
        self.write_command('+', pid);
    }

    /// Forgets a process that has ended. Another process may get its pid.
    pub(crate) fn forget_pid(&mut self, pid: u32) {
        self.write_command('-', pid);
    }

    /// Writes a command to the shell. Without a watchdog only the clean-up after a kill of this process is missing, so
    /// an error is only logged.
    fn write_command(&mut self, what: char, pid: u32) {
        let Some(pipe) = self.shell.stdin.as_mut() else { return };
        if let Err(error) = pipe.write_all(format!("{what} {pid}\n").as_bytes()) {
            tracing::warn!(%error, "The watchdog of the processes of this run is gone.");
        }
    }
}

impl Drop for ProcessWatchdog {
    fn drop(&mut self) {
        // `wait` closes the pipe, which would trigger the clean-up, so the shell must be dead before.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
