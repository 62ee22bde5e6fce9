//! An order as JSON, including the data that a waiting customer needs.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use jobs::OrderId;
use serde::Serialize;

use crate::{
    decide::timers::time_until,
    details::{Contact, OrderDetails, OrderPlace},
    ids::{AreaId, DriverId, PartnerName, ServiceType},
    order::{Order, OrderStatus, PaymentStatus, RefundProgress, Snapshot},
    skills::{SkillSchema, SkillSet},
    texts::LanguageTag,
};

#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Order)]
pub struct OrderView {
    #[schema(value_type = String)]
    pub order_id: OrderId,
    pub status: OrderStatus,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub area_id: Option<AreaId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub customer_id: Option<String>,
    /// BCP 47 tag of the customer's language. Absent: the installation's default language.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub language: Option<LanguageTag>,
    /// Sales channel of the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub channel: Option<String>,
    /// Loyalty level as the producer sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub loyalty_level: Option<String>,
    /// TAKEN, BYPASSED or WOULD_REFUSE (shadow mode). Absent: no area decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub admission: Option<String>,
    /// Pickup location. Absent for a driver who does not have the order, or no longer has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pickup: Option<OrderPlace>,
    /// Destination. Absent like `pickup`, or if the producer sent none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub dropoff: Option<OrderPlace>,
    /// Notes for the driver and for staff. Absent like `pickup`, or if the producer sent none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub notes: Option<String>,
    /// Person to call. Only in answers to the driver who has the order: to the accept, and to `GET` until the trip ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub contact: Option<Contact>,
    /// The producer's own values. Absent like `pickup`, or if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub metadata: BTreeMap<String, String>,
    /// Labels that the driver must have; absent if there are none.
    #[serde(skip_serializing_if = "SkillSet::is_empty")]
    #[schema(value_type = Vec<SkillSchema>, required = false)]
    pub requires: SkillSet,
    pub payment_status: PaymentStatus,
    /// Time of the first reported payment; absent if the order was never paid. Later payment statuses do not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub paid_at: Option<DateTime<Utc>>,
    /// Refund of a paid order that ended without a ride; absent if none is owed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub refund: Option<OrderRefund>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub amount_minor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub currency: Option<String>,
    /// Partner of the latest attempt, or the partner listed first. Absent for your own fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub partner: Option<PartnerName>,
    /// The partner's id for the booking of the latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub booking_id: Option<String>,
    /// The partner's job id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub job_id: Option<String>,
    #[schema(value_type = Option<String>)]
    pub driver_id: Option<DriverId>,
    /// Number of offers or bookings so far.
    pub attempt_no: i32,
    pub held_for_review: bool,
    /// Next automatic step, if any.
    pub next: Option<NextStep>,
    pub created_at: DateTime<Utc>,
    pub lifetime_deadline: DateTime<Utc>,
    /// Seconds left to find a driver. Absent while no driver is searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lifetime_left_sec: Option<u64>,
    pub closed_at: Option<DateTime<Utc>>,
    /// Time at which the customer wants to be picked up. Absent: as soon as possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pickup_at: Option<DateTime<Utc>>,
    /// Address of the page on which the customer follows the order. Only in the answer to the creation, and only if
    /// `http.tracking` is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tracking_url: Option<String>,
}

/// Refund that the customer is owed for an order that ended without a ride.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct OrderRefund {
    /// owed, started or completed
    #[schema(value_type = String)]
    pub state: RefundProgress,
    /// In the smallest unit of the currency; null if the order has no amount.
    #[schema(required)]
    pub amount_minor: Option<i64>,
    #[schema(required)]
    pub currency: Option<String>,
}

/// Next automatic step of an order.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct NextStep {
    pub action: &'static str,
    pub at: DateTime<Utc>,
    pub in_sec: u64,
}

impl From<&Snapshot> for OrderView {
    fn from(s: &Snapshot) -> Self {
        let Order { id, status, .. } = &s.order;
        let o = s.order.clone();
        let refund = s.order.refund_progress().map(|state| OrderRefund {
            state,
            amount_minor: o.amount_minor,
            currency: o.currency.clone(),
        });
        let searching = status.is_searching() && !o.lifetime_waived;
        Self {
            order_id: id.clone(),
            status: *status,
            next: find_next_step(&o, s.now),
            lifetime_left_sec: searching.then(|| time_until(o.lifetime_deadline, s.now).as_secs()),
            service_type: o.service_type,
            area_id: o.area_id,
            customer_id: o.customer_id,
            language: o.language,
            channel: o.channel,
            loyalty_level: o.loyalty_level,
            admission: o.admission,
            pickup: Some(OrderPlace::new(s.order.pickup(), None)),
            dropoff: None,
            notes: None,
            contact: None,
            metadata: BTreeMap::new(),
            requires: SkillSet::new(),
            payment_status: o.payment_status,
            paid_at: o.paid_at,
            refund,
            amount_minor: o.amount_minor,
            currency: o.currency,
            partner: o.partner,
            booking_id: s.booking_of_attempt(o.attempt_no).and_then(|b| b.booking_id.clone()),
            job_id: o.job_id,
            driver_id: o.driver_id,
            attempt_no: o.attempt_no,
            held_for_review: o.held_for_review,
            created_at: o.created_at,
            lifetime_deadline: o.lifetime_deadline,
            closed_at: o.closed_at,
            pickup_at: o.pickup_at,
            tracking_url: None,
        }
    }
}

