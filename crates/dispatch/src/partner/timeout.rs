//! `timeout:{order}:{n}` of a partner's order: the attempt's time is over.
//!
//! The callback about a driver may be lost like any other, and an order must not go to two drivers: before the booking is
//! given up the partner is asked once more. While it cannot be asked, nothing is given up; there is no other partner to book
//! with anyway, and the lifetime bounds the wait.

use jobs::ExpireAttempt;
use workers::{Job, Outcome};

use super::{
    client::{CallError, PartnerCall},
    decide, failure,
    observation::Observation,
    settings::partner_rules,
};
use crate::{
    app::App,
    orders::{Change, Snapshot},
    worker::step,
};

pub(crate) async fn decide_partner_timeout(
    app: &App,
    job: &ExpireAttempt,
    s: &Snapshot,
    partner: &str,
) -> Result<Change, Outcome> {
    let Some(partner) = app.partners.get(partner) else { return Err(failure::snooze_unconfigured(partner)) };
    let policy = app.policy_for_order(&s.order);
    let rules = partner_rules(&policy, partner);
    let Some((booking, booking_id)) = s.live_booking().and_then(|b| Some((b, b.booking_id.as_deref()?))) else {
        return Ok(decide::attempt_timed_out(s, rules));
    };
    let answer = partner
        .call_throttled(&app.store, PartnerCall::JobStatus, |client| async move { client.job_status(booking_id).await })
        .await;
    match answer.map_err(|delay| Outcome::Snooze { delay })? {
        Ok(status) => {
            let observation = Observation::from_answer(booking.attempt_no, status);
            Err(step::record_result(app, &job.order, &job.id(), |s| {
                decide::attempt_timed_out_unless(s, &observation, rules)
            })
            .await)
        }
        Err(CallError::NotFound) => Ok(decide::attempt_timed_out(s, rules)),
        Err(error) => {
            let delay = failure::retry_pause(app, partner, &job.order, &error, 1).await;
            Err(Outcome::Snooze { delay })
        }
    }
}
