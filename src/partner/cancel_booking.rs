//! `cancel-booking:{order}:{n}`: cancels a booking that is no longer wanted, until the partner confirms it.
//!
//! A booking whose answer was lost is first asked for again under its key: what has no id cannot be cancelled. The partner
//! may be down for hours: the job stays, and asks at most every 40 s.

use jobs::CancelBooking;
use workers::{Job, Outcome, retry::jittered};

use super::{
    book,
    client::{Call, CallError},
    decide, failure,
};
use crate::{
    app::App,
    orders::{BookingState, Snapshot},
    worker::step,
};

pub async fn perform(app: App, job: CancelBooking) -> Outcome {
    if let Some(delay) = app.partners.all_open_for() {
        return Outcome::Snooze { delay: jittered(delay, 0.2, rand::random()) };
    }
    let (app, job) = (&app, &job);
    step::run(app, &job.order, &job.id(), |s| async move { Err(cancel(app, job, &s).await) }).await
}

async fn cancel(app: &App, job: &CancelBooking, s: &Snapshot) -> Outcome {
    let attempt_no = job.attempt.cast_signed();
    let Some(booking) = s.booking(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Outcome::done();
    };
    let Some(partner) = app.partners.get(&booking.partner) else { return failure::not_configured(&booking.partner) };
    let Some(id) = &booking.booking_id else {
        // Its answer, or the partner's no, ends the search for the id; then there is something to cancel, or nothing.
        return book::ask_and_learn(app, partner, s, booking, &job.id()).await;
    };
    let learnt = match partner.call(&app.store, Call::Cancel, |client| async move { client.cancel(id).await }).await {
        Err(delay) => return Outcome::Snooze { delay },
        Ok(learnt) => learnt,
    };
    match learnt {
        Ok(()) | Err(CallError::NotFound) => {
            step::learnt(app, &job.order, &job.id(), |s| decide::cancelled(s, attempt_no)).await
        }
        Err(CallError::UnderWay(said)) => {
            step::learnt(app, &job.order, &job.id(), |s| decide::not_cancelled(s, attempt_no, &said)).await
        }
        Err(error) => {
            tracing::warn!(order.id = %job.order, attempt = job.attempt, %error, "A booking could not be cancelled; again soon.");
            let pause = failure::pause(app, partner, &job.order, &error, booking.tries + 1).await;
            step::learnt(app, &job.order, &job.id(), |s| decide::not_answered(s, attempt_no, &error.to_string(), pause))
                .await
        }
    }
}
