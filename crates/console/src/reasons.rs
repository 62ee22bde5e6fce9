//! Values of services as sentences: reasons of orders and bindings, next steps, and refused actions. Free text of
//! people, partners and the history is shown as it is.

use chrono::{DateTime, Utc};
use model::{
    binding::{Binding, BindingPhase, BindingState, CallAction, StopReason},
    order::HoldCause,
    ranking::{ExcludedDriver, ExclusionReason},
};

use crate::{
    catalogue::{Words, fill, tr},
    language::Language,
    shown::{Code, describe_time, sentence},
};
use desk::explain::reason::OrderReason;
use model::{
    decide::OrderRefusal,
    ids::{DriverId, PartnerName},
};

/// Describes the action of an order's job. A job of an unknown kind has no text.
pub(crate) fn describe_job(job: &str) -> &'static str {
    let kind = job.split(':').next().unwrap_or_default();
    crate::catalogue::find_text(Language::current(), &format!("job_action.{kind}")).unwrap_or_default()
}

/// Returns the reason why a nearby driver got no offer.
pub(crate) fn describe_exclusion(excluded: &ExcludedDriver) -> String {
    if !excluded.missing.is_empty() {
        return fill!("exclusion.lacks_labels", labels = excluded.missing.join(", "));
    }
    let why = match excluded.why {
        ExclusionReason::LacksSkill => tr("exclusion.lacks_skill"),
        ExclusionReason::Busy => tr("exclusion.busy"),
        ExclusionReason::EnoughOffers => tr("exclusion.enough_offers"),
        ExclusionReason::HadIt => tr("exclusion.had_it"),
        ExclusionReason::Declined => tr("exclusion.declined"),
        ExclusionReason::Asked => tr("exclusion.asked"),
        ExclusionReason::CoolingDown => tr("exclusion.cooling_down"),
    };
    why.get().to_owned()
}

/// Returns the reason why an order is under review. `reason` is the text of the service or a person, with details that
/// the cause lacks.
pub(crate) fn describe_hold(cause: Option<&HoldCause>, reason: &str) -> String {
    let reason = reason.trim_end_matches('.');
    match cause {
        Some(HoldCause::DeadTimer(job)) => fill!("reasons.held_dead_timer", job),
        Some(HoldCause::UnknownPayment) => fill!("reasons.held_unknown_payment", reason),
        Some(HoldCause::UnwantedTrip) => fill!("reasons.held_unwanted_trip", reason),
        Some(HoldCause::BrokenTrip) => fill!("reasons.held_broken_trip", reason),
        Some(HoldCause::ByHand) => fill!("reasons.held_by_hand", reason),
        Some(HoldCause::Other) | None => fill!("reasons.held", reason),
    }
}

/// Returns the reason why an action on an order was refused, and the button that helps.
pub(crate) fn describe_refusal(refusal: &OrderRefusal) -> String {
    let (assign, cancel) = (tr("common.assign_driver"), tr("common.cancel_order"));
    let release = tr("common.release_from_driver");
    match refusal {
        OrderRefusal::OrderFinished(status) => {
            fill!("reasons.order_closed_so_action", status = Code::of_status(*status).text())
        }
        OrderRefusal::WrongState { status, .. } => {
            fill!("reasons.state_order_not_allow", status = Code::of_status(*status).text())
        }
        OrderRefusal::AlreadyAssigned => fill!("reasons.another_driver_order_use", release),
        OrderRefusal::ReservationInProgress => tr("reasons.another_driver_accepting_order").into(),
        OrderRefusal::NoSuchDriver => tr("reasons.no_driver_id_correct").into(),
        OrderRefusal::DriverBusy => fill!("reasons.driver_already_order_choose", release),
        OrderRefusal::NothingPaid => tr("reasons.nothing_paid_order_so").into(),
        OrderRefusal::LifetimeOver => fill!("reasons.lifetime_order_ended_use", assign, cancel),
        OrderRefusal::ServedByPartner => fill!("reasons.partner_chooses_driver_order", cancel),
        other => sentence(&other.to_string()),
    }
}

