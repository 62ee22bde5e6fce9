//! SIGTERM and Ctrl-C stop a process gracefully. The second signal stops it immediately.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::service_manager;

/// Returns a token that the first signal cancels.
pub(super) fn stop_token() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("Stopping: running work may finish. A second signal ends the process immediately.");
        service_manager::report_stopping();
        token.cancel();
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        std::process::exit(130);
    });
    Ok(stop)
}
