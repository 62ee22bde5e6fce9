//! Running a job with slots that one job hands over to the next.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use tracing::warn;

use crate::{
    job::{Delivery, JobId},
    outcome::Outcome,
    retry::add_jitter,
    slots::{SlotGrant, SlotNeed},
    store::{EndedSlots, SlotVerdict, Store},
};

/// Delay of a job when Redis cannot be reached.
const UNREACHABLE_DELAY: Duration = Duration::from_secs(1);
const JITTER: f64 = 0.3;

/// Runs `work` with the slots that the job needs. If the slots are not available, breaks with the outcome with which
/// this run must end: the job waits in line until it has them.
///
/// Slots that came with the delivery are used if they match `need`. Otherwise they are exchanged for those of `need`.
///
/// * `work` must end by the grant's [`ends_by`](SlotGrant::ends_by), because another job may have the slots after that.
/// * When `work` ends with any result, its slots are freed at once. `work` must leave nothing open on the other side.
/// * When `work` is aborted (a panic, the job's timeout, a drain whose grace period is over), it keeps the slots until
///   their time ends. Its request may still be in progress on the other side for a moment, although the connection is
///   closed. The job itself does not run again before that time either. A drain never aborts such work if its grace
///   period is longer than the slots last.
/// * If `work` knows that nothing is open, it calls [`mark_closed`](SlotGrant::mark_closed). An abort after that frees
///   the slots, too.
/// * If slots came with a delivery whose run never called this function, they are freed with its result or by the
///   drain.
pub async fn run_with_slots<F, Fut>(
    store: &Store,
    delivery: &Delivery,
    need: &SlotNeed,
    work: F,
) -> ControlFlow<Outcome, Fut::Output>
where
    F: FnOnce(SlotGrant) -> Fut,
    Fut: Future,
{
    // Boxed: otherwise the callers' types would be nested deeper than the compiler's default limit.
    let grant = Box::pin(find_grant(store, delivery, need)).await?;
    let held = HeldSlots { store, job: &delivery.id, grant };
    let answer = work(held.grant.clone()).await;
    held.grant.mark_closed();
    drop(held);
    ControlFlow::Continue(answer)
}

async fn find_grant(store: &Store, delivery: &Delivery, need: &SlotNeed) -> ControlFlow<Outcome, SlotGrant> {
    let asked = match &delivery.slots {
        Some(handed) if handed.fits(need) && handed.begin_use(Instant::now()) => {
            return ControlFlow::Continue(handed.clone());
        }
        // The delivered slots do not fit the need, or they ended while this process was stopped.
        Some(unfit) if unfit.is_unused() => store.exchange_slots(delivery.queue, &delivery.id, unfit, need).await,
        _ => store.acquire_slots(delivery.queue, &delivery.id, need).await,
    };
    match asked {
        Ok(SlotVerdict::Granted(grant)) if grant.begin_use(Instant::now()) => ControlFlow::Continue(grant),
        Ok(SlotVerdict::Granted(over)) => {
            store.release_slots_soon(EndedSlots { job: delivery.id.clone(), grant: over });
            ControlFlow::Break(Outcome::Snooze { delay: Duration::ZERO })
        }
        Ok(SlotVerdict::Busy | SlotVerdict::Closed) => ControlFlow::Break(Outcome::Park(need.clone())),
        Err(error) => {
            warn!(%error, job.id = %delivery.id, "Cannot acquire slots; the job is delayed.");
            ControlFlow::Break(Outcome::Snooze { delay: add_jitter(UNREACHABLE_DELAY, JITTER, rand::random()) })
        }
    }
}

/// Slots that are freed when this is dropped, if nothing of the work is still open.
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
