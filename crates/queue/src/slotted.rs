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
/// Slots that came with the delivery are used if they are those of `need`; others are given up for them.
///
/// What holds of them:
/// * `work` must have ended by the grant's [`ends_by`](SlotGrant::ends_by), for then others may have the slots.
/// * When `work` ends, with whatever answer, they are freed, with no wait. It must leave nothing open on the other side.
/// * When `work` is aborted (a panic, the job's timeout, a drain whose grace is over), they stay until they end by their time: what
///   it asked of others may still be under way there for a moment, although its connection is closed. The job itself
///   waits for that, too. A drain that waits for longer than slots are held aborts none.
/// * Work that knows better says so: from [`mark_closed`](SlotGrant::mark_closed) on an abort frees them, too.
/// * Slots that came with a delivery whose run never got here are freed with its result, or by the drain.
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
    held.grant.mark_closed();
    drop(held);
    Ok(answer)
}

async fn find_grant(store: &Store, delivery: &Delivery, need: &SlotNeed) -> Result<SlotGrant, Outcome> {
    let asked = match &delivery.slots {
        Some(handed) if handed.fits(need) && handed.begin_use(Instant::now()) => return Ok(handed.clone()),
        // Others than the job needs now, or ended while this process stood still.
        Some(unfit) if unfit.is_unused() => store.exchange_slots(delivery.queue, &delivery.id, unfit, need).await,
        _ => store.acquire_slots(delivery.queue, &delivery.id, need).await,
    };
    match asked {
        Ok(SlotVerdict::Granted(grant)) if grant.begin_use(Instant::now()) => Ok(grant),
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

/// Slots that are freed if nothing of the work is open, be it aborted or not.
struct HeldSlots<'a> {
    store: &'a Store,
    job: &'a JobId,
    grant: SlotGrant,
}

impl Drop for HeldSlots<'_> {
    fn drop(&mut self) {
        if self.grant.is_closed() && tokio::runtime::Handle::try_current().is_ok() {
            self.store.release_slots_soon(EndedSlots { job: self.job.clone(), grant: self.grant.clone() });
        }
    }
}
