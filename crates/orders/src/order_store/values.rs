//! Values of a change, as JSON for the statement that writes changes. A missing value is null. `side_values` has those
//! of payments, refunds, contents and alerts.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    decide::Change,
    ids::{AreaId, DriverId, OfferId, PartnerName, ServiceType},
    messages::{ChannelRoutes, Message, body::MessageBody},
    order::{Booking, HoldCause, OrderStep},
    ranking::{DriverRanking, ExclusionReason},
};
use serde::Serialize;
use uuid::Uuid;

use notify::{
    deliveries::CLAIM,
    recipients::{Dispatcher, find_recipients},
};

/// Values for `orders`: every column that a change may set, and the conditions.
#[derive(Serialize)]
pub(super) struct OrderValues<'a> {
    id: &'a str,
    expected: i64,
    write_id: Uuid,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_id: Option<&'a DriverId>,
    attempt_no: i32,
    round: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_deadline: Option<DateTime<Utc>>,
    wave_no: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_wave_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<DateTime<Utc>>,
    lifetime_waived: bool,
    held_for_review: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_cause: Option<&'a HoldCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Option<DateTime<Utc>>,
    updated_at: DateTime<Utc>,
    payment_status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    paid_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<&'a str>,
    poll_no: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_poll_at: Option<DateTime<Utc>>,
    job_id_asks: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    partner: Option<&'a PartnerName>,
    former_drivers: &'a [DriverId],
    #[serde(skip_serializing_if = "Option::is_none")]
    trip_deadline: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pickup_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warn_at: Option<DateTime<Utc>>,
    /// `None` for an order without a pickup time.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_deadline: Option<DateTime<Utc>>,
    /// Verdict of the area at the start of a scheduled order.
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<&'a str>,
    /// Pickup location. `None` if the contents stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pickup_lat: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pickup_lng: Option<f64>,
    /// Area and service type that must have room, and the limit. `None` if the change needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    room_area: Option<&'a AreaId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    room_type: Option<&'a ServiceType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    room_limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'static str>,
    ended_offers: usize,
    new_offers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_driver: Option<&'a DriverId>,
    /// Time that Postgres' clock must have when the change is written, within a second. `None` if the decision read
    /// the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assumed_now: Option<DateTime<Utc>>,
    /// Write that made the row, if the decision used a kept order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) basis_write: Option<Uuid>,
}

impl<'a> OrderValues<'a> {
    /// Builds the values. `write_id` is stored with the change. `new_offers` is the number of offers it creates.
    pub(super) fn from_change(
        write_id: Uuid,
        change: &'a Change,
        new_offers: usize,
        freed_driver: Option<&'a DriverId>,
    ) -> Self {
        let order = &change.order;
        let (callback, result) = change.callback.unzip();
        let room = change.room.as_ref();
        Self {
            id: order.id.as_str(),
            expected: change.version,
            write_id,
            status: order.status.as_str(),
            driver_id: order.driver_id.as_ref(),
            attempt_no: order.attempt_no,
            round: order.round,
            attempt_deadline: order.attempt_deadline,
            wave_no: order.wave_no,
            next_wave_at: order.next_wave_at,
            next_attempt_at: order.next_attempt_at,
            lifetime_waived: order.lifetime_waived,
            held_for_review: order.held_for_review,
            held_reason: order.held_reason.as_deref(),
            hold_cause: order.hold_cause.as_ref(),
            closed_at: order.closed_at,
            updated_at: change.at,
            payment_status: order.payment_status.as_str(),
            paid_at: order.paid_at,
            job_id: order.job_id.as_deref(),
            poll_no: order.poll_no,
            next_poll_at: order.next_poll_at,
            job_id_asks: order.job_id_asks,
            partner: order.partner.as_ref(),
            former_drivers: &order.former_drivers,
            trip_deadline: order.trip_deadline,
            pickup_at: order.pickup_at,
            starts_at: order.starts_at,
            warn_at: order.warn_at,
            lifetime_deadline: order.pickup_at.map(|_| order.lifetime_deadline),
            admission: order.admission.as_deref().filter(|_| order.starts_at.is_some()),
            pickup_lat: change.contents.as_ref().map(|_| order.pickup_lat),
            pickup_lng: change.contents.as_ref().map(|_| order.pickup_lng),
            room_area: room.map(|room| &room.area),
            room_type: room.map(|_| &order.service_type),
            room_limit: room.map(|room| room.limit),
            callback,
            result,
            ended_offers: change.offers.len(),
            new_offers,
            freed_driver,
            assumed_now: None,
            basis_write: None,
        }
    }
}

