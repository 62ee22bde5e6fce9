//! Notifications to systemd for a process with `Type=notify`: ready, stopping and, with a watchdog, alive. Without
//! `NOTIFY_SOCKET` nothing is sent.

use std::time::Duration;

use app::App;
use foundation::core::Core;
use foundation::db::readiness::PostgresState;
use sd_notify::NotifyState;

/// Notifies systemd that the process is ready. If systemd has a watchdog, feeds it twice per watchdog interval.
pub(super) fn report_serving(app: &App) {
    send_state(NotifyState::Ready);
    if let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) {
        tokio::spawn(feed_watchdog(app.clone(), limit / 2));
    }
}

/// Notifies systemd that the process is stopping and waits for running work.
pub(super) fn report_stopping() {
    send_state(NotifyState::Stopping);
}

/// Feeds the watchdog until the process ends, also while running work finishes. While a loop is stuck it checks four
/// times as often, because a loop that waited for a server recovers soon after the server is back.
async fn feed_watchdog(app: App, every: Duration) {
    loop {
        if is_sound(&app.core).await {
            send_state(NotifyState::Watchdog);
            tokio::time::sleep(every).await;
        } else {
            tracing::error!("A background loop is stuck although both servers answer; systemd's watchdog is not fed.");
            tokio::time::sleep(every / 4).await;
        }
    }
}

async fn is_sound(core: &Core) -> bool {
    if !core.loops.has_stuck_loop() {
        return true;
    }
    let (postgres, redis) = tokio::join!(core.readiness.postgres_state(), core.store.ping());
    is_excused(postgres, redis.is_ok())
}

/// Returns whether a stuck loop is not a fault of this process, so that a restart would not help: a server that the
/// loop may wait for does not answer. A read-only Postgres does answer, so it is not an excuse.
fn is_excused(postgres: PostgresState, redis_answers: bool) -> bool {
    postgres == PostgresState::Unreachable || !redis_answers
}

fn send_state(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "The state of this process could not be sent to systemd.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_loop_is_excused_while_server_is_unreachable() {
        use PostgresState::{ReadOnly, Unreachable, Writable};
        let cases = [
            (Writable, true, false),
            (ReadOnly, true, false),
            (Unreachable, true, true),
            (Writable, false, true),
            (ReadOnly, false, true),
            (Unreachable, false, true),
        ];
        for (postgres, redis_answers, excused) in cases {
            assert_eq!(is_excused(postgres, redis_answers), excused, "{postgres:?}, Redis answers: {redis_answers}");
        }
    }
}
