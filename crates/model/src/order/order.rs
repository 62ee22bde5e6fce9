//! An order's row, and the snapshot every decision is made on.

use chrono::{DateTime, TimeDelta, Utc};
use job_contract::JobId;
use jobs::OrderId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ids::{AreaId, DriverId, LatLng, OfferId, PartnerName, ServiceType},
    order::{Booking, HoldCause, OrderDeadlines, OrderStatus, PaymentStatus},
    texts::LanguageTag,
};

/// A row of `orders`. Times are Postgres time in whole milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct Order {
    #[sqlx(try_from = "String")]
    pub id: OrderId,
    pub service_type: ServiceType,
    pub area_id: Option<AreaId>,
    pub customer_id: Option<String>,
    /// In which the customer is told; `None`: in the installation's.
    pub language: Option<LanguageTag>,
    /// Where the customer ordered, such as MYBB or WEB.
    pub channel: Option<String>,
    /// As the producer said it; an unknown one bypassed nothing.
    pub loyalty_level: Option<String>,
    /// TAKEN, BYPASSED or WOULD_REFUSE; `None`: no area decided.
    pub admission: Option<String>,
    /// The producer it belongs to; `None`: none, staff alone see it.
    pub owner: Option<String>,
    pub pickup_lat: f64,
    pub pickup_lng: f64,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
    #[sqlx(try_from = "String")]
    pub payment_status: PaymentStatus,
    /// When the order was first reported as paid. No later payment word changes it; see [`Order::was_ever_paid`].
    pub paid_at: Option<DateTime<Utc>>,
    pub status: OrderStatus,
    /// The partner of the latest attempt, or the one listed first; `None` for the own fleet. A booking names its own.
    pub partner: Option<PartnerName>,
    /// The partner's job id of the running attempt.
    pub job_id: Option<String>,
    /// A partner's driver is `{partner}:{its id}`.
    pub driver_id: Option<DriverId>,
    /// Own drivers who had the order and have it no more: they are not asked for it again.
    pub former_drivers: Vec<DriverId>,
    /// Offers or bookings made so far; the running attempt while `attempt_deadline` is set.
    pub attempt_no: i32,
    /// Restarts of the search: a driver whose offer lapsed is asked again in the next round.
    pub round: i32,
    /// End of the running attempt; `None` when none runs.
    pub attempt_deadline: Option<DateTime<Utc>>,
    /// When the next attempt is to start; `None` while one runs or none is wanted. Of an order that waits for a driver: when the first
    /// search after this pause was due; see [`OrderDeadlines::attempt_due`].
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Times the partner was asked about the running attempt's booking.
    pub poll_no: i32,
    /// When the partner is asked again; `None` when nothing is asked.
    pub next_poll_at: Option<DateTime<Utc>>,
    /// Times the partner was asked for a job id, over all bookings: the `total_attempts` of messages and logs. 0 of the own fleet.
    pub job_id_asks: i32,
    pub lifetime_deadline: DateTime<Utc>,
    pub lifetime_waived: bool,
    /// With a driver: when the next step of the trip is overdue. `None` once support was told, or when none is configured.
    pub trip_deadline: Option<DateTime<Utc>>,
    pub held_for_review: bool,
    /// Why, as people read it.
    pub held_reason: Option<String>,
    /// Why, as decisions read it.
    #[serde(skip)]
    #[sqlx(json(nullable))]
    pub hold_cause: Option<HoldCause>,
    /// Raised by every change; a change names the version it was decided on.
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub closed_at: Option<DateTime<Utc>>,
}

impl Order {
    /// An unpaid order of the own fleet, right after its creation, with half an hour to live.
    pub fn new_unpaid(id: OrderId, service_type: ServiceType, pickup: LatLng, now: DateTime<Utc>) -> Self {
        Self {
            id,
            service_type,
            area_id: None,
            customer_id: None,
            language: None,
            channel: None,
            loyalty_level: None,
            admission: None,
            owner: None,
            pickup_lat: pickup.lat,
            pickup_lng: pickup.lng,
            amount_minor: None,
            currency: None,
            payment_status: PaymentStatus::Unpaid,
            paid_at: None,
            status: OrderStatus::Dispatching,
            partner: None,
            job_id: None,
            driver_id: None,
            former_drivers: Vec::new(),
            attempt_no: 0,
            round: 1,
            attempt_deadline: None,
            next_attempt_at: Some(now),
            poll_no: 0,
            next_poll_at: None,
            job_id_asks: 0,
            lifetime_deadline: now + TimeDelta::minutes(30),
            lifetime_waived: false,
            trip_deadline: None,
            held_for_review: false,
            held_reason: None,
            hold_cause: None,
            version: 0,
            created_at: now,
            updated_at: now,
            closed_at: None,
        }
    }

