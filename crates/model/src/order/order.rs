//! The order row, and the snapshot that decisions use.

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
    /// Language of messages to the customer; `None` for the installation's language.
    pub language: Option<LanguageTag>,
    /// Sales channel of the order, such as MYBB or WEB.
    pub channel: Option<String>,
    /// Loyalty level as the producer sent it. An unknown level does not bypass a threshold.
    pub loyalty_level: Option<String>,
    /// TAKEN, BYPASSED or WOULD_REFUSE; `None` if no area decided.
    pub admission: Option<String>,
    /// Whether the order has [contents](crate::details::OrderDetails).
    pub has_details: bool,
    /// Producer that owns the order. `None`: only staff can see the order.
    pub owner: Option<String>,
    pub pickup_lat: f64,
    pub pickup_lng: f64,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
    #[sqlx(try_from = "String")]
    pub payment_status: PaymentStatus,
    /// Time of the first reported payment. Later payment statuses do not change it; see [`Order::was_ever_paid`].
    pub paid_at: Option<DateTime<Utc>>,
    pub status: OrderStatus,
    /// Partner of the latest attempt, or the partner listed first; `None` for our own fleet. Each booking names its own
    /// partner.
    pub partner: Option<PartnerName>,
    /// The partner's job id of the running attempt.
    pub job_id: Option<String>,
    /// A partner's driver is `{partner}:{its id}`.
    pub driver_id: Option<DriverId>,
    /// Own drivers who had the order and lost it. They are not asked for it again.
    pub former_drivers: Vec<DriverId>,
    /// Number of offers or bookings so far. While `attempt_deadline` is set, this is the running attempt.
    pub attempt_no: i32,
    /// Number of the search round. A driver whose offer expired is asked again in the next round.
    pub round: i32,
    /// End of the running attempt; `None` when none runs.
    pub attempt_deadline: Option<DateTime<Utc>>,
    /// Number of the running attempt's wave, from 1.
    pub wave_no: i32,
    /// Start of the next wave of the running attempt; `None` if no attempt runs, or its last wave does.
    pub next_wave_at: Option<DateTime<Utc>>,
    /// Due time of the next attempt; `None` while one runs or none is needed. For an order that waits for a driver, the
    /// due time of the first search after this pause; see [`OrderDeadlines::attempt_due`].
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Number of polls about the booking of the running attempt.
    pub poll_no: i32,
    /// Time of the next poll; `None` if no poll is needed.
    pub next_poll_at: Option<DateTime<Utc>>,
    /// Number of requests to partners for a job id, over all bookings. Messages and logs call it `total_attempts`. 0
    /// for our own fleet.
    pub job_id_asks: i32,
    pub lifetime_deadline: DateTime<Utc>,
    /// Time at which the customer wants to be picked up; `None`: as soon as possible.
    pub pickup_at: Option<DateTime<Utc>>,
    /// Start of dispatch, from which the lifetime counts; `None` if the creation started it.
    pub starts_at: Option<DateTime<Utc>>,
    /// Time of the warning that the order has no driver; `None` if none is due, or after it.
    pub warn_at: Option<DateTime<Utc>>,
    pub lifetime_waived: bool,
    /// Deadline of the next trip step, while the order has a driver. `None` after support was notified, or if no limit
    /// is configured.
    pub trip_deadline: Option<DateTime<Utc>>,
    pub held_for_review: bool,
    /// Reason for the hold, as text for people.
    pub held_reason: Option<String>,
    /// Reason for the hold, for decisions.
    #[serde(skip)]
    #[sqlx(json(nullable))]
    pub hold_cause: Option<HoldCause>,
    /// Incremented by every change. A change names the version that its decision used.
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub closed_at: Option<DateTime<Utc>>,
}

impl Order {
    /// Creates an unpaid order of our own fleet with a lifetime of 30 minutes.
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
            has_details: false,
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
            wave_no: 1,
            next_wave_at: None,
            next_attempt_at: Some(now),
            poll_no: 0,
            next_poll_at: None,
            job_id_asks: 0,
            lifetime_deadline: now + TimeDelta::minutes(30),
            pickup_at: None,
            starts_at: None,
            warn_at: None,
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

