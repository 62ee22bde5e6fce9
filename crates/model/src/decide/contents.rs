//! Decisions on changes to the contents of an order. Pure.

use chrono::TimeDelta;
use serde_json::json;

use super::{Change, ContentsChange, OrderRefusal};
use crate::{
    actor::Actor,
    details::{OrderDetails, OrderPlace},
    ids::PartnerName,
    messages,
    order::{BookingState, EventReason, Order, OrderStatus, Snapshot},
    order_patch::OrderContents,
};

/// Refuses a change to an order that was picked up or has ended.
pub fn check_changeable(order: &Order) -> Result<(), OrderRefusal> {
    if is_before_pickup(order.status) {
        return Ok(());
    }
    Err(OrderRefusal::WrongState { status: order.status, allowed: "any state before PICKED_UP" })
}

/// Returns whether the contents of an order in this state can be changed.
pub fn is_before_pickup(status: OrderStatus) -> bool {
    status.lacks_driver() || status == OrderStatus::DriverAssigned
}

/// Changes the contents from `before` to `after`. Returns `None` if they are equal.
///
/// A running attempt continues with its offers, whose drivers see the new contents. The next search uses the new pickup.
/// The order stays in the area that admitted it. A partner with a live booking gets the changes if `takes_details`.
pub fn change_contents(
    s: &Snapshot,
    actor: &Actor,
    before: &OrderContents,
    after: OrderContents,
    takes_details: impl Fn(&PartnerName) -> bool,
) -> Option<Change> {
    let fields = before.changed_fields(&after);
    if fields.is_empty() {
        return None;
    }
    let mut change = Change::new(s, actor);
    (change.order.pickup_lat, change.order.pickup_lng) = (after.pickup.lat, after.pickup.lng);
    change.order.has_details = true;
    change.record_event(EventReason::ContentsChanged, Some(fields.join(", ")));
    tell_driver(&mut change, &fields);
    tell_partners(&mut change, s, before, &fields, takes_details);
    change.contents = Some(Box::new(ContentsChange { fields, details: after.details }));
    Some(change)
}

/// Adds the pickup time to the changed members. `details` are the contents if nothing else changes them.
pub fn add_pickup_time(change: &mut Change, details: OrderDetails) {
    let fields = Vec::new();
    let contents = change.contents.get_or_insert_with(|| Box::new(ContentsChange { fields, details }));
    contents.fields.push("pickup_at");
    let detail = Some(contents.fields.join(", "));
    change.order.has_details = true;
    match change.events.iter_mut().find(|event| event.reason == EventReason::ContentsChanged) {
        Some(event) => event.detail = detail,
        None => change.record_event(EventReason::ContentsChanged, detail),
    }
}

/// Notifies the driver of our own fleet who has the order. Drivers do not act on metadata.
fn tell_driver(change: &mut Change, fields: &[&str]) {
    let is_ours = change.order.partner.is_none() && change.order.status.occupies_driver();
    let seen: Vec<&str> = fields.iter().copied().filter(|name| *name != "metadata").collect();
    if let Some(driver) = change.order.driver_id.clone().filter(|_| is_ours && !seen.is_empty()) {
        change.notify(messages::order_updated(&change.order, &driver, &seen, change.at));
    }
}

/// Sends the changes to the partners with a live booking. If the booking request is open, its places are kept, because a
/// repeated request must be equal. If the partner cannot get a changed place, support is notified.
fn tell_partners(
    change: &mut Change,
    s: &Snapshot,
    before: &OrderContents,
    fields: &[&str],
    takes_details: impl Fn(&PartnerName) -> bool,
) {
    let is_moved = fields.iter().any(|name| ["pickup", "dropoff"].contains(name));
    if !is_moved && !fields.contains(&"contact") {
        return;
    }
    for booking in &s.bookings {
        if booking.booking_id.is_none() && booking.next_try_at.is_some() && booking.places.is_none() {
            let pickup = OrderPlace::new(before.pickup, before.details.pickup_address.clone());
            let places = json!({ "pickup": pickup, "dropoff": before.details.dropoff });
            change.booking_mut(booking).places = Some(places);
        }
        if !booking.state.is_live() {
            continue;
        }
        let at = change.at;
        if takes_details(&booking.partner) {
            if booking.state == BookingState::Booked {
                // Later than an earlier change, whose call must not count for this one.
                let due = booking.next_try_at.map_or(at, |due| at.max(due + TimeDelta::milliseconds(1)));
                let booking = change.booking_mut(booking);
                (booking.tries, booking.next_try_at) = (0, Some(due));
            }
        } else if is_moved {
            let why = format!("the contents changed, and {} cannot get them: call the partner", booking.partner);
            change.notify(messages::unexpected_state(&change.order, &why, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::LatLng, order::order::fixture};

    fn contents(s: &Snapshot) -> OrderContents {
        OrderContents { pickup: s.order.pickup(), details: OrderDetails::default() }
    }

    fn with_notes(s: &Snapshot, notes: &str) -> OrderContents {
        let details = OrderDetails { notes: Some(notes.to_owned()), ..OrderDetails::default() };
        OrderContents { details, ..contents(s) }
    }

    #[test]
    fn equal_contents_change_nothing() {
        let s = fixture::offered_snapshot();
        assert_eq!(change_contents(&s, &Actor::SYSTEM, &contents(&s), contents(&s), |_| true), None);
    }

    #[test]
    fn moved_pickup_keeps_attempt_and_area() {
        let mut s = fixture::offered_snapshot();
        s.order.area_id = Some("JKT".into());
        let after = OrderContents { pickup: LatLng::new(1.0, 2.0), ..contents(&s) };
        let change = change_contents(&s, &Actor::SYSTEM, &contents(&s), after, |_| true).unwrap();
        let moved = Order { pickup_lat: 1.0, pickup_lng: 2.0, has_details: true, ..s.order.clone() };
        assert_eq!((change.order, change.offers.len(), change.messages.len()), (moved, 0, 0));
        assert_eq!(change.events[0].detail.as_deref(), Some("pickup"));
    }

    #[test]
    fn driver_is_told_of_everything_but_metadata() {
        let mut s = fixture::offered_snapshot();
        (s.order.status, s.order.driver_id) = (OrderStatus::DriverAssigned, Some("D1".into()));
        let told = |after: OrderContents| {
            let change = change_contents(&s, &Actor::SYSTEM, &contents(&s), after, |_| true).unwrap();
            change.messages.iter().map(|message| message.body.to_payload()["changed"].to_string()).collect::<Vec<_>>()
        };
        let mut noted = with_notes(&s, "ring twice");
        noted.details.metadata = [("crm_id".to_owned(), "7".to_owned())].into();
        assert_eq!(told(noted), [r#"["notes"]"#]);
        let mut tagged = contents(&s);
        tagged.details.metadata = [("crm_id".to_owned(), "7".to_owned())].into();
        assert_eq!(told(tagged), [""; 0]);
    }

    #[test]
    fn only_orders_before_pickup_are_changeable() {
        for status in OrderStatus::ALL {
            let mut s = fixture::created_snapshot();
            s.order.status = status;
            let is_open = matches!(
                status,
                OrderStatus::Scheduled
                    | OrderStatus::PendingJobId
                    | OrderStatus::Assigned
                    | OrderStatus::Dispatching
                    | OrderStatus::Pending
                    | OrderStatus::DriverAssigned
            );
            assert_eq!(check_changeable(&s.order).is_ok(), is_open, "{status}");
        }
    }
}
