//! The result of a decision, as a value.
//!
//! Decisions are pure: they take a [`Snapshot`] and return a [`Change`]. `Orders::change` writes the change in one
//! transaction, on the condition that the row still has the version that the decision used. If another change was
//! written first, nothing is written and the caller decides again.

use chrono::{DateTime, Utc};

use crate::{
    actor::Actor,
    details::OrderDetails,
    ids::AreaId,
    messages::{self, CancelCause, Message, MessageKind, PaymentTopic},
    order::{
        ArrivedCallback, AskedRefund, Booking, EventReason, HoldCause, KnownPayment, Offer, OfferState, Order,
        OrderStatus, PaymentStatus, Snapshot,
    },
    ranking::{DriverRanking, RankedDriver},
};

/// One event of the order history. `from` equals `to` if the order stays in its state, such as when an attempt starts
/// or ends.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderEvent {
    pub from: OrderStatus,
    pub to: OrderStatus,
    pub reason: EventReason,
    pub attempt_no: Option<i32>,
    pub detail: Option<String>,
}

/// Offers to create. They go to the best ranked drivers who are still free at the time of the write, at most `at_once`
/// of them.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOffers {
    /// Best first; never empty.
    pub ranked: Vec<RankedDriver>,
    /// Number of the wave that asks.
    pub wave: i32,
    pub at_once: u16,
    /// Maximum number of live offers per driver, over all orders.
    pub per_driver: u16,
    pub expires_at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OfferEnd {
    /// The offer before the change. The write requires that it is still in this state.
    pub offer: Offer,
    pub to: OfferState,
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertSettlement {
    pub kind: MessageKind,
    /// Settles only the alerts raised for this reason; `None` for all of this kind.
    pub reason: Option<String>,
    /// Note in their acknowledgement.
    pub note: String,
}

/// Effect of a change on the request to the payment service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundChange {
    Ask,
    /// The money was returned under this refund id of the service; `None` if it was refunded by hand.
    Done(Option<String>),
    /// The service refused. A person must refund.
    Refused {
        why: String,
        refund_id: Option<String>,
    },
    /// A callback named this refund id, which differs from the one that the service returned.
    OtherId(String),
    /// The service reported a result that settles nothing: the refund is already settled, or the service is no longer
    /// asked.
    Late {
        refund_id: String,
        was_paid: bool,
    },
}

impl RefundChange {
    fn apply_to(&self, refund: &mut AskedRefund) {
        let answered = match self {
            Self::Ask => return,
            Self::OtherId(refund_id) => return refund.other_refund_ids.push(refund_id.clone()),
            Self::Done(refund_id) => {
                refund.was_paid |= refund_id.is_some();
                refund_id
            }
            Self::Refused { refund_id, .. } => {
                refund.has_failed |= refund_id.is_some();
                refund_id
            }
            Self::Late { refund_id, was_paid } => {
                refund.was_paid |= was_paid;
                refund.has_failed |= !was_paid;
                &Some(refund_id.clone())
            }
        };
        refund.refund_id = refund.refund_id.take().or_else(|| answered.clone());
    }
}

/// Change to the contents of an order, whose pickup location is in the row.
#[derive(Debug, Clone, PartialEq)]
pub struct ContentsChange {
    /// Names of the changed members, as in a creation.
    pub fields: Vec<&'static str>,
    /// Contents after the change.
    pub details: OrderDetails,
}

/// Room that the area of an order must have for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AreaRoom {
    pub area: AreaId,
    /// The change is written only while fewer orders wait.
    pub limit: i64,
}