    pub fn pickup(&self) -> LatLng {
        LatLng::new(self.pickup_lat, self.pickup_lng)
    }

    pub fn attempt_number(&self) -> u32 {
        self.attempt_no.unsigned_abs()
    }

    /// See [`OrderDeadlines::search_pause`].
    pub fn search_pause(&self) -> Option<TimeDelta> {
        OrderDeadlines::from(self).search_pause()
    }

    /// See [`OrderDeadlines::next_search_at`].
    pub fn next_search_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        OrderDeadlines::from(self).next_search_at(now)
    }

    /// Returns the job whose death put the order under review, if that is why.
    pub fn dead_timer(&self) -> Option<JobId> {
        match &self.hold_cause {
            Some(HoldCause::DeadTimer(job)) if self.held_for_review => Some(job.clone()),
            _ => None,
        }
    }

    /// A driver is still wanted and the lifetime is over: whatever else was to happen, the order ends now.
    pub fn is_past_lifetime(&self, now: DateTime<Utc>) -> bool {
        self.status.is_searching() && !self.lifetime_waived && !self.held_for_review && now >= self.lifetime_deadline
    }
}

impl From<&Order> for OrderDeadlines {
    fn from(order: &Order) -> Self {
        Self {
            id: order.id.clone(),
            status: order.status,
            partner: order.partner.clone(),
            attempt_no: order.attempt_no,
            round: order.round,
            attempt_deadline: order.attempt_deadline,
            next_attempt_at: order.next_attempt_at,
            poll_no: order.poll_no,
            next_poll_at: order.next_poll_at,
            lifetime_deadline: order.lifetime_deadline,
            lifetime_waived: order.lifetime_waived,
            trip_deadline: order.trip_deadline,
            held_for_review: order.held_for_review,
            updated_at: order.updated_at,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum OfferState {
    /// Waits for the driver's answer.
    Offered,
    Accepted,
    Declined,
    /// The attempt's deadline passed without an answer.
    Expired,
    /// Another offer of the same order was accepted.
    Superseded,
    /// Taken back: the order left, or the driver cannot answer.
    Withdrawn,
}

impl OfferState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A row of `offers`, as far as decisions need it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct Offer {
    pub id: OfferId,
    pub attempt_no: i32,
    pub round: i32,
    pub driver_id: DriverId,
    pub state: OfferState,
    pub offered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// An outbox row that still waits for its delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingMessage {
    pub id: i64,
    pub next_attempt_at: DateTime<Utc>,
}

/// An alert that escalates, or reminds, unless a person acknowledges it first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct PendingAlert {
    pub id: i64,
    pub kind: String,
    pub next_escalation_at: DateTime<Utc>,
}

/// A partner's callback that waits to be acted on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingCallback {
    pub id: i64,
    pub received_at: DateTime<Utc>,
}

/// A callback of a partner that has just come, and lies in the inbox with the change it leads to: as acted on.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrivedCallback {
    pub partner: PartnerName,
    pub event_id: String,
    pub booking_id: String,
    pub body: Value,
}

/// What the producer once said of the money.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownPayment {
    pub event_id: String,
    pub payment_status: PaymentStatus,
}

/// Row of `refunds`, as far as decisions need it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRefund {
    /// Refund id that the payment service returned; `None` until it has answered.
    pub refund_id: Option<String>,
    /// Refund ids of callbacks that are not the returned one, each once.
    pub other_refund_ids: Vec<String>,
    /// Whether the service reported that it paid its refund.
    pub was_paid: bool,
    /// Whether the service reported that its refund failed.
    pub has_failed: bool,
}

