//! Requirement: docs/requirements/dual-queue.md. Queue: `dispatch-timeout-queue`.
//!
//! `timeout:{order}:{n}`: ends attempt n after its deadline and starts the next one, in one transaction.
//!
//! The drivers are ranked again (`rank_for_order`) and do not come from a payload, so a driver that has gone offline or
//! taken another order gets no offer.

use jobs::ExpireAttempt;
use model::fleet::decide;

use orders::{
    fleet::candidates,
    step::{self, Step},
};
use partner::capability::Partners;
use queue::{Job, Outcome};

pub async fn perform_timeout(partners: Partners, job: ExpireAttempt) -> Outcome {
    let (partners, job) = (&partners, &job);
    step::run_step(&partners.orders, &job.order, &job.id(), |s| async move {
        if s.order.partner.is_some() {
            return Ok(partner::timeout::decide_partner_timeout(partners, job, s).await);
        }
        let (ranked, policy) = candidates::rank_for_order(&partners.orders, &s).await?;
        Ok(Step::write(decide::time_out_attempt(&s, ranked, &policy), s))
    })
    .await
}
