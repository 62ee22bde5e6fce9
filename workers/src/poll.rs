//! Requirement: docs/requirements/job-id-retrieval.md. Queue: `jobid-poll-queue`.
//!
//! `poll:{order}:{k}`: sends the partner the k-th request for the state of the current booking.
//!
//! Each job sends one request. An answer without news schedules the next poll; any other answer is handled like a
//! callback. If the process dies after the answer, the request is sent again.

use chrono::TimeDelta;
use jobs::PollPartner;
use model::{
    decide::Decision,
    order::{Booking, OrderStatus, Snapshot},
    partner::answer::CallError,
};

use areas::admission::check;
use model::partner::{
    backoff, decide,
    observation::{BookingPhase, Observation},
};
use orders::{
    retrieval_log,
    seen::SeenOrder,
    step::{self, Step},
};
use partner::{
    capability::Partners,
    client::{http::PartnerCall, settings::partner_rules, throttle::CallOutcome},
    failure,
};
use queue::{Job, Outcome, retry::add_jitter};

pub async fn perform_poll(partners: Partners, job: PollPartner) -> Outcome {
    // While the breakers of all partners are open, the job is snoozed without reading the row.
    if let Some(delay) = partners.registry.all_open_for() {
        return failure::snooze_while_open(&partners.core, delay);
    }
    let (partners, job) = (&partners, &job);
    step::run_step(&partners.orders, &job.order, &job.id(), |s| async move {
        Ok(Step::Finish(ask_partner(partners, job, &SeenOrder::new(s)).await))
    })
    .await
}

async fn ask_partner(partners: &Partners, job: &PollPartner, seen: &SeenOrder) -> Outcome {
    let s = seen.snapshot();
    let Some((booking, booking_id)) = s.live_booking().and_then(|b| Some((b, b.booking_id.as_deref()?))) else {
        return Outcome::Dead("the order must be polled but has no booking".to_owned());
    };
    let Some(partner) = partners.registry.get(&booking.partner) else {
        return failure::snooze_unconfigured(&booking.partner);
    };
    let called = partner
        .call_throttled(&partners.core.store, &*partners.core.rng, PartnerCall::JobStatus, |client| async move {
            client.job_status(booking_id).await
        })
        .await;
    let polls = job.number.cast_signed();
    let attempt_no = booking.attempt_no;
    let policy = check::policy_for_pause(&partners.orders.areas, &s.order).await;
    let rules = partner_rules(&policy, partner);
    let pause = next_pause(s, polls, rules, partners.core.rng.next_unit());
    let is_awaited = s.order.status == OrderStatus::PendingJobId;
    let error = match called {
        CallOutcome::RateLimited { retry_in } => return Outcome::Snooze { delay: retry_in },
        CallOutcome::Answered(status) => {
            let observation = Observation::from_answer(attempt_no, status);
            if is_awaited && observation.job_id.is_none() && observation.phase == BookingPhase::Searching {
                retrieval_log::log_retry(s, booking, polls, "the job id is not assigned yet");
            }
            return step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
                decide::poll_answered(s, &observation, polls, pause, rules)
            })
            .await;
        }
        CallOutcome::Failed(error) => error,
    };
    if error == CallError::NotFound && is_past_grace(s, booking, rules) {
        tracing::warn!(order.id = %job.order, booking.id = booking_id, "The partner no longer knows a booking.");
        return step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
            match decide::booking_not_found(s, attempt_no, rules) {
                Decision::Unchanged => decide::poll_without_news(s, attempt_no, polls, pause, rules),
                decision => decision,
            }
        })
        .await;
    }
    if is_awaited {
        retrieval_log::log_retry(s, booking, polls, &error.to_string());
    } else {
        tracing::debug!(order.id = %job.order, poll = polls, %error, "A poll failed.");
    }
    let pause = pause.max(failure::retry_pause(partners, partner, &job.order, &error, 1).await);
    step::record_answer(&partners.orders, seen.id(), seen.basis(), &job.id(), |s| {
        decide::poll_without_news(s, attempt_no, polls, pause, rules)
    })
    .await
}

/// Returns the pause before the next poll. `random` is in 0..1.
fn next_pause(s: &Snapshot, polls: i32, rules: decide::PartnerRules, random: f64) -> std::time::Duration {
    if s.order.status.occupies_driver() {
        return add_jitter(rules.poll.follow, rules.poll.jitter, random);
    }
    backoff::poll_pause(rules.poll, polls, random)
}

fn is_past_grace(s: &Snapshot, booking: &Booking, rules: decide::PartnerRules) -> bool {
    let booked_at = booking.booked_at.unwrap_or(booking.created_at);
    s.now >= booked_at + TimeDelta::from_std(rules.poll.not_found_grace).unwrap_or_default()
}
