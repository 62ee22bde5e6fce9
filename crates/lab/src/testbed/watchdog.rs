//! Ends `serve` and `work` when we are killed ourselves and can no longer do it. The private servers have a watchdog
//! of their own; see there for why it is a shell that reads a pipe.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

const SCRIPT: &str = include_str!("watchdog.sh");

/// Dropping it ends the watch and leaves the processes alone.
#[derive(Debug)]
pub(crate) struct ProcessWatchdog {
    shell: Child,
}

impl ProcessWatchdog {
    /// `dir` is removed if we die.
    pub(crate) fn start(dir: &Path) -> io::Result<Self> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "dispatchq-run-watchdog"])
            .arg(dir)
            .current_dir("/")
            // Its own group: a Ctrl-C in our terminal must not end it before us.
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

    /// It has ended; its pid may become another process's.
    pub(crate) fn forget_pid(&mut self, pid: u32) {
        self.write_command('-', pid);
    }

    /// Without a watchdog all works but the clean-up after our own sudden death, so that is no reason to fail.
    fn write_command(&mut self, what: char, pid: u32) {
        let Some(pipe) = self.shell.stdin.as_mut() else { return };
        if let Err(error) = pipe.write_all(format!("{what} {pid}\n").as_bytes()) {
            tracing::warn!(%error, "The watchdog of the processes of this run is gone.");
        }
    }
}

impl Drop for ProcessWatchdog {
    fn drop(&mut self) {
        // `wait` closes the pipe, which would be the signal to act: the shell must be dead by then.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