/// Everything that one transaction writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub actor: Actor,
    pub at: DateTime<Utc>,
    /// Version of the row that the decision used.
    pub version: i64,
    /// The row after the change.
    pub order: Order,
    pub events: Vec<OrderEvent>,
    pub offers: Vec<OfferEnd>,
    pub new_offers: Option<NewOffers>,
    /// Number of an attempt and the ranking for it, as stored to explain the order.
    pub ranking: Option<(i32, DriverRanking)>,
    /// Bookings after the change. Missing ones are inserted.
    pub bookings: Vec<Booking>,
    /// Inbox id of the callback that caused this change, and its result. The callback is marked as applied.
    pub callback: Option<(i64, &'static str)>,
    /// The callback that caused this change, if it is to be stored with it. The write requires that its event is not
    /// stored yet.
    pub arrival: Option<Box<ArrivedCallback>>,
    /// Event id and word of the producer's payment event.
    pub payment_event: Option<(String, PaymentStatus)>,
    pub refund: Option<RefundChange>,
    pub contents: Option<Box<ContentsChange>>,
    pub messages: Vec<Message>,
    /// Alerts that this change settles. The open ones are acknowledged.
    pub settles: Vec<AlertSettlement>,
    /// Condition of the write. Postgres counts under the lock of the area.
    pub room: Option<AreaRoom>,
}

impl Change {
    /// Returns an empty change. The first change of an order that was created with an unknown payment status also
    /// notifies support, whichever program created the order.
    pub fn new(snapshot: &Snapshot, actor: impl Into<Actor>) -> Self {
        let created_with = (snapshot.order.version == 0).then_some(&snapshot.order.payment_status);
        let unknown = created_with.filter(|word| !word.is_known()).map(|word| {
            let why = format!("created with the unknown payment status {word}");
            messages::payment_alert(&snapshot.order, PaymentTopic::UnknownWord, &why, snapshot.now)
        });
        Self {
            actor: actor.into(),
            at: snapshot.now,
            version: snapshot.order.version,
            order: snapshot.order.clone(),
            events: Vec::new(),
            offers: Vec::new(),
            new_offers: None,
            ranking: None,
            bookings: Vec::new(),
            callback: None,
            arrival: None,
            payment_event: None,
            refund: None,
            contents: None,
            messages: unknown.into_iter().collect(),
            settles: Vec::new(),
            room: None,
        }
    }

    /// Returns whether the change writes only the row, its events, its bookings and its callback.
    pub fn is_core(&self) -> bool {
        self.offers.is_empty()
            && self.new_offers.is_none()
            && self.ranking.is_none()
            && self.payment_event.is_none()
            && self.refund.is_none()
            && self.contents.is_none()
            && self.messages.is_empty()
            && self.settles.is_empty()
    }

    pub fn is_nothing(&self, before: &Order) -> bool {
        let writes = !self.events.is_empty() || !self.bookings.is_empty();
        let is_told = self.callback.is_some() || self.arrival.is_some();
        self.is_core() && !writes && !is_told && self.order == *before
    }

    /// Moves the order to another state.
    pub fn transition_to(&mut self, to: OrderStatus, reason: EventReason, detail: Option<String>) {
        let from = self.order.status;
        self.order.status = to;
        if to.is_closed() && self.order.closed_at.is_none() {
            self.order.closed_at = Some(self.at);
        }
        if !to.lacks_driver() {
            self.order.attempt_deadline = None;
            self.order.next_wave_at = None;
            self.order.next_attempt_at = None;
        }
        for kind in settled_alert_kinds(from, to) {
            self.acknowledge_alerts(*kind, format!("the order became {to}"));
        }
        // A missing time means that dispatchers were warned.
        if from.lacks_driver() && !to.lacks_driver() && self.order.pickup_at.is_some() && self.order.warn_at.is_none() {
            self.acknowledge_alerts(MessageKind::ScheduledWithoutDriver, format!("the order became {to}"));
        }
        // A missing deadline means that support was notified of the stale trip.
        if from.occupies_driver() && self.order.trip_deadline.take().is_none() && from != to {
            self.acknowledge_alerts(MessageKind::StaleTrip, format!("the order became {to}"));
        }
        if !to.is_searching() && !to.occupies_driver() {
            self.order.next_poll_at = None;
        }
        self.push_event(from, reason, detail);
    }

    /// Records an event that leaves the state unchanged.
    pub fn record_event(&mut self, reason: EventReason, detail: Option<String>) {
        self.push_event(self.order.status, reason, detail);
    }

