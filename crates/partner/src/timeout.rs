//! `timeout:{order}:{n}` for a partner's order: runs when the attempt's time is over.
//!
//! The callback that names the driver may have been lost, and an order must not go to two drivers. The partner is
//! therefore queried once more before the booking is abandoned. If the query fails, the booking is kept, even if there
//! is another partner. The order's lifetime bounds this wait.

use jobs::ExpireAttempt;
use model::{order::Snapshot, partner::answer::CallError};

use super::failure;
use crate::{
    capability::Partners,
    client::{http::PartnerCall, settings::partner_rules, throttle::CallOutcome},
};
use areas::admission::check;
use model::partner::{decide, observation::Observation};
use orders::{
    seen::SeenOrder,
    step::{self, Step},
};
use queue::{Job, Outcome};

pub async fn decide_partner_timeout(partners: &Partners, job: &ExpireAttempt, s: Snapshot) -> Step {
    let seen = SeenOrder::new(s);
    let s = seen.snapshot();
    let booked = s.live_booking().map(|booking| booking.partner.clone());
    let name = booked.or_else(|| s.order.partner.clone()).unwrap_or_default();
    let Some(partner) = partners.registry.get(&name) else { return Step::Finish(failure::snooze_unconfigured(&name)) };
    let policy = check::policy_for_pause(&partners.orders.areas, &s.order).await;
    let rules = partner_rules(&policy, partner);
    let Some((booking, booking_id)) = s.live_booking().and_then(|b| Some((b, b.booking_id.as_deref()?))) else {
        return Step::write(decide::attempt_timed_out(s, rules), seen.into_snapshot());
    };
    let called = partner
        .call_throttled(&partners.core.store, &*partners.core.rng, PartnerCall::JobStatus, |client| async move {
            client.job_status(booking_id).await
        })
        .await;
    let delay = match called {
        CallOutcome::Answered(status) => {
            let observation = Observation::from_answer(booking.attempt_no, status);
            let recorded = step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
                decide::attempt_timed_out_unless(s, &observation, rules)
            })
            .await;
            return Step::Finish(recorded);
        }
        CallOutcome::Failed(CallError::NotFound) => {
            return Step::write(decide::attempt_timed_out(s, rules), seen.into_snapshot());
        }
        CallOutcome::Failed(error) => failure::retry_pause(partners, partner, &job.order, &error, 1).await,
        CallOutcome::RateLimited { retry_in } => retry_in,
    };
    Step::Finish(Outcome::Snooze { delay })
}