    /// Returns the order as it was created, with this payment status, partner and schedule.
    pub fn at_creation(
        self,
        payment_status: PaymentStatus,
        partner: Option<PartnerName>,
        schedule: CreatedSchedule,
    ) -> Self {
        let new = Self::new_unpaid(self.id.clone(), self.service_type.clone(), self.pickup(), self.created_at);
        Self {
            area_id: self.area_id,
            customer_id: self.customer_id,
            language: self.language,
            channel: self.channel,
            loyalty_level: self.loyalty_level,
            admission: self.admission,
            owner: self.owner,
            amount_minor: self.amount_minor,
            currency: self.currency,
            lifetime_deadline: schedule.lifetime_deadline,
            pickup_at: schedule.pickup_at,
            starts_at: schedule.starts_at,
            next_attempt_at: schedule.starts_at.or(new.next_attempt_at),
            paid_at: payment_status.is_paid().then_some(self.created_at),
            status: match &partner {
                _ if schedule.starts_at.is_some() => OrderStatus::Scheduled,
                None => OrderStatus::Dispatching,
                Some(_) => OrderStatus::PendingJobId,
            },
            payment_status,
            partner,
            ..new
        }
    }

    /// Returns when dispatch starts or started, from which the order waits for a driver.
    pub fn dispatch_start(&self) -> DateTime<Utc> {
        self.starts_at.unwrap_or(self.created_at)
    }

    pub fn pickup(&self) -> LatLng {
        LatLng::new(self.pickup_lat, self.pickup_lng)
    }

    pub fn attempt_number(&self) -> u32 {
        self.attempt_no.unsigned_abs()
    }

    /// Returns the pause between searches; see [`OrderDeadlines::search_pause`].
    pub fn search_pause(&self) -> Option<TimeDelta> {
        OrderDeadlines::from(self).search_pause()
    }

    /// Returns when the next search is due; see [`OrderDeadlines::next_search_at`].
    pub fn next_search_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        OrderDeadlines::from(self).next_search_at(now)
    }

    /// Returns the dead job that put the order under review, if that is the cause.
    pub fn dead_timer(&self) -> Option<JobId> {
        match &self.hold_cause {
            Some(HoldCause::DeadTimer(job)) if self.held_for_review => Some(job.clone()),
            _ => None,
        }
    }

    /// Returns whether the lifetime ended while the order still needs a driver. Such an order must end, whatever else
    /// is due.
    pub fn is_past_lifetime(&self, now: DateTime<Utc>) -> bool {
        self.status.lacks_driver() && !self.lifetime_waived && !self.held_for_review && now >= self.lifetime_deadline
    }
}

/// Times of an order as its creation set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedSchedule {
    pub pickup_at: Option<DateTime<Utc>>,
    pub starts_at: Option<DateTime<Utc>>,
    pub lifetime_deadline: DateTime<Utc>,
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
            wave_no: order.wave_no,
            next_wave_at: order.next_wave_at,
            next_attempt_at: order.next_attempt_at,
            poll_no: order.poll_no,
            next_poll_at: order.next_poll_at,
            lifetime_deadline: order.lifetime_deadline,
            warn_at: order.warn_at,
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
    Offered,
    Accepted,
    Declined,
    /// The attempt deadline passed without an answer.
    Expired,
    /// Another offer of the same order was accepted.
    Superseded,
    /// Withdrawn: the order no longer needs an answer, or the driver cannot answer.
    Withdrawn,
}

impl OfferState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A row of `offers`, with the columns that decisions need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct Offer {
    pub id: OfferId,
    pub attempt_no: i32,
    /// Number of the wave of the attempt that asked the driver, from 1.
    pub wave: i32,
    pub round: i32,
    pub driver_id: DriverId,
    pub state: OfferState,
    pub offered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// An outbox row that waits for its delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingMessage {
    pub id: i64,
    pub next_attempt_at: DateTime<Utc>,
}

/// An alert that escalates or reminds until a person acknowledges it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct PendingAlert {
    pub id: i64,
    pub kind: String,
    pub next_escalation_at: DateTime<Utc>,
}

/// A partner's callback that waits to be applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingCallback {
    pub id: i64,
    pub received_at: DateTime<Utc>,
}

/// A partner's callback that has just arrived. The change that it causes stores it in the inbox as applied.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrivedCallback {
    pub partner: PartnerName,
    pub event_id: String,
    pub booking_id: String,
    pub body: Value,
}

/// An earlier payment event of the producer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownPayment {
    pub event_id: String,
    pub payment_status: PaymentStatus,
}

/// A row of `refunds`, with the columns that decisions need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRefund {
    /// Refund id that the payment service returned; `None` before its answer.
    pub refund_id: Option<String>,
    /// Distinct refund ids from callbacks that differ from the returned id.
    pub other_refund_ids: Vec<String>,
    /// Whether the service reported that it paid the refund.
    pub was_paid: bool,
    pub has_failed: bool,
}