/// Row of `order_events`, and of `order_feed` if it is a step.
#[derive(Serialize)]
pub(super) struct EventValues<'a> {
    order_id: &'a str,
    from_status: &'static str,
    to_status: &'static str,
    reason: &'static str,
    actor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_no: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    at: DateTime<Utc>,
    /// Step that is reported to the order's producer.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'static str>,
    /// Members of the order that the step changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<&'a [&'static str]>,
}

impl<'a> EventValues<'a> {
    pub(super) fn from_change(change: &'a Change) -> impl Iterator<Item = Self> {
        change.events.iter().zip(change.steps()).map(|(event, step)| Self {
            order_id: change.order.id.as_str(),
            from_status: event.from.as_str(),
            to_status: event.to.as_str(),
            reason: event.reason.as_str(),
            actor: change.actor.to_string(),
            key_id: change.actor.key,
            attempt_no: event.attempt_no,
            detail: event.detail.as_deref(),
            at: change.at,
            step: step.map(OrderStep::as_str),
            changed: change.contents.as_ref().filter(|_| step == Some(OrderStep::Updated)).map(|c| c.fields.as_slice()),
        })
    }

    pub(super) fn is_step(&self) -> bool {
        self.step.is_some()
    }
}

#[derive(Serialize)]
pub(super) struct BookingValues<'a> {
    order_id: &'a str,
    is_newly_known: bool,
    #[serde(flatten)]
    booking: &'a Booking,
}

impl<'a> BookingValues<'a> {
    /// Builds the rows. `newly_known` are the bookings whose id at the partner is new.
    pub(super) fn from_change(change: &'a Change, newly_known: &'a [Booking]) -> impl Iterator<Item = Self> {
        change.bookings.iter().map(|booking| Self {
            order_id: change.order.id.as_str(),
            is_newly_known: newly_known.contains(booking),
            booking,
        })
    }
}

/// Row of `inbox` for the callback that causes the change.
#[derive(Serialize)]
pub(super) struct ArrivalValues<'a> {
    order_id: &'a str,
    partner: &'a PartnerName,
    event_id: &'a str,
    booking_id: &'a str,
    body: &'a serde_json::Value,
    result: &'static str,
    at: DateTime<Utc>,
}

impl<'a> ArrivalValues<'a> {
    pub(super) fn from_change(change: &'a Change) -> Option<Self> {
        let callback = change.arrival.as_ref()?;
        Some(Self {
            order_id: change.order.id.as_str(),
            partner: &callback.partner,
            event_id: &callback.event_id,
            booking_id: &callback.booking_id,
            body: &callback.body,
            result: change.order.status.as_str(),
            at: change.at,
        })
    }
}

/// Update of a row of `offers`.
#[derive(Serialize)]
pub(super) struct OfferValues<'a> {
    order_id: &'a str,
    id: OfferId,
    from_state: &'static str,
    to_state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    at: DateTime<Utc>,
}

impl<'a> OfferValues<'a> {
    pub(super) fn from_change(change: &'a Change) -> impl Iterator<Item = Self> {
        change.offers.iter().map(|end| Self {
            order_id: change.order.id.as_str(),
            id: end.offer.id,
            from_state: end.offer.state.as_str(),
            to_state: end.to.as_str(),
            why: end.why.as_deref(),
            at: change.at,
        })
    }
}

