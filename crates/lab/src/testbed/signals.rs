//! Signals that interrupt a run.

use std::future::pending;

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