/// The share of a partner's orders whose job id is asked for, as operators set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollingShare {
    pub partner: PartnerName,
    /// `None`: nothing was set.
    pub percent: Option<i16>,
}

/// An order with all that hangs on it, and the time of reading: everything a decision may look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub order: Order,
    /// Those that are live or accepted, those of the running attempt, and the one that is being answered.
    pub offers: Vec<Offer>,
    pub bookings: Vec<Booking>,
    pub messages: Vec<PendingMessage>,
    pub alerts: Vec<PendingAlert>,
    pub callbacks: Vec<PendingCallback>,
    pub payments: Vec<KnownPayment>,
    /// Of an order that waits for its job id, and whose partner is not asked for it: what operators set for that partner.
    pub polling_share: Option<PollingShare>,
    /// Of an order in REFUND_PENDING: when the payment service is asked (again); `None`: people pay back by hand.
    pub refund_at: Option<DateTime<Utc>>,
    /// Of an order in REFUND_PENDING or REFUNDED: what the payment service was asked for; `None`: people pay back by hand.
    pub refund: Option<AskedRefund>,
    /// `dispatchq_now()`, read together with the row: the only time deadlines are compared with.
    pub now: DateTime<Utc>,
}

impl Snapshot {
    /// An order on which nothing hangs yet.
    pub fn from_order(order: Order, now: DateTime<Utc>) -> Self {
        Self {
            order,
            offers: Vec::new(),
            bookings: Vec::new(),
            messages: Vec::new(),
            alerts: Vec::new(),
            callbacks: Vec::new(),
            payments: Vec::new(),
            polling_share: None,
            refund_at: None,
            refund: None,
            now,
        }
    }

    /// The offers that still wait for an answer.
    pub fn live_offers(&self) -> impl Iterator<Item = &Offer> {
        self.offers.iter().filter(|o| o.state == OfferState::Offered)
    }

    /// The first of them.
    pub fn live_offer(&self) -> Option<&Offer> {
        self.live_offers().next()
    }

    /// Attempt `attempt_no`'s booking.
    pub fn booking_of_attempt(&self, attempt_no: i32) -> Option<&Booking> {
        self.bookings.iter().find(|b| b.attempt_no == attempt_no)
    }

    /// Returns whether the order ever got a job id in time. One of a former attempt, or after the lifetime, does not count.
    pub fn had_job_id(&self) -> bool {
        self.bookings.iter().any(|booking| booking.assigned_at.is_some())
    }

    /// The running attempt's booking, while it stands.
    pub fn live_booking(&self) -> Option<&Booking> {
        self.booking_of_attempt(self.order.attempt_no).filter(|b| b.state.is_live())
    }
}

#[cfg(any(test, feature = "fixtures"))]
pub mod fixture {
    //! An order as it stands right after creation, for unit tests of pure decisions.

    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;

    pub fn created_snapshot() -> Snapshot {
        let now = DateTime::from_timestamp_millis(1_800_000_000_000).unwrap();
        let mut order = Order::new_unpaid("ORD-1".parse().unwrap(), "RIDE".into(), LatLng::new(-6.2088, 106.8456), now);
        (order.amount_minor, order.currency) = (Some(150_000), Some("IDR".to_owned()));
        Snapshot::from_order(order, now)
    }

    /// The same order, served by the partner `bbd`.
    pub fn partner_snapshot() -> Snapshot {
        let mut s = created_snapshot();
        s.order.partner = Some("bbd".into());
        s.order.status = OrderStatus::PendingJobId;
        s
    }

    /// The order with attempt 1 running: driver `D1` was offered it just now, for 120 s.
    pub fn offered_snapshot() -> Snapshot {
        let mut s = created_snapshot();
        let deadline = s.now + TimeDelta::seconds(120);
        s.order.attempt_no = 1;
        s.order.next_attempt_at = None;
        s.order.attempt_deadline = Some(deadline);
        s.offers.push(Offer {
            id: OfferId::from_uuid(Uuid::from_u128(1)),
            attempt_no: 1,
            round: 1,
            driver_id: "D1".into(),
            state: OfferState::Offered,
            offered_at: s.now,
            expires_at: deadline,
        });
        s
    }
}
