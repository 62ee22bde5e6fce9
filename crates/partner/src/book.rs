//! `dispatch:{order}:{n}` for a partner's order: books attempt n.
//!
//! The booking is stored before the partner is called, and has its own idempotency key. If the process dies between
//! request and response, the repeated job sends the same key, and the partner returns the same booking. The job remains
//! required until the response is stored. The partner is chosen when the booking is stored and does not change
//! afterwards. An attempt never starts at a partner whose breaker is open.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use jobs::DispatchOrder;
use metrics::counter;
use model::{
    details::OrderPlace,
    ids::PartnerName,
    order::{Booking, BookingState, Order, Snapshot},
    partner::{
        answer::CallError,
        choice::{self, ListedPartner, PartnerChoice},
    },
};

use super::failure;
use crate::{
    capability::Partners,
    client::{
        ConfiguredPartner,
        http::{BookingPlaces, PartnerCall},
        settings::{self, partner_rules},
        throttle::CallOutcome,
    },
};
use areas::admission::check;
use foundation::{crash, db};
use model::partner::{backoff, decide};
use orders::{
    change::decided,
    details, retrieval_log,
    seen::{Basis, SeenOrder},
    step,
};
use queue::{Job, JobId, Outcome, retry::add_jitter};

/// Interval between checks whether the previous booking has been cancelled.
const CANCEL_PAUSE: Duration = Duration::from_millis(500);
/// Interval between these checks if the order may go to another partner, once the cancellation is late.
const LATE_CANCEL_PAUSE: Duration = Duration::from_secs(5);

pub async fn perform_booking(partners: &Partners, job: &DispatchOrder, s: Snapshot) -> Outcome {
    let (seen, booking) = match write_intent(partners, SeenOrder::new(s), job).await {
        ControlFlow::Continue(intent) => intent,
        ControlFlow::Break(outcome) => return outcome,
    };
    let Some(partner) = partners.registry.get(&booking.partner) else {
        return failure::snooze_unconfigured(&booking.partner);
    };
    ask_and_learn(partners, partner, &seen, &booking, &job.id()).await
}

/// Sends the booking request and stores the result. If the booking already exists, the same request returns it.
pub async fn ask_and_learn(
    partners: &Partners,
    partner: &ConfiguredPartner,
    seen: &SeenOrder,
    booking: &Booking,
    job: &JobId,
) -> Outcome {
    let s = seen.snapshot();
    let (order, attempt_no) = (&s.order.id, booking.attempt_no);
    let places = match load_places(partners, &s.order, attempt_no).await {
        Ok(places) => places,
        Err(error) => return db::database_failed(&*partners.core.rng, &error),
    };
    let (places, policy) = (&places, check::policy_for_pause(&partners.orders.areas, &s.order).await);
    let rules = partner_rules(&policy, partner);
    let pickup_at = s.order.pickup_at.filter(|_| partner.config.lead.is_some());
    let called = partner
        .call_throttled(&partners.core.store, &*partners.core.rng, PartnerCall::Book, |client| async move {
            client.create_booking(&s.order, booking, places, pickup_at).await
        })
        .await;
    match called {
        CallOutcome::RateLimited { retry_in } => Outcome::Snooze { delay: retry_in },
        CallOutcome::Answered(booking_id) => {
            let percent = settings::polling_percent(&partners.orders.rows, partner, s.polling_share.as_ref()).await;
            let poll = backoff::is_polled(order, percent);
            step::record_answer(&partners.orders, seen.id(), seen.basis(), job, |s| {
                decide::booking_succeeded(s, attempt_no, &booking_id, poll, rules)
            })
            .await
        }
        CallOutcome::Failed(error @ (CallError::Refused(_) | CallError::NotFound | CallError::UnderWay(_))) => {
            tracing::warn!(order.id = %order, attempt = attempt_no, %error, "The partner refused a booking.");
            let pause = failure::retry_pause(partners, partner, order, &error, booking.tries + 1).await;
            step::record_answer(&partners.orders, seen.id(), seen.basis(), job, |s| {
                decide::booking_refused(s, attempt_no, &error.to_string(), pause, rules)
            })
            .await
        }
        CallOutcome::Failed(error) => {
            if booking.state.is_unanswered() {
                retrieval_log::log_retry(s, booking, booking.tries.saturating_add(1), &error.to_string());
            }
            let pause = failure::retry_pause(partners, partner, order, &error, booking.tries + 1).await;
            step::record_answer(&partners.orders, seen.id(), seen.basis(), job, |s| {
                decide::booking_unanswered(s, attempt_no, &error.to_string(), pause)
            })
            .await
        }
    }
}

