//! SIGTERM and Ctrl-C end a process in good order; the second one at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::service_manager;

/// A token that the first signal cancels.
pub(super) fn stop_token() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("Told to stop: running work may finish. A second signal ends it at once.");
        service_manager::report_stopping();
        token.cancel();
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        std::process::exit(130);
    });
    Ok(stop)
}
