//! `timeout:{order}:{n}` of a partner's order: the attempt's time is over.
//!
//! The callback about a driver may be lost like any other, and an order must not go to two drivers: before the booking is
//! given up the partner is asked once more. While it cannot be asked, nothing is given up; there is no other partner to book
//! with anyway, and the lifetime bounds the wait.

use jobs::Timeout;
use workers::{Job, Outcome};

use super::{
    client::{Call, CallError},
    decide, failure,
    observation::Observation,
    settings::rules,
};
use crate::{
    app::App,
    orders::{Change, Snapshot},
    worker::step,
};

pub(crate) async fn perform(app: &App, job: &Timeout, s: &Snapshot, partner: &str) -> Result<Change, Outcome> {
    let Some(partner) = app.partners.get(partner) else { return Err(failure::not_configured(partner)) };
    let policy = app.policy(&s.order);
    let rules = rules(&policy, partner);
    let Some((booking, booking_id)) = s.live_booking().and_then(|b| Some((b, b.booking_id.as_deref()?))) else {
        return Ok(decide::timeout(s, rules));
    };
    let answer =
        partner.call(&app.store, Call::JobStatus, |client| async move { client.job_status(booking_id).await }).await;
    match answer.map_err(|delay| Outcome::Snooze { delay })? {
        Ok(status) => {
            let observation = Observation::of_answer(booking.attempt_no, status);
            Err(step::record_result(app, &job.order, &job.id(), |s| decide::timeout_unless(s, &observation, rules))
                .await)
        }
        Err(CallError::NotFound) => Ok(decide::timeout(s, rules)),
        Err(error) => {
            let delay = failure::pause(app, partner, &job.order, &error, 1).await;
            Err(Outcome::Snooze { delay })
        }
    }
}