/// Returns the places of the booking request. A repeated request has the places of the first one, although the order may
/// have been changed since. An order without contents needs no statement.
async fn load_places(partners: &Partners, order: &Order, attempt_no: i32) -> Result<BookingPlaces, sqlx::Error> {
    if !order.has_details {
        return Ok(BookingPlaces { pickup: OrderPlace::new(order.pickup(), None), dropoff: None });
    }
    let (sent, contents) = details::load_booked_contents(&partners.core.db, order, attempt_no).await?;
    Ok(sent.and_then(|places| serde_json::from_value(places).ok()).unwrap_or_else(|| contents.into()))
}

/// Chooses the partner of the next attempt. Returns `Break` with the outcome of the job if none can be chosen.
async fn choose_partner(
    partners: &Partners,
    s: &Snapshot,
    listed: &[ListedPartner],
) -> ControlFlow<Outcome, PartnerChoice> {
    let mut left_alone = BTreeMap::<PartnerName, Duration>::new();
    loop {
        let Some(choice) = choice::choose_partner(listed, s, |name| !left_alone.contains_key(name)) else {
            let least = left_alone.into_values().min().unwrap_or(CANCEL_PAUSE);
            return ControlFlow::Break(failure::snooze_while_open(&partners.core, least));
        };
        let Some(partner) = partners.registry.get(&choice.partner) else {
            return ControlFlow::Break(failure::snooze_unconfigured(&choice.partner));
        };
        let open_for = match listed {
            [_] => partner.known_open_for(),
            _ => partner.closed_to_attempts_for(&partners.core.store).await,
        };
        if open_for.is_zero() {
            return ControlFlow::Continue(choice);
        }
        left_alone.insert(choice.partner, open_for);
    }
}

/// Returns the outcome of the job if a previous booking is not confirmed as cancelled. It must be cancelled first, or
/// two drivers may come.
fn pause_for_cancel(partners: &Partners, s: &Snapshot, has_choice: bool) -> Option<Outcome> {
    let unconfirmed = s.bookings.iter().filter(|b| b.state == BookingState::CancelWanted);
    let unconfirmed: Vec<_> = unconfirmed.filter_map(|b| partners.registry.get(&b.partner)).collect();
    // Maximum time after a booking during which its partner may still answer that it does not know the booking.
    let patience = unconfirmed.iter().map(|partner| partner.config.poll.not_found_grace).max().unwrap_or_default();
    if !choice::awaits_cancel(s, has_choice, patience) {
        return None;
    }
    let open_for = unconfirmed.iter().copied().map(ConfiguredPartner::known_open_for).max().unwrap_or_default();
    Some(if open_for.is_zero() {
        let is_late = !choice::awaits_cancel(s, false, patience);
        let pause = if is_late { LATE_CANCEL_PAUSE } else { CANCEL_PAUSE };
        Outcome::Snooze { delay: add_jitter(pause, 0.3, partners.core.rng.next_unit()) }
    } else {
        failure::snooze_while_open(&partners.core, open_for)
    })
}

/// Returns the booking of this attempt. Stores it first if it does not exist. Breaks with the outcome of the job if the
/// booking cannot be stored now.
async fn write_intent(
    partners: &Partners,
    seen: SeenOrder,
    job: &DispatchOrder,
) -> ControlFlow<Outcome, (SeenOrder, Booking)> {
    let attempt_no = job.attempt.cast_signed();
    let s = seen.snapshot();
    if let Some(booking) = s.booking_of_attempt(attempt_no).cloned() {
        return ControlFlow::Continue((seen, booking));
    }
    let listed = partners.config.partners_of_order(&s.order);
    if let Some(pause) = pause_for_cancel(partners, s, listed.len() > 1) {
        return ControlFlow::Break(pause);
    }
    let choice = choose_partner(partners, s, &listed).await?;
    crash::reach_point("intent", "decided");
    let intent = decided(decide::start_attempt(s, &choice));
    let changed = match partners.orders.change(seen.id(), Basis::Seen(Box::new(seen.clone())), intent).await {
        Ok(changed) if changed.is_written() => changed,
        // Another change was written first; try again.
        Ok(_) => return ControlFlow::Break(Outcome::Snooze { delay: Duration::ZERO }),
        Err(error) => {
            return ControlFlow::Break(step::outcome_of_failure(&partners.core, seen.id(), &job.id(), error));
        }
    };
    let after = changed.publish(&partners.orders).await;
    crash::reach_point("intent", "written");
    let labels = [("partner", choice.partner.to_string()), ("reason", choice.reason.as_str().to_owned())];
    counter!("dispatchq_partner_choices_total", &labels).increment(1);
    match after.booking_of_attempt(attempt_no).cloned() {
        Some(booking) => ControlFlow::Continue((seen.changed_to(after), booking)),
        None => ControlFlow::Break(Outcome::Retry("the booking was not written".to_owned())),
    }
}
