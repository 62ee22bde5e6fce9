//! Requirement: docs/requirements/dual-queue.md. Queue: `dispatch-queue`.
//!
//! `dispatch:{order}:{n}`: starts attempt n. The job of attempt 1 first starts dispatch of a scheduled order.
//!
//! One transaction writes the offer, its delivery, the event and the attempt's deadline; the timeout follows as a job.
//! If the process dies before the commit, the job runs again and selects candidates again. After the commit, the
//! repeated job is superseded and enqueues the missing timeout. A waiting order for which there is still no driver
//! keeps waiting.

use jobs::DispatchOrder;
use model::{fleet::decide, order::OrderStatus};

use orders::{
    fleet::{candidates, waiting_orders},
    start,
    step::{self, Step},
};
use partner::{book, capability::Partners};
use queue::{Job, Outcome};

pub async fn perform_dispatch(partners: Partners, job: DispatchOrder) -> Outcome {
    let (partners, job) = (&partners, &job);
    step::run_step(&partners.orders, &job.order, &job.id(), |s| async move {
        if s.order.status == OrderStatus::Scheduled {
            return start::start_or_delay(&partners.orders, s).await;
        }
        if s.order.partner.is_some() {
            return Ok(Step::Finish(book::perform_booking(partners, job, s).await));
        }
        if let Some(delay) = waiting_orders::wait_on(&partners.orders, &s).await? {
            return Ok(Step::Finish(Outcome::Snooze { delay }));
        }
        let (ranked, policy) = candidates::rank_for_order(&partners.orders, &s).await?;
        Ok(Step::write(decide::start_attempt(&s, ranked, &policy), s))
    })
    .await
}