    fn push_event(&mut self, from: OrderStatus, reason: EventReason, detail: Option<String>) {
        let attempt_no = (self.order.attempt_no > 0).then_some(self.order.attempt_no);
        self.events.push(OrderEvent { from, to: self.order.status, reason, attempt_no, detail });
    }

    /// Ends the running attempt, if any, with this outcome. Live offers get the state `state`, and the booking is
    /// marked to be cancelled.
    pub fn end_attempt(&mut self, snapshot: &Snapshot, state: OfferState, reason: EventReason) {
        debug_assert!(reason.ends_attempt());
        self.close_offers(snapshot, state);
        let awaits_job_id = self.order.status == OrderStatus::PendingJobId && snapshot.live_booking().is_some();
        self.withdraw_bookings(snapshot);
        let has_next_wave = self.order.next_wave_at.take().is_some();
        if self.order.attempt_deadline.take().is_some() || awaits_job_id {
            // If all offers of the last wave were answered, the last answer has already recorded the outcome.
            let mut asked = snapshot.offers.iter().filter(|o| o.attempt_no == self.order.attempt_no).peekable();
            let answered = !has_next_wave && asked.peek().is_some() && asked.all(|o| o.state != OfferState::Offered);
            if !answered {
                self.record_event(reason, None);
            }
        }
    }

    /// Ends the offer of one of the asked drivers. If no other driver is asked, the next wave starts now. After the last
    /// wave the attempt ends now, not at its deadline.
    pub fn end_offer(&mut self, snapshot: &Snapshot, offer: &Offer, to: OfferState, why: Option<String>) {
        self.offers.push(OfferEnd { offer: offer.clone(), to, why: why.clone() });
        let declined = to == OfferState::Declined;
        let is_last = snapshot.live_offers().all(|o| o.id == offer.id);
        if is_last && self.order.next_wave_at.is_some() {
            // Not after the attempt, whose timeout may be late.
            self.order.next_wave_at = self.order.attempt_deadline.map(|deadline| deadline.min(self.at));
        }
        if !is_last || self.order.next_wave_at.is_some() {
            self.record_event(if declined { EventReason::DriverDeclined } else { EventReason::DriverWithdrawn }, why);
        } else {
            // The timeout job is derived from the deadline. With the deadline set to now, it asks the next candidates
            // immediately.
            self.order.attempt_deadline = Some(self.at);
            self.record_event(if declined { EventReason::OfferDeclined } else { EventReason::OfferWithdrawn }, why);
        }
    }

    /// Removes the driver from the order. The driver is not asked for it again.
    pub fn give_back(&mut self, snapshot: &Snapshot, why: &str) {
        let accepted = snapshot.offers.iter().find(|o| o.state == OfferState::Accepted);
        self.offers.extend(accepted.map(|o| OfferEnd {
            offer: o.clone(),
            to: OfferState::Withdrawn,
            why: Some(why.to_owned()),
        }));
        self.order.former_drivers.extend(self.order.driver_id.take());
    }

    /// Marks every live booking to be cancelled at its partner.
    pub fn withdraw_bookings(&mut self, snapshot: &Snapshot) {
        let at = self.at;
        for booking in snapshot.bookings.iter().filter(|b| b.state.is_live()) {
            self.booking_mut(booking).want_cancel(at);
        }
        self.order.next_poll_at = None;
    }

    /// Ends every live offer with this state.
    pub fn close_offers(&mut self, snapshot: &Snapshot, state: OfferState) {
        self.offers.extend(snapshot.live_offers().map(|o| OfferEnd { offer: o.clone(), to: state, why: None }));
    }

    /// Returns a booking of the snapshot, for modification.
    pub fn booking_mut(&mut self, before: &Booking) -> &mut Booking {
        let known = self.bookings.iter().position(|b| b.attempt_no == before.attempt_no);
        let index = known.unwrap_or_else(|| {
            self.bookings.push(before.clone());
            self.bookings.len() - 1
        });
        &mut self.bookings[index]
    }

