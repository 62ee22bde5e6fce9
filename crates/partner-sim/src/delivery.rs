//! Sends callbacks, and retries them until the receiver accepts them.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP};

use super::{
    callbacks::{CallbackOrigin, QueuedCallback},
    core::SimulationCore,
    timers::DueAction,
};

/// Maximum attempts for a callback.
const TRIES: u32 = 6;
/// Pause before the second attempt, in simulated time. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of waiting callbacks. Above it, callbacks are dropped immediately.
const MOST_WAITING: usize = 100_000;

/// Sends callbacks one after another when a slot is free.
pub(super) fn send_callbacks(core: &Arc<SimulationCore>, callbacks: Vec<QueuedCallback>) {
    if core.callbacks.len() >= MOST_WAITING {
        core.lock_state().counters.callbacks_given_up += callbacks.len() as u64;
        return;
    }
    let core = core.clone();
    core.callbacks.clone().spawn(async move {
        let deliveries = async {
            let Ok(_turn) = core.callback_turns.acquire().await else { return };
            for callback in callbacks {
                deliver_callback(&core, callback).await;
            }
        };
        core.stop.run_until_cancelled(deliveries).await;
    });
}

async fn deliver_callback(core: &SimulationCore, mut callback: QueuedCallback) {
    let Some(url) = core.current_knobs().callback_url.clone() else { return };
    callback.tries += 1;
    let taken = match post_callback(core, &url, &callback).await {
        Ok(status) => status.is_success(),
        Err(error) => {
            tracing::debug!(error = %error.without_url(), "A callback was not accepted.");
            false
        }
    };
    let counters = &mut core.lock_state().counters;
    match (&callback.kind, taken) {
        (CallbackOrigin::Genuine { doubled, foreign }, true) => {
            counters.callbacks_sent += 1;
            if let Some(later) = doubled {
                core.schedule_after(
                    *later,
                    DueAction::Send(vec![QueuedCallback { kind: CallbackOrigin::Doubled, ..callback.clone() }]),
                );
            }
            if let Some((later, foreign)) = foreign {
                core.schedule_after(*later, DueAction::Send(vec![*foreign.clone()]));
            }
        }
        (CallbackOrigin::Genuine { .. }, false) => {
            counters.callbacks_refused += 1;
            if callback.tries < TRIES {
                core.schedule_after(FIRST_PAUSE * 2_u32.pow(callback.tries - 1), DueAction::Send(vec![callback]));
            } else {
                counters.callbacks_given_up += 1;
            }
        }
        (CallbackOrigin::Doubled, _) => counters.callbacks_doubled += 1,
        (CallbackOrigin::Wrong | CallbackOrigin::Forged, taken) => {
            counters.callbacks_wrong += 1;
            counters.callbacks_wrong_taken += u64::from(taken);
        }
    }
}

async fn post_callback(
    core: &SimulationCore,
    url: &str,
    callback: &QueuedCallback,
) -> Result<reqwest::StatusCode, reqwest::Error> {
    let timestamp = Utc::now().timestamp();
    let signer = if matches!(callback.kind, CallbackOrigin::Forged) { &core.forger } else { &core.signer };
    let signature = signer.sign(&callback.event_id, timestamp, callback.body.as_bytes()).unwrap_or_default();
    let answer = core
        .client
        .post(url)
        .header("content-type", "application/json")
        .header(HEADER_WEBHOOK_ID, &callback.event_id)
        .header(HEADER_WEBHOOK_TIMESTAMP, timestamp)
        .header(HEADER_WEBHOOK_SIGNATURE, signature)
        .body(callback.body.clone())
        .send()
        .await?;
    let status = answer.status();
    // Reading the body to its end allows the connection to be reused.
    answer.bytes().await?;
    Ok(status)
}