/// Explains the state of an order.
pub(crate) fn describe_reason(reason: &OrderReason) -> String {
    match reason {
        OrderReason::Held { cause, reason } => describe_hold(cause.as_ref(), reason),
        OrderReason::Asked { attempt_no, drivers, since, until } => {
            let drivers: Vec<_> = drivers.iter().map(DriverId::as_str).collect();
            let (attempt, drivers) = (attempt_no, drivers.join(", "));
            let (since, until) = (describe_time(*since), describe_time(*until));
            fill!("reasons.asked", attempt, drivers, since, until)
        }
        OrderReason::Scheduled { pickup_at, at, is_delayed } => {
            let (pickup, at) = (pickup_at.map(describe_time).unwrap_or_default(), describe_time(*at));
            if *is_delayed {
                fill!("reasons.start_delayed", pickup, at)
            } else {
                fill!("reasons.scheduled", pickup, at)
            }
        }
        OrderReason::New { at } => fill!("reasons.new", at = describe_time(*at)),
        OrderReason::SearchRestarts { attempts, round, at } => {
            fill!("reasons.search_restarts", attempts, round, at = describe_time(*at))
        }
        OrderReason::Answered { attempt_no } => fill!("reasons.answered", attempt = attempt_no),
        OrderReason::ToBeBooked { attempt_no, partners, at } => {
            let names: Vec<_> = partners.iter().map(PartnerName::as_str).collect();
            let partner = if names.is_empty() { partner_name(None).to_owned() } else { names.join(" / ") };
            match at {
                Some(at) => fill!("reasons.to_be_booked", attempt = attempt_no, partner, at = describe_time(*at)),
                None => fill!("reasons.to_be_booked_soon", attempt = attempt_no, partner),
            }
        }
        OrderReason::GaveUp { attempts } => fill!("reasons.gave_up", attempts),
        OrderReason::OnTheWay { driver } => fill!("reasons.on_the_way", driver = known(driver.as_deref())),
        OrderReason::Aboard { driver } => fill!("reasons.aboard", driver = known(driver.as_deref())),
        OrderReason::Settling => tr("reasons.settling").into(),
        OrderReason::Ended { status, at, actor, reason, detail } => {
            let (status, event) = (Code::of_status(*status).text(), Code::new("order_event", reason).text());
            let ended = fill!("reasons.ended", status, at = describe_time(*at), actor, event);
            detail.as_ref().map_or(ended.clone(), |detail| format!("{ended} {}", fill!("reasons.ended_detail", detail)))
        }
        OrderReason::Untold { status } => fill!("reasons.untold", status = Code::of_status(*status).text()),
        OrderReason::BeingBooked { .. }
        | OrderReason::Unanswered { .. }
        | OrderReason::WithoutJobId { .. }
        | OrderReason::AtPartner { .. } => describe_booking(reason),
    }
}

/// Explains the state of an order whose attempt is booked at a partner.
fn describe_booking(reason: &OrderReason) -> String {
    let (text, choice) = match reason {
        OrderReason::BeingBooked { attempt_no, partner, choice } => {
            (fill!("reasons.being_booked", attempt = attempt_no, partner = partner_name(partner.as_ref())), choice)
        }
        OrderReason::Unanswered { attempt_no, partner, tries, error, choice } => {
            let (attempt, partner) = (attempt_no, partner_name(partner.as_ref()));
            let text = match error {
                Some(error) => fill!("reasons.unanswered_with_error", attempt, partner, tries, error),
                None => fill!("reasons.unanswered", attempt, partner, tries),
            };
            (text, choice)
        }
        OrderReason::WithoutJobId { partner, booking_id, polls, next_poll_at, choice } => {
            let (partner, booking) = (partner_name(partner.as_ref()), known(booking_id.as_deref()));
            let text = match next_poll_at {
                Some(at) => fill!("reasons.without_job_id", partner, booking, polls, at = describe_time(*at)),
                None => fill!("reasons.without_job_id_or_poll", partner, booking, polls),
            };
            (text, choice)
        }
        OrderReason::AtPartner { attempt_no, partner, job_id, until, choice } => {
            let (attempt, partner) = (attempt_no, partner_name(partner.as_ref()));
            let (job, until) = (known(job_id.as_deref()), until.map_or_else(|| "?".to_owned(), describe_time));
            (fill!("reasons.at_partner", attempt, partner, job, until), choice)
        }
        _ => return String::new(),
    };
    choice.as_ref().map_or(text.clone(), |choice| format!("{text} {}", fill!("reasons.choice", choice)))
}

