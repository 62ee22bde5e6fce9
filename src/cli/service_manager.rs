//! What systemd is told of a process that it started with `Type=notify`: that it serves, that it ends and, where it has a
//! watchdog, that it lives. Elsewhere (no `NOTIFY_SOCKET`) nothing is told.

use std::time::Duration;

use app::App;
use foundation::db::readiness::PostgresState;
use sd_notify::NotifyState;

/// Tells systemd that the process serves, and from then on that it lives, twice within the time of its watchdog.
pub(super) fn report_serving(app: &App) {
    send_state(NotifyState::Ready);
    if let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) {
        tokio::spawn(feed_watchdog(app.clone(), limit / 2));
    }
}

/// Tells systemd that the process lets running work end.
pub(super) fn report_stopping() {
    send_state(NotifyState::Stopping);
}

/// Until the end of the process, the time in which running work ends included. A loop that waited for a server which has just come
/// back turns soon: so one that stands still is looked at more often.
async fn feed_watchdog(app: App, every: Duration) {
    loop {
        if is_sound(&app).await {
            send_state(NotifyState::Watchdog);
            tokio::time::sleep(every).await;
        } else {
            tracing::error!(
                "A background loop stands still though both servers answer: systemd's watchdog is not fed."
            );
            tokio::time::sleep(every / 4).await;
        }
    }
}

async fn is_sound(app: &App) -> bool {
    if !app.core.loops.has_stuck_loop() {
        return true;
    }
    let (postgres, redis) = tokio::join!(app.core.readiness.postgres_state(), app.core.store.ping());
    is_excused(postgres, redis.is_ok())
}

/// Returns whether a loop that stands still is no fault of this process, so that a new one would do no better: a server that it may
/// wait for does not answer. A Postgres that answers and takes no writes keeps no loop waiting.
fn is_excused(postgres: PostgresState, redis_answers: bool) -> bool {
    postgres == PostgresState::Unreachable || !redis_answers
}

fn send_state(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd could not be told how this process is.");
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
