//! Decisions on what people ask for. Pure: each looks at the snapshot and answers with a change, "is so already", or why
//! not. Accept, decline, cancel, the timeout and the lifetime all race through the same versioned update; one wins.

use crate::{
    actor::Actor,
    decide::{Change, Decision, OrderRefusal, RefundChange, change::OfferEnd},
    ids::{DriverId, OfferId},
    messages::{self, CancelCause},
    order::{EventReason, HoldCause, Offer, OfferState, OrderStatus, PaymentStatus, Snapshot},
};

/// Driver `driver` takes the order by answering `offer`.
pub fn accept_offer(s: &Snapshot, driver: &DriverId, offer: OfferId) -> Decision {
    let offer = match own_offer(s, driver, offer) {
        Ok(offer) => offer,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    match offer.state {
        OfferState::Offered if s.order.status == OrderStatus::Dispatching => {}
        // Taken before, and still this driver's (or done); an order that was cancelled since has no driver.
        OfferState::Accepted if s.order.status.occupies_driver() || s.order.status == OrderStatus::Completed => {
            return Decision::Unchanged;
        }
        OfferState::Accepted => return Decision::Refuse(refuse_state(s, "DISPATCHING")),
        _ => return Decision::Refuse(refuse_dead_offer(s, offer)),
    }
    if s.now >= offer.expires_at || s.order.is_past_lifetime(s.now) {
        return Decision::Refuse(OrderRefusal::OfferExpired);
    }
    let mut change = Change::new(s, Actor::for_driver(driver));
    for live in s.live_offers() {
        let to = if live.id == offer.id { OfferState::Accepted } else { OfferState::Superseded };
        change.offers.push(OfferEnd { offer: live.clone(), to, why: None });
    }
    change.order.driver_id = Some(driver.clone());
    change.transition_to(OrderStatus::DriverAssigned, EventReason::OfferAccepted, None);
    change.into()
}

/// Driver `driver` refuses the offer. If no other driver was asked, the attempt ends now, not at its deadline.
pub fn decline_offer(s: &Snapshot, driver: &DriverId, offer: OfferId, why: Option<String>) -> Decision {
    let offer = match own_offer(s, driver, offer) {
        Ok(offer) => offer,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    match offer.state {
        OfferState::Offered => {}
        OfferState::Declined => return Decision::Unchanged,
        _ => return Decision::Refuse(refuse_dead_offer(s, offer)),
    }
    if s.now >= offer.expires_at {
        return Decision::Refuse(OrderRefusal::OfferExpired);
    }
    let mut change = Change::new(s, Actor::for_driver(driver));
    change.end_offer(s, offer, OfferState::Declined, why);
    change.into()
}

/// The driver who was sent this offer cannot answer it: it never arrived, or the driver is on another order. It is no fault
/// of the driver's, who may be asked again in a later round.
pub fn withdraw_offer(s: &Snapshot, offer: OfferId, why: &str) -> Decision {
    let Some(offer) = s.live_offers().find(|o| o.id == offer) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_offer(s, offer, OfferState::Withdrawn, Some(format!("{}: {why}", offer.driver_id)));
    change.into()
}

/// The assigned driver gives the order back before pick-up: the search goes on within the lifetime left, or the order ends.
pub fn cancel_by_driver(s: &Snapshot, driver: &DriverId, why: Option<String>) -> Decision {
    if s.order.driver_id.as_ref() != Some(driver) {
        let gave_back = s.order.former_drivers.iter().any(|former| former == driver);
        return if gave_back { Decision::Unchanged } else { Decision::Refuse(OrderRefusal::NotYourOrder) };
    }
    lose_driver(s, Actor::for_driver(driver), EventReason::DriverCancelled, why)
}

/// A dispatcher takes the order from its driver, and the search goes on within the lifetime left.
pub fn release_driver(s: &Snapshot, actor: &Actor, why: Option<String>) -> Decision {
    if s.order.status == OrderStatus::DriverAssigned && s.order.partner.is_none() && s.now >= s.order.lifetime_deadline
    {
        return Decision::Refuse(OrderRefusal::LifetimeOver);
    }
    lose_driver(s, actor.clone(), EventReason::TakenBack, why)
}

fn lose_driver(s: &Snapshot, actor: Actor, reason: EventReason, why: Option<String>) -> Decision {
    if s.order.partner.is_some() {
        return Decision::Refuse(OrderRefusal::ServedByPartner);
    }
    if s.order.status != OrderStatus::DriverAssigned {
        return Decision::Refuse(refuse_state(s, "DRIVER_ASSIGNED"));
    }
    let mut change = Change::new(s, actor);
    if reason == EventReason::TakenBack {
        change.tell_driver_of_loss("a dispatcher took it back");
    }
    change.give_back(s, if reason == EventReason::TakenBack { "taken back" } else { "given back by the driver" });
    change.release_hold();
    if s.now < s.order.lifetime_deadline {
        change.order.round += 1;
        change.order.next_attempt_at = Some(s.now);
        change.order.lifetime_waived = false;
        change.transition_to(OrderStatus::Dispatching, reason, why);
    } else {
        change.end_without_driver(reason, why);
    }
    change.into()
}

/// The assigned driver has the passenger aboard.
pub fn record_pickup(s: &Snapshot, driver: &DriverId) -> Decision {
    advance_trip(s, driver, OrderStatus::DriverAssigned, OrderStatus::PickedUp, EventReason::PickedUp)
}

/// The assigned driver is done.
pub fn complete_trip(s: &Snapshot, driver: &DriverId) -> Decision {
    advance_trip(s, driver, OrderStatus::PickedUp, OrderStatus::Completed, EventReason::Completed)
}

fn advance_trip(s: &Snapshot, driver: &DriverId, from: OrderStatus, to: OrderStatus, reason: EventReason) -> Decision {
    if s.order.driver_id.as_ref() != Some(driver) {
        return Decision::Refuse(OrderRefusal::NotYourOrder);
    }
    if s.order.status == to {
        return Decision::Unchanged;
    }
    if s.order.status != from {
        return Decision::Refuse(refuse_state(s, from.as_str()));
    }
    let mut change = Change::new(s, Actor::for_driver(driver));
    if to.is_closed() {
        // What is over needs no decision.
        change.release_hold();
    }
    change.transition_to(to, reason, None);
    change.into()
}

/// The customer, or staff for the customer, no longer wants the order.
///
/// A held order that is COMPENSATING has left the customer's hands: staff end it as cancelled by the system.
pub fn cancel_order(s: &Snapshot, actor: &Actor, why: Option<String>) -> Decision {
    match s.order.status {
        OrderStatus::CancelledByUser => return Decision::Unchanged,
        OrderStatus::Compensating if s.order.held_for_review && actor.is_staff() => {
            let mut change = Change::new(s, actor);
            change.release_hold();
            let to = if change.order.payment_status.is_paid() {
                OrderStatus::CancelledBySystemAfterPayment
            } else {
                OrderStatus::CancelledBySystem
            };
            change.transition_to(to, EventReason::ReleasedByHand, why);
            let (why, cause) = ("ended by hand", CancelCause::ByStaff);
            for message in messages::cancelled_by_system(&change.order, why, cause, s.now) {
                change.notify(message);
            }
            return change.into();
        }
        OrderStatus::PendingJobId
        | OrderStatus::Assigned
        | OrderStatus::Dispatching
        | OrderStatus::Pending
        | OrderStatus::DriverAssigned
        | OrderStatus::PickedUp => {}
        _ => return Decision::Refuse(refuse_state(s, "any state before COMPENSATING")),
    }
    let mut change = Change::new(s, actor);
    change.end_attempt(s, OfferState::Withdrawn, EventReason::AttemptWithdrawn);
    change.release_hold();
    change.tell_driver_of_loss("the customer cancelled it");
    change.transition_to(OrderStatus::CancelledByUser, EventReason::CancelledByUser, why);
    change.tell_of_payment("cancelled by the customer");
    change.into()
}

/// What the producer says of the money, under an id of its own: the same event again changes nothing, and a late PENDING
/// never undoes PAID.
pub fn record_payment(s: &Snapshot, actor: &Actor, event_id: &str, status: &PaymentStatus) -> Decision {
    if let Some(known) = s.payments.iter().find(|p| p.event_id == event_id) {
        return if known.payment_status == *status {
            Decision::Unchanged
        } else {
            Decision::Refuse(OrderRefusal::PaymentEventReused)
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
        OrderStatus::CancelledBySystem if status.is_paid() => {
            change.transition_to(
                OrderStatus::CancelledBySystemAfterPayment,
                EventReason::PaidAfterCancel,
                Some(status.to_string()),
            );
            let (why, cause) = ("paid after the system had cancelled", CancelCause::PaidLate);
            for message in messages::cancelled_by_system(&change.order, why, cause, s.now) {
                change.notify(message);
            }
        }
        OrderStatus::CancelledBySystem | OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver
            if matches!(status, PaymentStatus::Other(_)) =>
        {
            let why = format!("cancelled, and its payment is {status} now, which the rules do not know");
            change.record_event(EventReason::PaymentChanged, Some(status.to_string()));
            change.notify(messages::unknown_payment(&change.order, &why, s.now));
        }
        OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver if status.is_paid() && !was_paid => {
            change.record_event(EventReason::PaidAfterCancel, Some(status.to_string()));
            change.notify(messages::refund_required(&change.order, "paid after the order was cancelled", s.now));
        }
        OrderStatus::Compensating if s.order.held_for_review && s.order.hold_cause != Some(HoldCause::ByHand) => {
            // An unknown payment status is answered: its compensation goes on.
            change.release_hold();
            change.record_event(EventReason::PaymentChanged, Some(status.to_string()));
        }
        _ => change.record_event(EventReason::PaymentChanged, Some(status.to_string())),
    }
    change.into()
}

fn was_ever_paid(s: &Snapshot) -> bool {
    s.order.payment_status.is_paid() || s.payments.iter().any(|p| p.payment_status.is_paid())
}

/// Support begins the refund.
pub fn start_refund(s: &Snapshot, actor: &Actor, note: Option<String>) -> Decision {
    match s.order.status {
        OrderStatus::RefundPending | OrderStatus::Refunded => Decision::Unchanged,
        OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver if !s.order.payment_status.is_paid() => {
            Decision::Refuse(OrderRefusal::NothingPaid)
        }
        OrderStatus::CancelledBySystemAfterPayment | OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver => {
            let mut change = Change::new(s, actor);
            change.transition_to(OrderStatus::RefundPending, EventReason::RefundStarted, note);
            change.into()
        }
        status => Decision::Refuse(OrderRefusal::WrongState {
            status,
            allowed: "CANCELLED_BY_SYSTEM_AFTER_PAYMENT, CANCELLED_BY_USER, CANCELLED_BY_DRIVER",
        }),
    }
}

/// The money is back.
pub fn finish_refund(s: &Snapshot, actor: &Actor, note: Option<String>) -> Decision {
    match s.order.status {
        OrderStatus::Refunded => Decision::Unchanged,
        OrderStatus::RefundPending => {
            let mut change = Change::new(s, actor);
            change.release_hold();
            change.transition_to(OrderStatus::Refunded, EventReason::Refunded, note);
            change.into()
        }
        status => Decision::Refuse(OrderRefusal::WrongState { status, allowed: "REFUND_PENDING (order refund start)" }),
    }
}

/// What the history says of a refund that the payment service has paid.
pub fn refund_note(refund_id: &str) -> String {
    format!("refund {refund_id} of the payment service")
}

/// The payment service does not pay back: support is told to. Does nothing to an order for which it is not being asked.
pub fn refuse_refund(s: &Snapshot, why: &str) -> Decision {
    if s.order.status != OrderStatus::RefundPending || s.refund_at.is_none() {
        return Decision::Unchanged;
    }
    let mut change = Change::new(s, Actor::SYSTEM);
    change.refund = Some(RefundChange::Refused(why.to_owned()));
    let told = format!("the payment service does not pay back ({why}); pay by hand, then say that it is done");
    change.notify(messages::unexpected_state(&change.order, &told, s.now));
    change.into()
}

/// A dispatcher names the driver.
pub fn assign_driver(s: &Snapshot, actor: &Actor, driver: &DriverId) -> Decision {
    match s.order.status {
        OrderStatus::Dispatching | OrderStatus::Pending => {}
        OrderStatus::DriverAssigned if s.order.driver_id.as_ref() == Some(driver) => return Decision::Unchanged,
        _ => return Decision::Refuse(refuse_state(s, "DISPATCHING, PENDING")),
    }
    let mut change = Change::new(s, actor);
    change.end_attempt(s, OfferState::Withdrawn, EventReason::AttemptWithdrawn);
    change.release_hold();
    change.order.lifetime_waived = false;
    change.order.driver_id = Some(driver.clone());
    change.transition_to(OrderStatus::DriverAssigned, EventReason::AssignedByHand, Some(driver.to_string()));
    change.notify(messages::driver_assigned(&change.order, driver, s.now));
    change.into()
}

/// A dispatcher restarts the search, within the lifetime left.
pub fn redispatch_order(s: &Snapshot, actor: &Actor) -> Decision {
    match s.order.status {
        OrderStatus::Pending => {}
        OrderStatus::Dispatching | OrderStatus::PendingJobId | OrderStatus::Assigned if s.order.held_for_review => {}
        OrderStatus::Dispatching | OrderStatus::PendingJobId | OrderStatus::Assigned => return Decision::Unchanged,
        _ => return Decision::Refuse(refuse_state(s, "PENDING, or searching under review")),
    }
    if s.now >= s.order.lifetime_deadline {
        return Decision::Refuse(OrderRefusal::LifetimeOver);
    }
    let mut change = Change::new(s, actor);
    change.release_hold();
    change.order.lifetime_waived = false;
    change.order.round += 1;
    change.order.next_attempt_at = Some(s.now);
    change.order.job_id = None;
    let search = if s.order.partner.is_some() { OrderStatus::PendingJobId } else { OrderStatus::Dispatching };
    change.transition_to(search, EventReason::Redispatched, None);
    change.into()
}

fn own_offer<'a>(s: &'a Snapshot, driver: &DriverId, offer: OfferId) -> Result<&'a Offer, OrderRefusal> {
    let offer = s.offers.iter().find(|o| o.id == offer).ok_or(OrderRefusal::NoSuchOffer)?;
    if offer.driver_id == *driver { Ok(offer) } else { Err(OrderRefusal::NotYourOffer) }
}

fn refuse_state(s: &Snapshot, allowed: &'static str) -> OrderRefusal {
    if s.order.status.is_closed() {
        OrderRefusal::OrderFinished(s.order.status)
    } else {
        OrderRefusal::WrongState { status: s.order.status, allowed }
    }
}

/// Why an offer that is not live cannot be answered.
fn refuse_dead_offer(s: &Snapshot, offer: &Offer) -> OrderRefusal {
    match offer.state {
        OfferState::Declined => OrderRefusal::OfferDeclined,
        OfferState::Expired => OrderRefusal::OfferExpired,
        _ if s.order.status.is_closed() => OrderRefusal::OrderFinished(s.order.status),
        _ if s.order.status.occupies_driver() => OrderRefusal::AlreadyAssigned,
        OfferState::Superseded => OrderRefusal::AlreadyAssigned,
        _ => OrderRefusal::OfferGone("the order is no longer looking for a driver by this offer"),
    }
}
