//! Requirement: docs/requirements/dual-queue.md. Queue: `dispatch-timeout-queue`.
//!
//! `timeout:{order}:{n}`: ends attempt n once its deadline has passed and starts the next, in one transaction.
//!
//! Who is next is read from the offers table, never from a list inside a payload: a driver who went offline or took
//! another order meanwhile is not asked.

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
            return partner::timeout::decide_partner_timeout(partners, job, s).await;
        }
        match candidates::rank_for_order(&partners.orders, &s).await {
            Ok((ranked, policy)) => Step::write_change(decide::time_out_attempt(&s, ranked, &policy), s),
            Err(outcome) => Step::Finish(outcome),
        }
    })
    .await
}
