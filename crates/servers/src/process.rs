//! One server process, a direct child of this process. Until this process reaps it, no other process can get its pid.
//! So a signal reaches either the started process or none.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::{ServerError, error::IoErrorContext};

const POLL: Duration = Duration::from_millis(5);

/// Time that a dropped server has to end by its own signal before SIGKILL.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// A child process. Dropping it ends and reaps the process.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// The child. `None` only after [`ServerProcess::detach`].
    child: Option<Child>,
    /// Signal that ends the process on drop.
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

    /// Returns the exit status if the process has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Sends a signal and waits for the end of the process. Returns false if the process still runs after `wait`.
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

    /// Leaves the process running without an owner.
    pub(crate) fn detach(mut self) {
        drop(self.child.take());
    }

    /// Sends a signal, and then SIGCONT: a process that a test stopped with SIGSTOP would otherwise never handle the
    /// signal.
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
            // Both calls do nothing if the child was reaped above.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