#[derive(Serialize)]
pub(super) struct RankingValues<'a> {
    order_id: &'a str,
    attempt_no: i32,
    at: DateTime<Utc>,
    /// Ranked drivers, then excluded ones.
    drivers: Vec<&'a DriverId>,
    distances_m: Vec<f64>,
    idle_min: Vec<f64>,
    live_offers: Vec<i64>,
    scores: Vec<f64>,
    excluded_why: Vec<ExclusionReason>,
    /// Missing labels of each excluded driver, separated by commas. Empty if no driver lacks one.
    missing: Vec<String>,
}

impl<'a> RankingValues<'a> {
    pub(super) fn from_change(change: &'a Change) -> Option<Self> {
        let (attempt_no, DriverRanking { ranked, excluded }) = change.ranking.as_ref()?;
        let lacks_any = excluded.iter().any(|d| !d.missing.is_empty());
        Some(Self {
            order_id: change.order.id.as_str(),
            attempt_no: *attempt_no,
            at: change.at,
            drivers: ranked.iter().map(|d| &d.driver_id).chain(excluded.iter().map(|d| &d.driver_id)).collect(),
            distances_m: ranked.iter().map(|d| d.distance_m).chain(excluded.iter().map(|d| d.distance_m)).collect(),
            idle_min: ranked.iter().map(|d| d.idle_min).collect(),
            live_offers: ranked.iter().map(|d| d.live_offers).collect(),
            scores: ranked.iter().map(|d| d.score).collect(),
            excluded_why: excluded.iter().map(|d| d.why).collect(),
            missing: if lacks_any { excluded.iter().map(|d| d.missing.join(",")).collect() } else { Vec::new() },
        })
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct OutboxValues {
    pub(crate) message_id: Uuid,
    pub(crate) order_id: OrderId,
    pub(crate) kind: String,
    pub(crate) channel: String,
    dedupe_key: String,
    pub(crate) payload: serde_json::Value,
    pub(crate) at: DateTime<Utc>,
    /// Due time of the next try.
    pub(crate) due_at: DateTime<Utc>,
    pub(crate) expires_at: DateTime<Utc>,
    /// Tries that the row counts: 1 if this process sends the message after the commit.
    attempts: i32,
    /// Number of the change's step that the message reports, from 1. The statement adds the step's number in the feed to
    /// the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step_no: Option<i64>,
    /// Whether the message reports a step to the order's producer.
    #[serde(skip)]
    pub(super) reports_step: bool,
}

impl OutboxValues {
    /// Builds one row per recipient.
    pub(super) fn from_message(
        change: &Change,
        message: &Message,
        routes: &ChannelRoutes,
        dispatchers: &[Dispatcher],
    ) -> impl Iterator<Item = Self> {
        let stored = message.to_stored_in(&routes.texts);
        let recipients = find_recipients(routes, message, &stored, dispatchers);
        let (order_id, at, expires_at) = (change.order.id.clone(), change.at, message.expires_at);
        let reports_step = matches!(message.body, MessageBody::Step(_));
        recipients.into_iter().map(move |recipient| Self {
            message_id: Uuid::now_v7(),
            order_id: order_id.clone(),
            kind: stored.kind.clone(),
            channel: recipient.channel,
            dedupe_key: recipient.dedupe_key,
            payload: recipient.payload,
            at,
            due_at: at,
            expires_at,
            attempts: 0,
            step_no: None,
            reports_step,
        })
    }

    /// Builds the rows of a message about a step of this change, whose `seq` is the number of the step in the change.
    pub(super) fn from_step(change: &Change, message: &Message, routes: &ChannelRoutes) -> impl Iterator<Item = Self> {
        let step_no = match &message.body {
            MessageBody::Step(body) => Some(body.seq),
            _ => None,
        };
        Self::from_message(change, message, routes, &[]).map(move |row| Self { step_no, ..row })
    }

    /// Claims the first try for this process.
    pub(crate) fn claim(&mut self) {
        self.attempts = 1;
        self.due_at = self.at + CLAIM;
    }
}

pub(super) fn json_of(values: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(values).map_err(|error| sqlx::Error::Encode(error.into()))
}
