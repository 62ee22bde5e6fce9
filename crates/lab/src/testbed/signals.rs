//! A run that is interrupted.

use std::future::pending;

use tokio::signal::unix::{SignalKind, signal};

/// Returns the name of the signal that wants us to end.
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
