//! Decisions on what people ask for. Pure: each looks at the snapshot and answers with a change, "is so already", or why
//! not. Accept, decline, cancel, the timeout and the lifetime all race through the same versioned update; one wins.

use uuid::Uuid;

use super::{Change, Decision, Offer, OfferState, PaymentStatus, Reason, Refusal, Snapshot, Status, change::OfferEnd};
use crate::{actor::Actor, messages};

/// Driver `driver` takes the order by answering `offer`.
pub fn accept(s: &Snapshot, driver: &str, offer: Uuid) -> Decision {
    let offer = match own_offer(s, driver, offer) {
        Ok(offer) => offer,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    match offer.state {
        OfferState::Offered if s.order.status == Status::Dispatching => {}
        // Taken before, and still this driver's (or done); an order that was cancelled since has no driver.
        OfferState::Accepted if s.order.status.occupies_driver() || s.order.status == Status::Completed => {
            return Decision::Unchanged;
        }
        OfferState::Accepted => return Decision::Refuse(refuse_state(s, "DISPATCHING")),
        _ => return Decision::Refuse(why_gone(s, offer)),
    }
    if s.now >= offer.expires_at || s.order.is_past_lifetime(s.now) {
        return Decision::Refuse(Refusal::OfferExpired);
    }
    let mut change = Change::new(s, Actor::driver(driver));
    for live in s.live_offers() {
        let to = if live.id == offer.id { OfferState::Accepted } else { OfferState::Superseded };
        change.offers.push(OfferEnd { offer: live.clone(), to, why: None });
    }
    change.order.driver_id = Some(driver.to_owned());
    change.transition_to(Status::DriverAssigned, Reason::OfferAccepted, None);
    change.into()
}

/// Driver `driver` refuses the offer. If no other driver was asked, the attempt ends now, not at its deadline.
pub fn decline(s: &Snapshot, driver: &str, offer: Uuid, why: Option<String>) -> Decision {
    let offer = match own_offer(s, driver, offer) {
        Ok(offer) => offer,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    match offer.state {
        OfferState::Offered => {}
        OfferState::Declined => return Decision::Unchanged,
        _ => return Decision::Refuse(why_gone(s, offer)),
    }
    if s.now >= offer.expires_at {
        return Decision::Refuse(Refusal::OfferExpired);
    }
    let mut change = Change::new(s, Actor::driver(driver));
    change.end_offer(s, offer, OfferState::Declined, why);
    change.into()
}

/// The driver who was sent this offer cannot answer it: it never arrived, or the driver is on another order. It is no fault
/// of the driver's, who may be asked again in a later round.
pub fn withdraw_offer(s: &Snapshot, offer: Uuid, why: &str) -> Decision {
    let Some(offer) = s.live_offers().find(|o| o.id == offer) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_offer(s, offer, OfferState::Withdrawn, Some(format!("{}: {why}", offer.driver_id)));
    change.into()
}

/// The assigned driver gives the order back before pick-up: the search goes on within the lifetime left, or the order ends.
pub fn driver_cancel(s: &Snapshot, driver: &str, why: Option<String>) -> Decision {
    if s.order.driver_id.as_deref() != Some(driver) {
        let gave_back = s.order.former_drivers.iter().any(|former| former == driver);
        return if gave_back { Decision::Unchanged } else { Decision::Refuse(Refusal::NotYourOrder) };
    }
    lose_driver(s, Actor::driver(driver), Reason::DriverCancelled, why)
}

/// A dispatcher takes the order from its driver, and the search goes on within the lifetime left.
pub fn release(s: &Snapshot, actor: &Actor, why: Option<String>) -> Decision {
    if s.order.status == Status::DriverAssigned && s.order.partner.is_none() && s.now >= s.order.lifetime_deadline {
        return Decision::Refuse(Refusal::LifetimeOver);
    }
    lose_driver(s, actor.clone(), Reason::TakenBack, why)
}

fn lose_driver(s: &Snapshot, actor: Actor, reason: Reason, why: Option<String>) -> Decision {
    if s.order.partner.is_some() {
        return Decision::Refuse(Refusal::ServedByPartner);
    }
    if s.order.status != Status::DriverAssigned {
        return Decision::Refuse(refuse_state(s, "DRIVER_ASSIGNED"));
    }
    let mut change = Change::new(s, actor);
    if reason == Reason::TakenBack {
        change.tell_driver_of_loss("a dispatcher took it back");
    }
    change.give_back(s, if reason == Reason::TakenBack { "taken back" } else { "given back by the driver" });
    change.release_hold();
    if s.now < s.order.lifetime_deadline {
        change.order.round += 1;
        change.order.next_attempt_at = Some(s.now);
        change.order.lifetime_waived = false;
        change.transition_to(Status::Dispatching, reason, why);
    } else {
        change.end_without_driver(reason, why);
    }
    change.into()
}

/// The assigned driver has the passenger aboard.
pub fn pickup(s: &Snapshot, driver: &str) -> Decision {
    advance_trip(s, driver, Status::DriverAssigned, Status::PickedUp, Reason::PickedUp)
}

/// The assigned driver is done.
pub fn complete(s: &Snapshot, driver: &str) -> Decision {
    advance_trip(s, driver, Status::PickedUp, Status::Completed, Reason::Completed)
}

fn advance_trip(s: &Snapshot, driver: &str, from: Status, to: Status, reason: Reason) -> Decision {
    if s.order.driver_id.as_deref() != Some(driver) {
        return Decision::Refuse(Refusal::NotYourOrder);
    }
    if s.order.status == to {
        return Decision::Unchanged;
    }
    if s.order.status != from {
        return Decision::Refuse(refuse_state(s, from.as_str()));
    }
    let mut change = Change::new(s, Actor::driver(driver));
    change.transition_to(to, reason, None);
    change.into()
}

/// The customer, or staff for the customer, no longer wants the order.
///
/// A held order that is COMPENSATING has left the customer's hands: staff end it as cancelled by the system.
pub fn cancel(s: &Snapshot, actor: &Actor, why: Option<String>) -> Decision {
    match s.order.status {
        Status::CancelledByUser => return Decision::Unchanged,
        Status::Compensating if s.order.held_for_review && actor.is_staff() => {
            let mut change = Change::new(s, actor);
            change.release_hold();
            let to = if change.order.payment_status.is_paid() {
                Status::CancelledBySystemAfterPayment
            } else {
                Status::CancelledBySystem
            };
            change.transition_to(to, Reason::ReleasedByHand, why);
            for message in messages::cancelled_by_system(&change.order, "ended by hand", s.now) {
                change.notify(message);
            }
            return change.into();
        }
        Status::PendingJobId
        | Status::Assigned
        | Status::Dispatching
        | Status::Pending
        | Status::DriverAssigned
        | Status::PickedUp => {}
        _ => return Decision::Refuse(refuse_state(s, "any state before COMPENSATING")),
    }
    let mut change = Change::new(s, actor);
    change.end_attempt(s, OfferState::Withdrawn, Reason::AttemptWithdrawn);
    change.release_hold();
    change.tell_driver_of_loss("the customer cancelled it");
    change.transition_to(Status::CancelledByUser, Reason::CancelledByUser, why);
    change.tell_of_payment("cancelled by the customer");
    change.into()
}

/// What the producer says of the money, under an id of its own: the same event again changes nothing, and a late PENDING
/// never undoes PAID.
pub fn pay(s: &Snapshot, actor: &Actor, event_id: &str, status: &PaymentStatus) -> Decision {
    if let Some(known) = s.payments.iter().find(|p| p.event_id == event_id) {
        return if known.payment_status == *status {
            Decision::Unchanged
        } else {
            Decision::Refuse(Refusal::PaymentEventReused)
        };
    }
    let mut change = Change::new(s, actor);
    change.payment_event = Some((event_id.to_owned(), status.clone()));
    // An unknown word is made clear by any known word, unless money had come before it.
    let clears = matches!(s.order.payment_status, PaymentStatus::Other(_)) && !was_ever_paid(s);
    if !clears && !status.supersedes(&s.order.payment_status) {
        // It came late; that it came is kept.
        return change.into();
    }
    let was_paid = s.order.payment_status.is_paid();
    change.order.payment_status = status.clone();
    match s.order.status {
        Status::CancelledBySystem if status.is_paid() => {
            change.transition_to(
                Status::CancelledBySystemAfterPayment,
                Reason::PaidAfterCancel,
                Some(status.to_string()),
            );
            for message in messages::cancelled_by_system(&change.order, "paid after the system had cancelled", s.now) {
                change.notify(message);
            }
        }
        Status::CancelledBySystem | Status::CancelledByUser | Status::CancelledByDriver
            if matches!(status, PaymentStatus::Other(_)) =>
        {
            let why = format!("cancelled, and its payment is {status} now, which the rules do not know");
            change.record_event(Reason::PaymentChanged, Some(status.to_string()));
            change.notify(messages::unknown_payment(&change.order, &why, s.now));
        }
        Status::CancelledByUser | Status::CancelledByDriver if status.is_paid() && !was_paid => {
            change.record_event(Reason::PaidAfterCancel, Some(status.to_string()));
            change.notify(messages::refund_required(&change.order, "paid after the order was cancelled", s.now));
        }
        Status::Compensating if s.order.held_for_review => {
            // An unknown payment status is answered: its compensation goes on.
            change.release_hold();
            change.record_event(Reason::PaymentChanged, Some(status.to_string()));
        }
        _ => change.record_event(Reason::PaymentChanged, Some(status.to_string())),
    }
    change.into()
}

fn was_ever_paid(s: &Snapshot) -> bool {
    s.order.payment_status.is_paid() || s.payments.iter().any(|p| p.payment_status.is_paid())
}

/// Support begins the refund.
pub fn start_refund(s: &Snapshot, actor: &Actor, note: Option<String>) -> Decision {
    match s.order.status {
        Status::RefundPending | Status::Refunded => Decision::Unchanged,
        Status::CancelledByUser | Status::CancelledByDriver if !s.order.payment_status.is_paid() => {
            Decision::Refuse(Refusal::NothingPaid)
        }
        Status::CancelledBySystemAfterPayment | Status::CancelledByUser | Status::CancelledByDriver => {
            let mut change = Change::new(s, actor);
            change.transition_to(Status::RefundPending, Reason::RefundStarted, note);
            change.into()
        }
        status => Decision::Refuse(Refusal::WrongState {
            status,
            allowed: "CANCELLED_BY_SYSTEM_AFTER_PAYMENT, CANCELLED_BY_USER, CANCELLED_BY_DRIVER",
        }),
    }
}

/// The money is back.
pub fn finish_refund(s: &Snapshot, actor: &Actor, note: Option<String>) -> Decision {
    match s.order.status {
        Status::Refunded => Decision::Unchanged,
        Status::RefundPending => {
            let mut change = Change::new(s, actor);
            change.transition_to(Status::Refunded, Reason::Refunded, note);
            change.into()
        }
        status => Decision::Refuse(Refusal::WrongState { status, allowed: "REFUND_PENDING (order refund start)" }),
    }
}

/// A dispatcher names the driver.
pub fn assign(s: &Snapshot, actor: &Actor, driver: &str) -> Decision {
    match s.order.status {
        Status::Dispatching | Status::Pending => {}
        Status::DriverAssigned if s.order.driver_id.as_deref() == Some(driver) => return Decision::Unchanged,
        _ => return Decision::Refuse(refuse_state(s, "DISPATCHING, PENDING")),
    }
    let mut change = Change::new(s, actor);
    change.end_attempt(s, OfferState::Withdrawn, Reason::AttemptWithdrawn);
    change.release_hold();
    change.order.lifetime_waived = false;
    change.order.driver_id = Some(driver.to_owned());
    change.transition_to(Status::DriverAssigned, Reason::AssignedByHand, Some(driver.to_owned()));
    change.notify(messages::assigned(&change.order, driver, s.now));
    change.into()
}

/// A dispatcher restarts the search, within the lifetime left.
pub fn redispatch(s: &Snapshot, actor: &Actor) -> Decision {
    match s.order.status {
        Status::Pending => {}
        Status::Dispatching | Status::PendingJobId | Status::Assigned if s.order.held_for_review => {}
        Status::Dispatching | Status::PendingJobId | Status::Assigned => return Decision::Unchanged,
        _ => return Decision::Refuse(refuse_state(s, "PENDING, or searching under review")),
    }
    if s.now >= s.order.lifetime_deadline {
        return Decision::Refuse(Refusal::LifetimeOver);
    }
    let mut change = Change::new(s, actor);
    change.release_hold();
    change.order.lifetime_waived = false;
    change.order.round += 1;
    change.order.next_attempt_at = Some(s.now);
    change.order.job_id = None;
    let search = if s.order.partner.is_some() { Status::PendingJobId } else { Status::Dispatching };
    change.transition_to(search, Reason::Redispatched, None);
    change.into()
}

fn own_offer<'a>(s: &'a Snapshot, driver: &str, offer: Uuid) -> Result<&'a Offer, Refusal> {
    let offer = s.offers.iter().find(|o| o.id == offer).ok_or(Refusal::NoSuchOffer)?;
    if offer.driver_id == driver { Ok(offer) } else { Err(Refusal::NotYourOffer) }
}

fn refuse_state(s: &Snapshot, allowed: &'static str) -> Refusal {
    if s.order.status.is_closed() {
        Refusal::OrderFinished(s.order.status)
    } else {
        Refusal::WrongState { status: s.order.status, allowed }
    }
}

/// Why an offer that is not live cannot be answered.
fn why_gone(s: &Snapshot, offer: &Offer) -> Refusal {
    match offer.state {
        OfferState::Declined => Refusal::OfferDeclined,
        OfferState::Expired => Refusal::OfferExpired,
        _ if s.order.status.is_closed() => Refusal::OrderFinished(s.order.status),
        _ if s.order.status.occupies_driver() => Refusal::AlreadyAssigned,
        OfferState::Superseded => Refusal::AlreadyAssigned,
        _ => Refusal::OfferGone("the order is no longer looking for a driver by this offer"),
    }
}
