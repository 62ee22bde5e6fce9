//! Signals that interrupt a run, and signals to processes of a run.

use std::{future::pending, process::Command};

use anyhow::ensure;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for a signal that ends the run. Returns its name.
pub(crate) async fn wait_for_interrupt() -> &'static str {
    let (Ok(mut term), Ok(mut hup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else {
        return pending().await;
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => "Ctrl-C",
        Some(()) = term.recv() => "SIGTERM",
        Some(()) = hup.recv() => "SIGHUP",
    }
}

/// Sends a signal such as `STOP` to processes. The standard library can only send SIGKILL, so the shell's `kill` sends
/// it.
pub(crate) fn send_signal(name: &str, pids: impl IntoIterator<Item = u32>) -> anyhow::Result<()> {
    let pids: Vec<String> = pids.into_iter().map(|pid| pid.to_string()).collect();
    let script = "signal=$1; shift; kill \"-$signal\" \"$@\"";
    let sent = Command::new("/bin/sh").args(["-c", script, "kill", name]).args(&pids).status()?;
    ensure!(sent.success(), "SIG{name} could not be sent to the processes {}", pids.join(", "));
    Ok(())
}
