//! Running a job under limits that the whole fleet shares.

use std::{convert::Infallible, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::warn;

use crate::{
    outcome::Outcome,
    retry::add_jitter,
    store::{AcquireVerdict, Limit, Permit, Store},
};

/// Delay of a job when Redis cannot be reached. The job could not be settled at the moment either.
const UNREACHABLE_DELAY: Duration = Duration::from_secs(1);

/// Maximum delay of a job under a limit, however slow the limit is. After more than 60 s, a repair would treat the job
/// as lost.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Random share of a delay, so that jobs that were delayed together do not come back together.
const JITTER: f64 = 0.3;

/// Runs `work` within these limits. Snoozes the job when a limit is reached; this spends no try.
///
/// The job keeps the slots while `work` runs, even if its lease is lost. They are released when `work` ends or is
/// aborted, either with the next call for slots of the same limits or within 10 ms. If the process dies, its slots are
/// free 8 s later.
pub async fn run_limited<F, Fut>(store: &Store, limits: &[Limit], work: F) -> Outcome
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Outcome>,
{
    run_within_limits(store, limits, work).await.unwrap_or_else(|delay| Outcome::Snooze { delay })
}

/// Runs `work` within these limits, as [`run_limited`] does. When a limit is reached, returns the time to wait.
pub async fn run_within_limits<F, Fut>(store: &Store, limits: &[Limit], work: F) -> Result<Fut::Output, Duration>
where
    F: FnOnce() -> Fut,
    Fut: Future,
{
    let permit = match store.acquire(limits).await {
        Ok(AcquireVerdict::Permit(permit)) => permit,
        // Jitter only adds to the delay, so that the job never comes back too early.
        Ok(AcquireVerdict::Busy { retry_after }) => {
            return Err(retry_after.min(MAX_DELAY).mul_f64(1.0 + JITTER * rand::random::<f64>()));
        }
        Err(error) => {
            warn!(%error, "Cannot acquire a limit; the job is delayed.");
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

/// A permit that is released when it is dropped, also if the work is aborted.
struct HeldPermit<'a> {
    store: &'a Store,
    permit: Option<Permit>,
}

impl HeldPermit<'_> {
    /// Renews the slots while the work runs. It runs concurrently, because a slow Redis must not slow the work down.
    async fn renew_slots(&self) -> Infallible {
        let mut ticks = interval_at(Instant::now() + Permit::KEEP_EVERY, Permit::KEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(permit) = &self.permit
                && let Err(error) = self.store.keep_slots(permit).await
            {
                warn!(%error, "Cannot renew a slot under a limit; another job may get it too early.");
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
