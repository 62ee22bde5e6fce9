//! `dispatch:{order}:{n}` of a partner's order: books attempt n.
//!
//! The booking is written down before the partner is asked, and asked for under its own key: if the process dies between
//! request and answer, the repeated job asks under the same key, and the partner answers the same booking. The job stays
//! derived until the answer is written. While the partner is left alone no attempt begins.

use std::time::Duration;

use chrono::TimeDelta;
use jobs::DispatchOrder;
use model::{
    ids::PartnerName,
    order::{Booking, BookingState, Snapshot},
    partner::answer::CallError,
};
use workers::{Job, JobId, Outcome, retry::add_jitter};

use super::{backoff, decide, failure};
use crate::{
    app::App,
    crash, db,
    orders::{commit, step, store::write::ApplyError},
    partner_client::{
        ConfiguredPartner,
        client::PartnerCall,
        settings::{self, partner_rules},
        throttle::CallOutcome,
    },
};

/// How often to look whether the booking before is gone.
const CANCEL_PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn perform_booking(app: &App, job: &DispatchOrder, s: &Snapshot, partner: &PartnerName) -> Outcome {
    let Some(partner) = app.partners.get(partner) else { return failure::snooze_unconfigured(partner) };
    let attempt_no = job.attempt.cast_signed();
    let (s, booking) = match write_intent(app, s, attempt_no, partner).await {
        Ok(intent) => intent,
        Err(outcome) => return outcome,
    };
    ask_and_learn(app, partner, &s, &booking, &job.id()).await
}

/// Books, or finds out what was booked: the same call. What comes of it is written down.
pub(super) async fn ask_and_learn(
    app: &App,
    partner: &ConfiguredPartner,
    s: &Snapshot,
    booking: &Booking,
    job: &JobId,
) -> Outcome {
    let (order, attempt_no) = (&s.order.id, booking.attempt_no);
    let policy = app.policy_for_order(&s.order);
    let rules = partner_rules(&policy, partner);
    let called = partner
        .call_throttled(&app.store, &*app.rng, PartnerCall::Book, |client| async move {
            client.create_booking(&s.order, booking).await
        })
        .await;
    match called {
        CallOutcome::RateLimited { retry_in } => Outcome::Snooze { delay: retry_in },
        CallOutcome::Answered(booking_id) => {
            let percent = settings::polling_percent(&app.db, partner).await;
            let poll = backoff::is_polled(order, percent);
            step::record_result(app, order, job, |s| decide::booking_succeeded(s, attempt_no, &booking_id, poll, rules))
                .await
        }
        CallOutcome::Failed(error @ (CallError::Refused(_) | CallError::NotFound | CallError::UnderWay(_))) => {
            tracing::warn!(order.id = %order, attempt = attempt_no, %error, "The partner will not take a booking.");
            let pause = failure::retry_pause(app, partner, order, &error, booking.tries + 1).await;
            step::record_result(app, order, job, |s| {
                decide::booking_refused(s, attempt_no, &error.to_string(), pause, rules)
            })
            .await
        }
        CallOutcome::Failed(error) => {
            let pause = failure::retry_pause(app, partner, order, &error, booking.tries + 1).await;
            step::record_result(app, order, job, |s| {
                decide::booking_unanswered(s, attempt_no, &error.to_string(), pause)
            })
            .await
        }
    }
}

/// The booking before must be gone first, or two drivers may come; but a partner that does not confirm must not keep the
/// order from being served: it waits as long as a booking may be unknown to the partner, no longer.
fn awaits_cancel(s: &Snapshot, partner: &ConfiguredPartner) -> bool {
    let wanted = s.order.next_attempt_at.unwrap_or(s.now);
    let patience = TimeDelta::from_std(partner.config.poll.not_found_grace).unwrap_or_default();
    s.now < wanted + patience && s.bookings.iter().any(|b| b.state == BookingState::CancelWanted)
}

/// The booking of this attempt, written down now if it was not before.
async fn write_intent(
    app: &App,
    s: &Snapshot,
    attempt_no: i32,
    partner: &ConfiguredPartner,
) -> Result<(Snapshot, Booking), Outcome> {
    if let Some(booking) = s.booking_of_attempt(attempt_no) {
        return Ok((s.clone(), booking.clone()));
    }
    let open_for = partner.known_open_for();
    if !open_for.is_zero() {
        return Err(failure::snooze_while_open(app, open_for));
    }
    if awaits_cancel(s, partner) {
        return Err(Outcome::Snooze { delay: add_jitter(CANCEL_PAUSE, 0.3, app.rng.next_unit()) });
    }
    crash::reach_point("intent", "decided");
    match commit::apply_change(app, s, decide::start_attempt(s, &partner.name)).await {
        Ok(after) => {
            crash::reach_point("intent", "written");
            let booking = after.booking_of_attempt(attempt_no).cloned();
            booking.map(|b| (after, b)).ok_or_else(|| Outcome::Retry("the booking was not written".to_owned()))
        }
        // Another change was quicker; look again.
        Err(ApplyError::Conflict) => Err(Outcome::Snooze { delay: Duration::ZERO }),
        Err(ApplyError::Refused(refusal)) => Err(Outcome::Retry(refusal.to_string())),
        Err(ApplyError::Database(e)) => Err(db::database_failed(&*app.rng, &e)),
    }
}
