//! What a decision wants done, as a value.
//!
//! Decisions are pure: they look at a [`Snapshot`] and answer with a [`Change`]. `orders::store` writes it in one
//! transaction, on the condition that the row still has the version the decision was made on. A change that lost the
//! race changes nothing and is decided anew.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Offer, OfferState, Order, Reason, Snapshot, Status};
use crate::notifications::{Message, messages};

/// One line of the history. `from` = `to` when an attempt starts or ends without the order leaving its state.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub from: Status,
    pub to: Status,
    pub reason: Reason,
    pub attempt_no: Option<i32>,
    pub detail: Option<String>,
}

/// An offer to make: to the first of these drivers whom no other order has taken meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOffer {
    pub id: Uuid,
    /// Driver ids with their distance in metres, best first; never empty.
    pub ranked: Vec<(String, f64)>,
    pub expires_at: DateTime<Utc>,
}

/// Everything one transaction writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub actor: String,
    pub at: DateTime<Utc>,
    /// The version the decision was made on.
    pub version: i64,
    /// The row as it shall be.
    pub order: Order,
    pub events: Vec<Event>,
    /// Offers that leave the state they are in, and must still be in it.
    pub offers: Vec<(Offer, OfferState)>,
    pub new_offer: Option<NewOffer>,
    pub messages: Vec<Message>,
    /// Kinds of alerts whose matter this settles, and why: those of them that are open are acknowledged.
    pub settles: Vec<(&'static str, String)>,
}

impl Change {
    /// A change of nothing yet.
    pub fn of(snapshot: &Snapshot, actor: impl Into<String>) -> Self {
        Self {
            actor: actor.into(),
            at: snapshot.now,
            version: snapshot.order.version,
            order: snapshot.order.clone(),
            events: Vec::new(),
            offers: Vec::new(),
            new_offer: None,
            messages: Vec::new(),
            settles: Vec::new(),
        }
    }

    /// Goes to another state.
    pub fn enter(&mut self, to: Status, reason: Reason, detail: Option<String>) {
        let from = self.order.status;
        self.order.status = to;
        if to.is_closed() && self.order.closed_at.is_none() {
            self.order.closed_at = Some(self.at);
        }
        if !to.is_searching() {
            self.order.attempt_deadline = None;
            self.order.next_attempt_at = None;
        }
        for kind in settled_by(from, to) {
            self.settle(kind, format!("the order became {to}"));
        }
        self.event(from, reason, detail);
    }

    /// Records something that happened within the state.
    pub fn note(&mut self, reason: Reason, detail: Option<String>) {
        self.event(self.order.status, reason, detail);
    }

    fn event(&mut self, from: Status, reason: Reason, detail: Option<String>) {
        let attempt_no = (self.order.attempt_no > 0).then_some(self.order.attempt_no);
        self.events.push(Event { from, to: self.order.status, reason, attempt_no, detail });
    }

    /// Ends the running attempt, if any, with this outcome; its live offers take `state`.
    pub fn end_attempt(&mut self, snapshot: &Snapshot, state: OfferState, reason: Reason) {
        debug_assert!(reason.ends_attempt());
        self.close_offers(snapshot, state);
        if self.order.attempt_deadline.take().is_some() {
            // A declined attempt has its outcome already: the decline.
            let declined = snapshot
                .offers
                .iter()
                .any(|o| o.attempt_no == self.order.attempt_no && o.state == OfferState::Declined);
            if !declined {
                self.note(reason, None);
            }
        }
    }

    /// Gives every live offer its end.
    pub fn close_offers(&mut self, snapshot: &Snapshot, state: OfferState) {
        let live = snapshot.offers.iter().filter(|o| o.state == OfferState::Offered);
        self.offers.extend(live.map(|o| (o.clone(), state)));
    }

    pub fn tell(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Acknowledges the open alerts of this kind.
    pub fn settle(&mut self, kind: &'static str, note: String) {
        self.settles.push((kind, note));
    }

    /// Stops the order's timers until a person has decided. Whoever was asked is asked no more.
    pub fn hold(&mut self, snapshot: &Snapshot, why: impl Into<String>) {
        let why = why.into();
        self.end_attempt(snapshot, OfferState::Withdrawn, Reason::AttemptWithdrawn);
        self.order.next_attempt_at = None;
        self.order.held_for_review = true;
        self.order.held_reason = Some(why.clone());
        self.note(Reason::HeldForReview, Some(why));
    }

    pub fn release_hold(&mut self) {
        if self.order.held_for_review {
            self.settle(messages::UNEXPECTED_STATE, "the review ended".to_owned());
            self.settle(messages::TIMER_DEAD, "the review ended".to_owned());
        }
        self.order.held_for_review = false;
        self.order.held_reason = None;
    }
}

/// Alerts that need nobody any more once an order goes from one state to another.
fn settled_by(from: Status, to: Status) -> &'static [&'static str] {
    match (from, to) {
        (Status::Pending, Status::Pending) => &[],
        (Status::Pending, _) => &[messages::DISPATCH_FAILED],
        (Status::Compensating, _) => &[messages::STATUS_UPDATE_FAILED],
        (_, Status::RefundPending | Status::Refunded) => &[messages::MANUAL_REFUND_REQUIRED],
        _ => &[],
    }
}

/// What a decision comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Change(Box<Change>),
    /// It is so already: the same request came before.
    Unchanged,
    Refuse(Refusal),
}

impl From<Change> for Decision {
    fn from(change: Change) -> Self {
        Self::Change(Box::new(change))
    }
}

/// Why a request cannot be done. The text says what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the order is {0}: nothing more can be done with it")]
    OrderFinished(Status),
    #[error("the order is {status}, which does not allow this; allowed from: {allowed}")]
    WrongState { status: Status, allowed: &'static str },
    #[error("another driver has this order")]
    AlreadyAssigned,
    #[error("no such offer for this driver and order; look the offer id up in the offer message")]
    NoSuchOffer,
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
    #[error("no driver of this id; add it with: dispatchq driver import")]
    NoSuchDriver,
    #[error("the lifetime of this order is over; assign a driver by hand or cancel it")]
    LifetimeOver,
}

impl Refusal {
    /// The stable word programs match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OrderFinished(_) => "ORDER_FINISHED",
            Self::WrongState { .. } => "WRONG_STATE",
            Self::AlreadyAssigned => "ALREADY_ASSIGNED",
            Self::NoSuchOffer => "OFFER_NOT_FOUND",
            Self::OfferExpired => "OFFER_EXPIRED",
            Self::OfferDeclined => "OFFER_DECLINED",
            Self::OfferGone(_) => "OFFER_GONE",
            Self::DriverBusy => "DRIVER_BUSY",
            Self::NotYourOrder => "NOT_YOUR_ORDER",
            Self::NoSuchDriver => "DRIVER_NOT_FOUND",
            Self::LifetimeOver => "LIFETIME_OVER",
        }
    }
}