    /// Notifies an own driver who loses the order on the way. Does nothing for partner drivers.
    pub fn tell_driver_of_loss(&mut self, why: &str) {
        let ours = self.order.partner.is_none() && self.order.status.occupies_driver();
        if let Some(driver) = self.order.driver_id.clone().filter(|_| ours) {
            self.notify(messages::driver_unassigned(&self.order, &driver, why, self.at));
        }
    }

    /// Ends an order whose driver returned it too late to find another, for our own fleet and for partners. Notifies
    /// the customer, and support if money is involved.
    pub fn end_without_driver(&mut self, reason: EventReason, detail: Option<String>) {
        self.release_hold();
        self.transition_to(OrderStatus::CancelledByDriver, reason, detail);
        self.notify(messages::customer_cancelled(&self.order, CancelCause::DriverLeft, self.at));
        self.tell_of_payment("cancelled by the driver");
    }

    /// Notifies support if a cancelled order needs a refund or its payment is unclear.
    pub fn tell_of_payment(&mut self, cancelled: &str) {
        let order = &self.order;
        let message = if order.owes_refund() {
            messages::refund_required(order, cancelled, self.at)
        } else if order.is_payment_unclear() {
            let word = &order.payment_status;
            let why = format!("{cancelled} while the payment is {word}, and no payment is known");
            messages::payment_alert(order, PaymentTopic::UnknownAtEnd, &why, self.at)
        } else {
            return;
        };
        self.notify(message);
    }

    pub fn notify(&mut self, message: Message) {
        self.messages.push(message);
    }

    pub fn acknowledge_alerts(&mut self, kind: MessageKind, note: String) {
        self.settles.push(AlertSettlement { kind, reason: None, note });
    }

    /// Stops the order's timers until a person decides. Live offers are withdrawn.
    pub fn hold_for_review(&mut self, snapshot: &Snapshot, cause: HoldCause, why: impl Into<String>) {
        let why = why.into();
        // A driver who already has the order keeps it.
        if self.order.status.is_searching() {
            self.end_attempt(snapshot, OfferState::Withdrawn, EventReason::AttemptWithdrawn);
        }
        self.order.next_attempt_at = None;
        self.order.next_poll_at = None;
        self.order.held_for_review = true;
        self.order.held_reason = Some(why.clone());
        self.order.hold_cause = Some(cause);
        self.record_event(EventReason::HeldForReview, Some(why));
    }

    /// Ends the review, and acknowledges the alert that was raised for it. That alert has the same reason as the
    /// review. Other alerts of the order stay open.
    pub fn release_hold(&mut self) {
        let held_reason = self.order.held_reason.take();
        self.order.hold_cause = None;
        if std::mem::take(&mut self.order.held_for_review) {
            for kind in [MessageKind::UnexpectedState, MessageKind::TimerDead] {
                let note = "the review ended".to_owned();
                self.settles.push(AlertSettlement { kind, reason: held_reason.clone(), note });
            }
        }
    }
}

fn settled_alert_kinds(from: OrderStatus, to: OrderStatus) -> &'static [MessageKind] {
    match (from, to) {
        (OrderStatus::Pending, OrderStatus::Pending) => &[],
        (OrderStatus::Pending, _) => &[MessageKind::DispatchFailed],
        (OrderStatus::Compensating, _) => &[MessageKind::StatusUpdateFailed],
        (_, OrderStatus::RefundPending | OrderStatus::Refunded) => &[MessageKind::ManualRefundRequired],
        _ => &[],
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Change(Box<Change>),
    /// The order is already in the requested state, such as after a repeated request.
    Unchanged,
    Refuse(OrderRefusal),
}

impl Decision {
    pub fn signed_by(mut self, actor: &Actor) -> Self {
        if let Self::Change(change) = &mut self {
            change.actor = actor.clone();
        }
        self
    }

    /// Appends the reason to the last event, after any detail that the decision recorded.
    #[must_use]
    pub fn with_reason(mut self, why: Option<&str>) -> Self {
        if let (Self::Change(change), Some(why)) = (&mut self, why)
            && let Some(event) = change.events.last_mut()
        {
            event.detail = Some(match event.detail.take() {
                Some(detail) => format!("{detail}: {why}"),
                None => why.to_owned(),
            });
        }
        self
    }
}