/// Share of a partner's orders whose job id is polled, as set by operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollingShare {
    pub partner: PartnerName,
    /// `None` if operators set no share.
    pub percent: Option<i16>,
}

/// An order with its related rows and the time of reading. Decisions use nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub order: Order,
    /// Live and accepted offers, the offers of the running attempt, and the offer that is being answered.
    pub offers: Vec<Offer>,
    pub bookings: Vec<Booking>,
    pub messages: Vec<PendingMessage>,
    pub alerts: Vec<PendingAlert>,
    pub callbacks: Vec<PendingCallback>,
    pub payments: Vec<KnownPayment>,
    /// Share set for the order's partner. Loaded only for an order that waits for its job id and is not polled.
    pub polling_share: Option<PollingShare>,
    /// For an order in REFUND_PENDING: time of the next request to the payment service. `None`: staff refund by hand.
    pub refund_at: Option<DateTime<Utc>>,
    /// For an order in REFUND_PENDING or REFUNDED: the request to the payment service. `None`: staff refund by hand.
    pub refund: Option<AskedRefund>,
    /// `dispatchq_now()`, read together with the row. Deadlines are compared only with this time.
    pub now: DateTime<Utc>,
}

impl Snapshot {
    /// Creates a snapshot of an order without related rows.
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

    /// Returns the offers that wait for an answer.
    pub fn live_offers(&self) -> impl Iterator<Item = &Offer> {
        self.offers.iter().filter(|o| o.state == OfferState::Offered)
    }

    pub fn live_offer(&self) -> Option<&Offer> {
        self.live_offers().next()
    }

    pub fn booking_of_attempt(&self, attempt_no: i32) -> Option<&Booking> {
        self.bookings.iter().find(|b| b.attempt_no == attempt_no)
    }

    /// Returns whether the order ever got a job id in time. A job id of an earlier attempt, or one after the lifetime,
    /// does not count.
    pub fn had_job_id(&self) -> bool {
        self.bookings.iter().any(|booking| booking.assigned_at.is_some())
    }

    /// Returns the booking of the running attempt while it is live.
    pub fn live_booking(&self) -> Option<&Booking> {
        self.booking_of_attempt(self.order.attempt_no).filter(|b| b.state.is_live())
    }
}

#[cfg(any(test, feature = "fixtures"))]
pub mod fixture {
    //! Orders as they are right after creation, for unit tests of pure decisions.

    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;

    pub fn created_snapshot() -> Snapshot {
        let now = DateTime::from_timestamp_millis(1_800_000_000_000).unwrap();
        let mut order = Order::new_unpaid("ORD-1".parse().unwrap(), "RIDE".into(), LatLng::new(-6.2088, 106.8456), now);
        (order.amount_minor, order.currency) = (Some(150_000), Some("IDR".to_owned()));
        Snapshot::from_order(order, now)
    }

    /// Returns the order with a pickup in an hour: dispatch starts 20 minutes before it, the warning is due 10 minutes
    /// before it.
    pub fn scheduled_snapshot() -> Snapshot {
        let mut s = created_snapshot();
        let starts_at = s.now + TimeDelta::minutes(40);
        s.order.status = OrderStatus::Scheduled;
        (s.order.pickup_at, s.order.starts_at) = (Some(s.now + TimeDelta::minutes(60)), Some(starts_at));
        (s.order.warn_at, s.order.next_attempt_at) = (Some(s.now + TimeDelta::minutes(50)), Some(starts_at));
        s.order.lifetime_deadline = starts_at + TimeDelta::minutes(30);
        s
    }

    /// Returns the same order, served by the partner `bbd`.
    pub fn partner_snapshot() -> Snapshot {
        let mut s = created_snapshot();
        s.order.partner = Some("bbd".into());
        s.order.status = OrderStatus::PendingJobId;
        s
    }

    /// Returns the order with attempt 1 running: driver `D1` has just got an offer for 120 s.
    pub fn offered_snapshot() -> Snapshot {
        let mut s = created_snapshot();
        let deadline = s.now + TimeDelta::seconds(120);
        s.order.attempt_no = 1;
        s.order.next_attempt_at = None;
        s.order.attempt_deadline = Some(deadline);
        s.offers.push(Offer {
            id: OfferId::from_uuid(Uuid::from_u128(1)),
            attempt_no: 1,
            wave: 1,
            round: 1,
            driver_id: "D1".into(),
            state: OfferState::Offered,
            offered_at: s.now,
            expires_at: deadline,
        });
        s
    }
}
