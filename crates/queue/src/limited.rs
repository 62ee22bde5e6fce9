//! Performing a job under limits that the whole fleet shares.

use std::{convert::Infallible, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::warn;

use crate::{
    outcome::Outcome,
    retry::add_jitter,
    store::{AcquireVerdict, Limit, Permit, Store},
};

/// How long to wait for a Redis that cannot be asked. Its jobs could not be settled now anyway.
const UNREACHABLE_DELAY: Duration = Duration::from_secs(1);

/// A job is not put off for longer than this, be the limit ever so slow: beyond 60 s a repair takes it for lost time.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Share of a delay that is random, so that those who were turned away together do not come back together.
const JITTER: f64 = 0.3;

/// Runs `work` within these limits, or snoozes the job, no try spent, when one of them is reached.
///
/// Its slots are kept for as long as `work` runs, whatever becomes of the job's lease, and given back at its end, also
/// when it is aborted: with the next call for slots of the same limits, or within 10 ms. A process that dies gives them back 8 s later.
pub async fn run_limited<F, Fut>(store: &Store, limits: &[Limit], work: F) -> Outcome
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Outcome>,
{
    run_within_limits(store, limits, work).await.unwrap_or_else(|delay| Outcome::Snooze { delay })
}

/// Runs `work` within these limits, as [`run_limited`] does, or answers when to come back.
pub async fn run_within_limits<F, Fut>(store: &Store, limits: &[Limit], work: F) -> Result<Fut::Output, Duration>
where
    F: FnOnce() -> Fut,
    Fut: Future,
{
    let permit = match store.acquire(limits).await {
        Ok(AcquireVerdict::Permit(permit)) => permit,
        // Later than told and never earlier: jitter goes upwards only.
        Ok(AcquireVerdict::Busy { retry_after }) => {
            return Err(retry_after.min(MAX_DELAY).mul_f64(1.0 + JITTER * rand::random::<f64>()));
        }
        Err(error) => {
            warn!(%error, "A limit could not be asked for; its work waits.");
            return Err(add_jitter(UNREACHABLE_DELAY, JITTER, rand::random()));
        }
    };
    let held = HeldPermit { store, permit: Some(permit) };
    let outcome = tokio::select! {
        outcome = work() => outcome,
        never = held.renew_slots() => match never {},
    };
    Ok(outcome)
}

/// A permit that is given back when the work has ended, even if it is aborted.
struct HeldPermit<'a> {
    store: &'a Store,
    permit: Option<Permit>,
}

impl HeldPermit<'_> {
    /// Beside the work, not between its steps: a slow Redis must not slow it down.
    async fn renew_slots(&self) -> Infallible {
        let mut ticks = interval_at(Instant::now() + Permit::KEEP_EVERY, Permit::KEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(permit) = &self.permit
                && let Err(error) = self.store.keep_slots(permit).await
            {
                warn!(%error, "A slot under a limit could not be kept; another job may get it too early.");
            }
        }
    }
}

impl Drop for HeldPermit<'_> {
    fn drop(&mut self) {
        if let (Some(permit), Ok(_)) = (self.permit.take(), tokio::runtime::Handle::try_current()) {
            self.store.give_back_soon(permit);
        }
    }
}