impl OrderView {
    /// Adds the contents of the order, except the contact.
    pub fn with_details(self, details: OrderDetails) -> Self {
        let OrderDetails { pickup_address, dropoff, notes, contact: _, metadata, requires } = details;
        let pickup = self.pickup.map(|place| OrderPlace { address: pickup_address, ..place });
        Self { pickup, dropoff, notes, metadata, requires, ..self }
    }

    /// Removes the data that this driver must not see. The places, the notes, the contact and the metadata stay only
    /// while the driver is assigned or has the passenger aboard. Another driver sees neither the customer, the price
    /// nor the assigned driver.
    pub fn as_seen_by(self, driver: &DriverId) -> Self {
        let is_own = self.driver_id.as_ref() == Some(driver);
        if is_own && self.status.occupies_driver() {
            return self;
        }
        let bare = Self { pickup: None, dropoff: None, notes: None, contact: None, metadata: BTreeMap::new(), ..self };
        if is_own { bare } else { bare.without_customer() }
    }

    fn without_customer(self) -> Self {
        let (customer_id, language, amount_minor, currency) = (None, None, None, None);
        let (channel, loyalty_level, admission, refund) = (None, None, None, None);
        let (partner, booking_id, job_id) = (None, None, None);
        let view =
            Self { customer_id, language, amount_minor, currency, channel, loyalty_level, admission, refund, ..self };
        Self { partner, booking_id, job_id, driver_id: None, ..view }
    }
}

fn find_next_step(order: &Order, now: DateTime<Utc>) -> Option<NextStep> {
    if order.held_for_review {
        return None;
    }
    let (action, at) = match order.status {
        OrderStatus::Dispatching if order.next_wave_at.is_some() => ("NEXT_WAVE", order.next_wave_at?),
        OrderStatus::Scheduled => ("DISPATCH_START", order.next_attempt_at?.max(order.dispatch_start())),
        OrderStatus::Dispatching => match (order.attempt_deadline, order.next_search_at(now)) {
            (Some(at), _) => ("OFFER_TIMEOUT", at),
            (None, Some(at)) => ("NEXT_ATTEMPT", at),
            (None, None) => return None,
        },
        OrderStatus::PendingJobId => match (order.next_attempt_at, order.next_poll_at) {
            (Some(at), _) => ("NEXT_ATTEMPT", at),
            (None, Some(at)) => ("JOB_ID_POLL", at),
            (None, None) => ("LIFETIME_TIMEOUT", order.lifetime_deadline),
        },
        OrderStatus::Assigned => ("ATTEMPT_TIMEOUT", order.attempt_deadline?),
        OrderStatus::Pending if !order.lifetime_waived => ("LIFETIME_TIMEOUT", order.lifetime_deadline),
        OrderStatus::Compensating => ("COMPENSATION", order.updated_at),
        _ => return None,
    };
    Some(NextStep { action, at, in_sec: time_until(at, now).as_secs() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::order::fixture;

    // Rule U2: An order shows its pickup to its producer, to staff and to the driver who has it, and to no other driver.
    #[test]
    fn order_shows_pickup_to_its_driver_alone() {
        let mut s = fixture::offered_snapshot();
        let (holder, other) = (DriverId::from("D1"), DriverId::from("D2"));
        s.order.driver_id = Some(holder.clone());
        let pickup = Some(OrderPlace::new(s.order.pickup(), None));
        for (status, seen) in [
            (OrderStatus::DriverAssigned, pickup.clone()),
            (OrderStatus::PickedUp, pickup.clone()),
            (OrderStatus::Completed, None),
            (OrderStatus::CancelledByUser, None),
        ] {
            s.order.status = status;
            assert_eq!(OrderView::from(&s).pickup, pickup, "{status}");
            assert_eq!(OrderView::from(&s).as_seen_by(&holder).pickup, seen, "{status}");
            assert_eq!(OrderView::from(&s).as_seen_by(&other).pickup, None, "{status}");
        }
    }

    #[test]
    fn contents_are_hidden_from_other_drivers() {
        let mut s = fixture::offered_snapshot();
        let (holder, other) = (DriverId::from("D1"), DriverId::from("D2"));
        s.order.driver_id = Some(holder.clone());
        let details = OrderDetails {
            pickup_address: Some("Gate 2".to_owned()),
            dropoff: Some(OrderPlace::new(s.order.pickup(), Some("Tower 9".to_owned()))),
            notes: Some("ring twice".to_owned()),
            contact: Some(Contact { name: Some("Ana".to_owned()), ..Contact::default() }),
            metadata: [("crm_id".to_owned(), "7".to_owned())].into(),
            requires: ["van".to_owned()].into(),
        };
        let mut seen = |status, driver: Option<&DriverId>| {
            s.order.status = status;
            let view = OrderView::from(&s).with_details(details.clone());
            let view = match driver {
                Some(driver) => view.as_seen_by(driver),
                None => view,
            };
            serde_json::to_string(&view).unwrap()
        };
        let contents = ["Gate 2", "Tower 9", "ring twice", "crm_id"];
        for text in contents {
            assert!(seen(OrderStatus::DriverAssigned, None).contains(text), "{text}");
            assert!(seen(OrderStatus::PickedUp, Some(&holder)).contains(text), "{text}");
            assert!(!seen(OrderStatus::Completed, Some(&holder)).contains(text), "{text}");
            assert!(!seen(OrderStatus::DriverAssigned, Some(&other)).contains(text), "{text}");
        }
        assert!(!seen(OrderStatus::DriverAssigned, None).contains("Ana"), "the contact has its own requests");
    }
}
