//! Performing a job with slots that are handed over.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::{
    job::{Delivery, JobId},
    outcome::Outcome,
    retry::add_jitter,
    slots::{SlotGrant, SlotNeed},
    store::{EndedSlots, SlotVerdict, Store},
};

/// How long to wait for a Redis that cannot be asked.
const UNREACHABLE_DELAY: Duration = Duration::from_secs(1);
const JITTER: f64 = 0.3;

/// Runs `work` with the slots that the job needs, or answers the outcome with which this run is to end: the job waits in
/// line until it has them.
///
/// `work` must have ended by the grant's [`ends_by`](SlotGrant::ends_by), for then others may have the slots. They are freed at
/// its end, also when it is aborted, with no wait.
pub async fn run_with_slots<F, Fut>(
    store: &Store,
    delivery: &Delivery,
    need: &SlotNeed,
    work: F,
) -> Result<Fut::Output, Outcome>
where
    F: FnOnce(SlotGrant) -> Fut,
    Fut: Future,
{
    // Boxed: the types of callers would be nested deeper than the compiler follows by default.
    let grant = Box::pin(find_grant(store, delivery, need)).await?;
    let held = HeldSlots { store, job: &delivery.id, grant };
    let answer = work(held.grant.clone()).await;
    drop(held);
    Ok(answer)
}

async fn find_grant(store: &Store, delivery: &Delivery, need: &SlotNeed) -> Result<SlotGrant, Outcome> {
    // What an earlier work of this run gave back, or what ended while this process stood still, holds nothing any more.
    if let Some(handed) = delivery.slots.as_ref().filter(|handed| handed.is_held(Instant::now())) {
        return Ok(handed.clone());
    }
    match store.acquire_slots(delivery.queue, &delivery.id, need).await {
        Ok(SlotVerdict::Granted(grant)) if grant.is_held(Instant::now()) => Ok(grant),
        Ok(SlotVerdict::Granted(over)) => {
            store.release_slots_soon(EndedSlots { job: delivery.id.clone(), grant: over });
            Err(Outcome::Snooze { delay: Duration::ZERO })
        }
        Ok(SlotVerdict::Busy | SlotVerdict::Closed) => Err(Outcome::Park(need.clone())),
        Err(error) => {
            warn!(%error, job.id = %delivery.id, "Slots could not be asked for; the job waits.");
            Err(Outcome::Snooze { delay: add_jitter(UNREACHABLE_DELAY, JITTER, rand::random()) })
        }
    }
}

/// Slots that are freed even if the work is aborted.
struct HeldSlots<'a> {
    store: &'a Store,
    job: &'a JobId,
    grant: SlotGrant,
}

impl Drop for HeldSlots<'_> {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            self.store.release_slots_soon(EndedSlots { job: self.job.clone(), grant: self.grant.clone() });
        }
    }
}
