//! Requirement: docs/requirements/job-id-retrieval.md.
//!
//! `cancel-booking:{order}:{n}`: cancels a booking that is no longer wanted, and retries until the partner confirms the
//! cancellation.
//!
//! If the response to the booking request was lost, the job first sends that request again with the same key, because a
//! booking cannot be cancelled without its id. The partner may be down for hours: the job stays in the queue and asks
//! at most once every 40 s.

use chrono::TimeDelta;
use jobs::CancelBooking;
use model::{
    order::{Booking, BookingState, Snapshot},
    partner::answer::CallError,
};

use model::partner::decide;
use orders::{
    seen::SeenOrder,
    step::{self, Step},
};
use partner::{
    book,
    capability::Partners,
    client::{ConfiguredPartner, http::PartnerCall, throttle::CallOutcome},
    failure,
};
use queue::{Job, Outcome};

pub async fn perform_cancel_booking(partners: Partners, job: CancelBooking) -> Outcome {
    if let Some(delay) = partners.registry.all_open_for() {
        return failure::snooze_while_open(&partners.core, delay);
    }
    let (partners, job) = (&partners, &job);
    step::run_step(&partners.orders, &job.order, &job.id(), |s| async move {
        Ok(Step::Finish(cancel_at_partner(partners, job, &SeenOrder::new(s)).await))
    })
    .await
}

async fn cancel_at_partner(partners: &Partners, job: &CancelBooking, seen: &SeenOrder) -> Outcome {
    let s = seen.snapshot();
    let attempt_no = job.attempt.cast_signed();
    let Some(booking) = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::CancelWanted) else {
        return Outcome::done();
    };
    let Some(partner) = partners.registry.get(&booking.partner) else {
        return failure::snooze_unconfigured(&booking.partner);
    };
    let Some(id) = &booking.booking_id else {
        // If the partner answers with an id, the booking can be cancelled. If it refuses, there is nothing to cancel.
        return book::ask_and_learn(partners, partner, seen, booking, &job.id()).await;
    };
    let called = partner
        .call_throttled(&partners.core.store, &*partners.core.rng, PartnerCall::Cancel, |client| async move {
            client.cancel_booking(id).await
        })
        .await;
    match called {
        CallOutcome::RateLimited { retry_in } => Outcome::Snooze { delay: retry_in },
        // The partner may not yet report a booking that it has just created.
        CallOutcome::Failed(CallError::NotFound) if is_young(s, booking, partner) => {
            record_failed_cancel(partners, seen, job, booking, partner, CallError::NotFound).await
        }
        CallOutcome::Answered(()) | CallOutcome::Failed(CallError::NotFound) => {
            step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
                decide::cancel_confirmed(s, attempt_no)
            })
            .await
        }
        CallOutcome::Failed(CallError::UnderWay(said)) => {
            step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
                decide::cancel_refused(s, attempt_no, &said)
            })
            .await
        }
        CallOutcome::Failed(error) => record_failed_cancel(partners, seen, job, booking, partner, error).await,
    }
}

async fn record_failed_cancel(
    partners: &Partners,
    seen: &SeenOrder,
    job: &CancelBooking,
    booking: &Booking,
    partner: &ConfiguredPartner,
    error: CallError,
) -> Outcome {
    tracing::warn!(order.id = %job.order, attempt = job.attempt, %error, "Cannot cancel a booking yet; the job retries.");
    let pause = failure::retry_pause(partners, partner, &job.order, &error, booking.tries + 1).await;
    step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
        decide::cancel_missed(s, booking.attempt_no, &error, pause)
    })
    .await
}

fn is_young(s: &Snapshot, booking: &Booking, partner: &ConfiguredPartner) -> bool {
    let grace = TimeDelta::from_std(partner.config.poll.not_found_grace).unwrap_or_default();
    s.now < booking.booked_at.unwrap_or(booking.created_at) + grace
}