impl From<Change> for Decision {
    fn from(change: Change) -> Self {
        Self::Change(Box::new(change))
    }
}

/// Reason why a request is refused. The text names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderRefusal {
    #[error("the order is {0}: nothing more can be done with it")]
    OrderFinished(OrderStatus),
    #[error("the order is {status}, which does not allow this; allowed from: {allowed}")]
    WrongState { status: OrderStatus, allowed: &'static str },
    #[error("another driver has this order")]
    AlreadyAssigned,
    #[error("another driver is taking this order; try again in a second, it may become free")]
    ReservationInProgress,
    #[error("no such offer of this order; look the offer id up in the offer message")]
    #[strum(serialize = "OFFER_NOT_FOUND")]
    NoSuchOffer,
    #[error("the offer was made to another driver; answer with the id of your own offer")]
    NotYourOffer,
    #[error("the offer expired before it was answered")]
    OfferExpired,
    #[error("the offer was declined before")]
    OfferDeclined,
    #[error("the offer is no longer valid: {0}")]
    OfferGone(&'static str),
    #[error("this driver already has an active order; it must be completed first")]
    DriverBusy,
    #[error("the order belongs to another driver")]
    NotYourOrder,
    #[error("no order with this id")]
    #[strum(serialize = "ORDER_NOT_FOUND")]
    NoSuchOrder,
    #[error("no driver with this id; add it with: dispatchq driver import")]
    #[strum(serialize = "DRIVER_NOT_FOUND")]
    NoSuchDriver,
    #[error("this event id was used with another payment status; use a new id for a new event")]
    PaymentEventReused,
    #[error("internal error: an order cannot change from {from} to {to}; please report it")]
    #[strum(serialize = "ILLEGAL_TRANSITION")]
    Illegal { from: OrderStatus, to: OrderStatus },
    #[error("this order owes no money, so there is nothing to refund")]
    NothingPaid,
    #[error("the payment service was not asked for a refund of this order; staff refund it by hand")]
    RefundNotAsked,
    #[error("the payment service has not returned the id of this refund yet; send the callback again")]
    RefundUnanswered,
    #[error("the lifetime of this order is over; assign a driver by hand or cancel it")]
    LifetimeOver,
    #[error("the partner chooses the driver of this order; cancel the order, or ask the partner")]
    ServedByPartner,
}

impl OrderRefusal {
    pub fn error_code(&self) -> &'static str {
        self.into()
    }
}

impl Snapshot {
    /// Returns the order after this change, at the time of reading. It lacks data that only Postgres knows: new offers,
    /// ids of messages and alerts, and callbacks that match a booking.
    #[must_use]
    pub fn apply(&self, change: &Change) -> Self {
        let mut after = self.clone();
        after.order = Order { version: change.version + 1, updated_at: change.at, ..change.order.clone() };
        for end in &change.offers {
            if let Some(offer) = after.offers.iter_mut().find(|o| o.id == end.offer.id) {
                offer.state = end.to;
            }
        }
        for changed in &change.bookings {
            match after.bookings.iter_mut().find(|b| b.attempt_no == changed.attempt_no) {
                Some(booking) => booking.clone_from(changed),
                None => after.bookings.push(changed.clone()),
            }
        }
        after.callbacks.retain(|c| change.callback.is_none_or(|(id, _)| c.id != id));
        match &change.refund {
            None => {}
            Some(RefundChange::Ask) => {
                after.refund_at = Some(change.at);
                after.refund = Some(AskedRefund::default());
            }
            Some(changed) => {
                if matches!(changed, RefundChange::Done(_) | RefundChange::Refused { .. }) {
                    after.refund_at = None;
                }
                if let Some(refund) = &mut after.refund {
                    changed.apply_to(refund);
                }
            }
        }
        let event = change.payment_event.clone();
        after.payments.extend(event.map(|(event_id, payment_status)| KnownPayment { event_id, payment_status }));
        after
    }
}