/// Describes the next action of a binding's job.
pub(crate) fn describe_binding_step(binding: &Binding) -> Words {
    match (binding.phase, binding.call_action) {
        (BindingPhase::Idle, _) => tr("reasons.step_cycle"),
        (BindingPhase::Calling, Some(CallAction::Settle)) => tr("reasons.step_settle"),
        (BindingPhase::Calling, _) => tr("reasons.step_call"),
        (BindingPhase::Processing, _) => tr("reasons.step_status"),
        (BindingPhase::WaitingOtp, _) if binding.otp_value.is_some() => tr("reasons.step_send_otp"),
        (BindingPhase::WaitingOtp, _) => tr("reasons.step_end_otp"),
    }
}

/// Explains the current state of a binding.
pub(crate) fn describe_binding(binding: &Binding, now: DateTime<Utc>) -> String {
    format!("{} {}", describe_state(binding), describe_phase(binding, now))
}

fn describe_state(b: &Binding) -> String {
    let words = match (b.state, b.reason) {
        (BindingState::Running, _) => tr("reasons.binding_runs"),
        (BindingState::Paused, _) => tr("reasons.binding_paused"),
        (BindingState::Stopping, _) => tr("reasons.binding_stopping"),
        (BindingState::Stopped, None) => tr("reasons.binding_never_started"),
        (BindingState::Stopped, Some(StopReason::ManualStop)) => tr("reasons.binding_stopped_by_hand"),
        (BindingState::Stopped, Some(StopReason::OtpTimeout)) => tr("reasons.binding_otp_timeout"),
        (BindingState::Stopped, Some(StopReason::ProcessingTimeout)) => tr("reasons.binding_processing_timeout"),
        (BindingState::Stopped, Some(StopReason::InsufficientBalanceBeforeStart)) => {
            return fill!("reasons.binding_balance", account = b.account_id);
        }
        (BindingState::Stopped, Some(StopReason::ServerDisabled)) => {
            return fill!("reasons.binding_server_disabled", server = b.server_id);
        }
        (BindingState::Stopped, Some(StopReason::ServerNotAllowed)) => {
            return fill!("reasons.binding_server_not_allowed", server = b.server_id);
        }
        (BindingState::Stopped, Some(StopReason::TooManyFailures)) => {
            return fill!("reasons.binding_failures", failures = b.failures);
        }
    };
    words.into()
}

fn describe_phase(b: &Binding, now: DateTime<Utc>) -> String {
    let trx = b.trx_id.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    match b.phase {
        BindingPhase::Idle => match b.next_at.filter(|_| b.state == BindingState::Running) {
            Some(at) if at <= now => fill!("reasons.cycle_due", cycle = b.cycle + 1, at = describe_time(at)),
            Some(at) => fill!("reasons.cycle_starts", cycle = b.cycle + 1, at = describe_time(at)),
            None => fill!("reasons.no_transaction", cycles = b.cycle),
        },
        BindingPhase::Calling => {
            let until = b.call_until.unwrap_or(now);
            let (call, end) = (b.call_no, describe_time(until));
            if until > now {
                fill!("reasons.call_open", call, trx, end)
            } else {
                fill!("reasons.call_unanswered", call, trx, end)
            }
        }
        BindingPhase::Processing => {
            let at = b.processing_deadline.map_or_else(|| "?".to_owned(), describe_time);
            fill!("reasons.processing", trx, asks = b.asks, at)
        }
        BindingPhase::WaitingOtp if b.otp_value.is_some() => fill!("reasons.otp_submitted", trx),
        BindingPhase::WaitingOtp => {
            let until = b.otp_deadline.map_or_else(|| "?".to_owned(), describe_time);
            fill!("reasons.otp_wanted", trx, until, tries = b.otp_tries, most = b.config.otp_attempts)
        }
    }
}

fn partner_name(partner: Option<&PartnerName>) -> &str {
    partner.map_or_else(|| tr("reasons.a_partner").get(), PartnerName::as_str)
}

fn known(text: Option<&str>) -> &str {
    text.unwrap_or("?")
}

#[cfg(test)]
mod tests;
