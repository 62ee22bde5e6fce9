//! Decisions on requests from people. Pure: each takes a snapshot and returns a change, "unchanged", or a refusal.
//! Accept, decline, cancel, the timeout and the lifetime race through the same versioned update, and only one succeeds.

use crate::{
    actor::Actor,
    decide::{Change, Decision, OrderRefusal, change::OfferEnd},
    ids::{DriverId, OfferId},
    messages::{self, CancelCause},
    order::{EventReason, Offer, OfferState, OrderStatus, Snapshot},
};

/// Assigns the order to `driver`, who accepts `offer`.
pub fn accept_offer(s: &Snapshot, driver: &DriverId, offer: OfferId) -> Decision {
    let offer = match own_offer(s, driver, offer) {
        Ok(offer) => offer,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    match offer.state {
        OfferState::Offered if s.order.status == OrderStatus::Dispatching => {}
        // The driver accepted before and still has the order, or completed it. If the order was cancelled since, the
        // request is refused.
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

/// Records that `driver` declines the offer. If no other driver was asked, the attempt ends now, not at its deadline.
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

/// Withdraws an offer that the driver cannot answer: it was not delivered, or the driver has another order. The driver
/// may be asked again in a later round.
pub fn withdraw_offer(s: &Snapshot, offer: OfferId, why: &str) -> Decision {
    let Some(offer) = s.live_offers().find(|o| o.id == offer) else { return Decision::Unchanged };
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_offer(s, offer, OfferState::Withdrawn, Some(format!("{}: {why}", offer.driver_id)));
    change.into()
}

/// Takes the order from the assigned driver, who cancels before pickup. The search continues within the remaining
/// lifetime, or the order ends.
pub fn cancel_by_driver(s: &Snapshot, driver: &DriverId, why: Option<String>) -> Decision {
    if s.order.driver_id.as_ref() != Some(driver) {
        let gave_back = s.order.former_drivers.iter().any(|former| former == driver);
        return if gave_back { Decision::Unchanged } else { Decision::Refuse(OrderRefusal::NotYourOrder) };
    }
    lose_driver(s, Actor::for_driver(driver), EventReason::DriverCancelled, why)
}

/// Takes the order from its driver on a dispatcher's request. The search continues within the remaining lifetime.
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

/// Records that the assigned driver has picked up the passenger.
pub fn record_pickup(s: &Snapshot, driver: &DriverId) -> Decision {
    advance_trip(s, driver, OrderStatus::DriverAssigned, OrderStatus::PickedUp, EventReason::PickedUp)
}

/// Records that the assigned driver has completed the trip.
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
        // A finished order needs no review.
        change.release_hold();
    }
    change.transition_to(to, reason, None);
    change.into()
}

/// Cancels the order for the customer, on request of the customer or of staff.
///
/// The customer can no longer cancel a COMPENSATING order. If it is held, staff can end it as cancelled by the system.
pub fn cancel_order(s: &Snapshot, actor: &Actor, why: Option<String>) -> Decision {
    match s.order.status {
        OrderStatus::CancelledByUser => return Decision::Unchanged,
        OrderStatus::Compensating if s.order.held_for_review && actor.is_staff() => {
            let mut change = Change::new(s, actor);
            change.release_hold();
            let to = if change.order.owes_refund() {
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
        OrderStatus::Scheduled
        | OrderStatus::PendingJobId
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

/// Restarts the search within the remaining lifetime, on a dispatcher's request.
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

/// Returns why an offer that is not live cannot be answered.
fn refuse_dead_offer(s: &Snapshot, offer: &Offer) -> OrderRefusal {
    match offer.state {
        OfferState::Declined => OrderRefusal::OfferDeclined,
        OfferState::Expired => OrderRefusal::OfferExpired,
        _ if s.order.status.is_closed() => OrderRefusal::OrderFinished(s.order.status),
        _ if s.order.status.occupies_driver() => OrderRefusal::AlreadyAssigned,
        OfferState::Superseded => OrderRefusal::AlreadyAssigned,
        _ => OrderRefusal::OfferGone("the order no longer needs an answer to this offer"),
    }
}
