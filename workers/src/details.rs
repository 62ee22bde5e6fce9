//! `details:{order}:{n}`: sends changed places and the contact of a booking to a partner whose API has the call.
//!
//! The call contains all current values, so it may be repeated. The contact is sent only after the partner has confirmed
//! the booking with a job id. If the order changes during the call, the row asks for another one.

use chrono::{DateTime, Utc};
use jobs::SendDetails;
use model::{
    decide::contents,
    order::{Booking, BookingState},
    partner::{answer::CallError, decide},
};

use orders::{
    details::load_contents,
    seen::SeenOrder,
    step::{self, Step},
};
use partner::{
    capability::Partners,
    client::{
        ConfiguredPartner,
        http::{BookingDetails, PartnerCall},
        throttle::CallOutcome,
    },
    failure,
};
use queue::{Job, Outcome};

pub async fn perform_details(partners: Partners, job: SendDetails) -> Outcome {
    if let Some(delay) = partners.registry.all_open_for() {
        return failure::snooze_while_open(&partners.core, delay);
    }
    let (partners, job) = (&partners, &job);
    step::run_step(&partners.orders, &job.order, &job.id(), |s| async move {
        send_details(partners, job, &SeenOrder::new(s)).await.map(Step::Finish)
    })
    .await
}

async fn send_details(partners: &Partners, job: &SendDetails, seen: &SeenOrder) -> Result<Outcome, sqlx::Error> {
    let s = seen.snapshot();
    let attempt_no = job.attempt.cast_signed();
    let booking = s.booking_of_attempt(attempt_no).filter(|b| b.state == BookingState::Booked);
    let Some((booking, due)) = booking.and_then(|b| Some((b, b.next_try_at?))) else { return Ok(Outcome::done()) };
    let Some(partner) = partners.registry.get(&booking.partner) else {
        return Ok(failure::snooze_unconfigured(&booking.partner));
    };
    let record_sent = || async {
        step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
            decide::details_sent(s, attempt_no, due)
        })
        .await
    };
    // After the pickup the driver needs nothing more.
    let is_wanted = partner.config.details && contents::check_changeable(&s.order).is_ok();
    let Some(id) = booking.booking_id.as_deref().filter(|_| is_wanted) else { return Ok(record_sent().await) };
    let stored = load_contents(&partners.core.db, &s.order).await?;
    let is_unchanged = stored.version == 0;
    let details = BookingDetails::new(stored.contents, booking.job_id.is_some());
    if is_unchanged && details.contact.is_none() {
        return Ok(record_sent().await);
    }
    let called = partner
        .call_throttled(&partners.core.store, &*partners.core.rng, PartnerCall::Details, |client| async move {
            client.send_details(id, &details).await
        })
        .await;
    Ok(match called {
        CallOutcome::RateLimited { retry_in } => Outcome::Snooze { delay: retry_in },
        CallOutcome::Answered(()) => record_sent().await,
        CallOutcome::Failed(error) => record_failure(partners, partner, seen, job, (booking, due), error).await,
    })
}

async fn record_failure(
    partners: &Partners,
    partner: &ConfiguredPartner,
    seen: &SeenOrder,
    job: &SendDetails,
    (booking, due): (&Booking, DateTime<Utc>),
    error: CallError,
) -> Outcome {
    tracing::warn!(order.id = %job.order, attempt = job.attempt, %error, "A partner did not take the contents of a booking.");
    let attempt_no = booking.attempt_no;
    if matches!(error, CallError::Refused(_) | CallError::NotFound | CallError::UnderWay(_)) {
        return step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
            decide::details_refused(s, attempt_no, due, &error)
        })
        .await;
    }
    let pause = failure::retry_pause(partners, partner, &job.order, &error, booking.tries + 1).await;
    step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
        decide::details_missed(s, attempt_no, due, pause)
    })
    .await
}
