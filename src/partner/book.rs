//! `dispatch:{order}:{n}` of a partner's order: books attempt n.
//!
//! The booking is written down before the partner is asked, and asked for under its own key: if the process dies between
//! request and answer, the repeated job asks under the same key, and the partner answers the same booking. The job stays
//! derived until the answer is written. While the partner is left alone no attempt begins.

use jobs::Dispatch;
use workers::{Job, Outcome};

use super::{
    Partner, backoff,
    client::{Call, CallError},
    decide, failure,
    settings::{self, rules},
};
use crate::{
    app::App,
    orders::{
        Booking, Snapshot,
        store::{self, ApplyError},
    },
    worker::step,
};

pub(crate) async fn perform(app: &App, job: &Dispatch, s: &Snapshot, partner: &str) -> Outcome {
    let Some(partner) = app.partners.get(partner) else { return failure::not_configured(partner) };
    let attempt_no = job.attempt.cast_signed();
    let (s, booking) = match intent(app, s, attempt_no, partner).await {
        Ok(intent) => intent,
        Err(outcome) => return outcome,
    };
    match ask(app, partner, &s, &booking).await {
        Ok(Ok(booking_id)) => {
            let percent = settings::polling_percent(app, partner).await;
            let poll = backoff::is_polled(&job.order, percent);
            let policy = app.config.policy(&s.order.service_type);
            let rules = rules(&policy, partner);
            step::learnt(app, &job.order, &job.id(), |s| decide::booked(s, attempt_no, &booking_id, poll, rules)).await
        }
        Ok(Err(error @ (CallError::Refused(_) | CallError::NotFound | CallError::UnderWay(_)))) => {
            tracing::warn!(order.id = %job.order, attempt = job.attempt, %error, "The partner will not take a booking.");
            let policy = app.config.policy(&s.order.service_type);
            let rules = rules(&policy, partner);
            step::learnt(app, &job.order, &job.id(), |s| decide::refused(s, attempt_no, &error.to_string(), rules))
                .await
        }
        Ok(Err(error)) => {
            let pause = failure::pause(app, partner, &job.order, &error, booking.tries + 1).await;
            step::learnt(app, &job.order, &job.id(), |s| decide::not_answered(s, attempt_no, &error.to_string(), pause))
                .await
        }
        Err(delay) => Outcome::Snooze { delay },
    }
}

/// Books, or finds out what was booked: the same call.
pub(super) async fn ask(
    app: &App,
    partner: &Partner,
    s: &Snapshot,
    booking: &Booking,
) -> Result<Result<String, CallError>, std::time::Duration> {
    partner.call(&app.store, Call::Book, |client| async move { client.book(&s.order, booking).await }).await
}

/// The booking of this attempt, written down now if it was not before.
async fn intent(app: &App, s: &Snapshot, attempt_no: i32, partner: &Partner) -> Result<(Snapshot, Booking), Outcome> {
    if let Some(booking) = s.booking(attempt_no) {
        return Ok((s.clone(), booking.clone()));
    }
    let open_for = partner.known_open_for();
    if !open_for.is_zero() {
        return Err(Outcome::Snooze { delay: open_for });
    }
    match store::apply(&app.db, &app.config.notifications, s, decide::start(s, &partner.name)).await {
        Ok(after) => {
            let booking = after.booking(attempt_no).cloned();
            booking.map(|b| (after, b)).ok_or_else(|| Outcome::Retry("the booking was not written".to_owned()))
        }
        // Somebody was quicker; look again.
        Err(ApplyError::Conflict) => Err(Outcome::Snooze { delay: std::time::Duration::ZERO }),
        Err(ApplyError::Refused(refusal)) => Err(Outcome::Retry(refusal.to_string())),
        Err(ApplyError::Database(e)) => Err(step::database_failed(&e)),
    }
}
