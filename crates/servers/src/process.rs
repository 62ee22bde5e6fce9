//! One server process, our direct child: as long as we have not reaped it no other process can get its pid, so a signal
//! always reaches the process we started or none.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::{ServerError, error::IoErrorContext};

const POLL: Duration = Duration::from_millis(5);

/// How long a dropped server may take to end by its own signal before SIGKILL.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Ended and reaped when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// Taken only by [`ServerProcess::detach`].
    child: Option<Child>,
    /// What ends it when dropped.
    last_signal: Signal,
}

impl ServerProcess {
    pub(crate) fn spawn(command: &mut Command, last_signal: Signal) -> Result<ServerProcess, ServerError> {
        let child = command.spawn().while_doing(|| format!("start {}", command.get_program().display()))?;
        Ok(ServerProcess { child: Some(child), last_signal })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("only detach takes the child").id()
    }

    /// How the process ended, if it has.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// False when it did not end within `wait`; it then runs on.
    pub(crate) async fn end_with_signal(&mut self, signal: Signal, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        self.send_signal(signal);
        while self.exit_status().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    /// Leaves it running; from now on it is not our child.
    pub(crate) fn detach(mut self) {
        drop(self.child.take());
    }

    /// Also wakes a process that a test has stopped with SIGSTOP, which would otherwise never see its signal.
    fn send_signal(&mut self, signal: Signal) {
        if self.exit_status().is_some() {
            return;
        }
        let Some(pid) = self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok()).map(Pid::from_raw) else {
            return;
        };
        for signal in [signal, Signal::SIGCONT] {
            if let Err(error) = kill(pid, signal) {
                tracing::warn!(%pid, %signal, %error, "could not signal a private server");
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.child.is_none() {
            return;
        }
        let deadline = std::time::Instant::now() + DROP_WAIT;
        self.send_signal(self.last_signal);
        while self.exit_status().is_none() && std::time::Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        if let Some(child) = &mut self.child {
            // Both do nothing to a child that was reaped above.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
