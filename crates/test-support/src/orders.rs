//! Creates orders and drivers, answers offers, and reads the results.

use std::{collections::BTreeMap, mem};

use chrono::{DateTime, Utc};
use jobs::OrderId;

use crate::{TestApp, by};
use accounts::api_keys::AccountRole;
use model::{
    actor::Actor,
    decide::{Decision, actions},
    ids::{DriverId, OfferId},
    input::GivenTime,
    location::OrderLocation,
    order::{Offer, OfferState, OrderStatus, Snapshot},
};
use orders::{
    accept,
    capability::Orders,
    change::ChangeError,
    changed::Changed,
    create::{self, CreateError, NewOrder},
    fleet::drivers::{self, NewDriver},
    order_store::load,
    query,
    seen::Basis,
};
use queue::store::JobState;

const PICKUP: OrderLocation = OrderLocation { latitude: -6.2088, longitude: 106.8456 };
const METRES_PER_DEGREE: f64 = 111_195.0;

pub fn id(text: &str) -> OrderId {
    text.parse().unwrap()
}

/// Changes an order and runs the effects, as a request does. The returned effects are empty.
pub async fn update_order(
    orders: &Orders,
    id: &OrderId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<Changed, ChangeError> {
    let mut changed = orders.change(id, Basis::Fresh, decide).await?;
    mem::take(&mut changed.effects).run(orders).await;
    Ok(changed)
}

/// Returns a request for an order of this service type, without contents.
fn new_order(order: &str, service_type: &str, payment: &str) -> NewOrder {
    NewOrder {
        order_id: Some(id(order)),
        service_type: service_type.into(),
        pickup: PICKUP.into(),
        payment_status: payment.to_owned().try_into().unwrap(),
        amount_minor: Some(150_000),
        currency: Some("IDR".to_owned()),
        area_id: None,
        customer_id: None,
        language: None,
        channel: None,
        loyalty_level: None,
        dropoff: None,
        notes: None,
        contact: None,
        metadata: None,
        requires: None,
        pickup_at: None,
    }
}

/// Changes an order like [`update_order`], for a decision about this offer.
pub async fn update_for_offer(
    orders: &Orders,
    id: &OrderId,
    offer: OfferId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<Changed, ChangeError> {
    let mut changed = orders.change(id, Basis::Offer(offer), decide).await?;
    mem::take(&mut changed.effects).run(orders).await;
    Ok(changed)
}

impl TestApp {
    /// Creates free drivers of every service type, each at this distance in metres from every pickup.
    pub async fn drivers(&self, drivers: &[(&str, f64)]) {
        let new: Vec<_> = drivers
            .iter()
            .map(|(id, metres)| NewDriver {
                id: (*id).into(),
                service_types: vec!["RIDE".into(), "RENT".into()],
                latitude: PICKUP.latitude + metres / METRES_PER_DEGREE,
                longitude: PICKUP.longitude,
                available: true,
                phone: None,
                name: None,
                skills: None,
            })
            .collect();
        drivers::import_drivers(&self.app.core.db, &new).await.unwrap();
    }

    /// Creates a staff user with this role, who is notified over this channel.
    pub async fn user(&self, id: &str, role: AccountRole, channel: &str) {
        sqlx::query("INSERT INTO users (id, name, role, channel) VALUES ($1, $1, $2, $3)")
            .bind(id)
            .bind(role)
            .bind(channel)
            .execute(&self.app.core.db)
            .await
            .unwrap();
    }

    /// Starts with the order ORD-1, which is offered to the driver D1. D2 is farther away.
    pub async fn with_offer() -> Self {
        let t = Self::start().await;
        t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
        t.order("ORD-1").await;
        t.run_due().await;
        t
    }

    /// Starts with a waiting order, and an order that owes a refund, for each of `SEEN` and `HIDDEN`, such as `SEEN-OPEN` and
    /// `SEEN-OWED`.
    pub async fn with_seen_and_hidden_orders() -> Self {
        let t = Self::start().await;
        t.drivers(&[("D1", 100.0)]).await;
        for side in ["SEEN", "HIDDEN"] {
            t.order_of(&format!("{side}-OPEN"), "RENT", "PAID").await;
            t.order_of(&format!("{side}-OWED"), "RIDE", "PAID").await;
            t.cancel(&format!("{side}-OWED")).await.unwrap();
        }
        t.run_due().await;
        t
    }

    /// Creates an unpaid RIDE.
    pub async fn order(&self, order: &str) -> Snapshot {
        self.order_of(order, "RIDE", "UNPAID").await
    }

    /// Creates an unpaid RIDE that requires these labels.
    pub async fn order_requiring(&self, order: &str, labels: &[&str]) -> Snapshot {
        let requires = labels.iter().map(|label| (*label).to_owned()).collect();
        let new = NewOrder { requires: Some(requires), ..new_order(order, "RIDE", "UNPAID") };
        create::create_order(&self.app.orders, id(order), &new, &by("producer:test")).await.unwrap()
    }

    pub async fn order_of(&self, order: &str, service_type: &str, payment: &str) -> Snapshot {
        self.create(order, |new| {
            new.service_type = service_type.into();
            new.payment_status = payment.to_owned().try_into().unwrap();
        })
        .await
        .unwrap()
    }

    /// Creates an unpaid RIDE with a pickup at this time.
    pub async fn order_at(&self, order: &str, pickup_at: DateTime<Utc>) -> Snapshot {
        let pickup_at: GivenTime = pickup_at.to_rfc3339().parse().unwrap();
        self.create(order, |new| new.pickup_at = Some(pickup_at)).await.unwrap()
    }

    /// Creates an unpaid RIDE with these changes.
    pub async fn create(&self, order: &str, change: impl FnOnce(&mut NewOrder)) -> Result<Snapshot, CreateError> {
        let mut new = new_order(order, "RIDE", "UNPAID");
        change(&mut new);
        create::create_order(&self.app.orders, id(order), &new, &by("producer:test")).await
    }

    pub async fn snapshot(&self, order: &str) -> Snapshot {
        load::load_order(&self.app.core.db, &id(order)).await.unwrap().expect("the order exists")
    }

    pub async fn status(&self, order: &str) -> OrderStatus {
        self.snapshot(order).await.order.status
    }

    /// Returns the reasons of an order's events, in order.
    pub async fn reasons(&self, order: &str) -> Vec<String> {
        query::load_timeline(&self.app.core.db, &id(order)).await.unwrap().into_iter().map(|e| e.reason).collect()
    }

    /// Returns driver and state of each offer, in order.
    pub async fn offers(&self, order: &str) -> Vec<(String, OfferState)> {
        let offers = query::list_offers(&self.app.core.db, &id(order)).await.unwrap();
        offers.into_iter().map(|o| (o.driver_id.into_string(), o.state)).collect()
    }

    pub async fn live_offer(&self, order: &str) -> Offer {
        let s = self.snapshot(order).await;
        s.live_offer().cloned().unwrap_or_else(|| panic!("{order} has no live offer: {:?}", s.offers))
    }

    /// Returns the live offers, in the order of their creation.
    pub async fn live_offers(&self, order: &str) -> Vec<Offer> {
        self.snapshot(order).await.live_offers().cloned().collect()
    }

    /// Returns the driver who has the live offer.
    pub async fn asked(&self, order: &str) -> DriverId {
        self.live_offer(order).await.driver_id
    }

    pub async fn act(&self, order: &str, decide: impl FnMut(&Snapshot) -> Decision) -> Result<Changed, ChangeError> {
        update_order(&self.app.orders, &id(order), decide).await
    }

    pub async fn accept(&self, order: &str, driver: &str, offer: OfferId) -> Result<Changed, ChangeError> {
        let driver = driver.into();
        accept::accept_offer(&self.app.orders, &id(order), &driver, offer, &Actor::for_driver(&driver)).await
    }

    /// Accepts the live offer and returns its driver.
    pub async fn accept_offer(&self, order: &str) -> DriverId {
        let offer = self.live_offer(order).await;
        self.accept(order, &offer.driver_id, offer.id).await.unwrap();
        offer.driver_id
    }

    /// Declines the live offer and returns its driver.
    pub async fn decline_offer(&self, order: &str) -> DriverId {
        let offer = self.live_offer(order).await;
        self.act(order, |s| actions::decline_offer(s, &offer.driver_id, offer.id, None)).await.unwrap();
        offer.driver_id
    }

    pub async fn cancel(&self, order: &str) -> Result<Changed, ChangeError> {
        self.act(order, |s| actions::cancel_order(s, &by("producer:test"), None)).await
    }

    /// Records pickup and completion of the trip.
    pub async fn carry_out(&self, order: &str, driver: &str) {
        let driver = driver.into();
        self.act(order, |s| actions::record_pickup(s, &driver)).await.unwrap();
        self.act(order, |s| actions::complete_trip(s, &driver)).await.unwrap();
    }

    /// Returns each due or leased job in Redis with its due time. For a leased job this is the end of its lease.
    pub async fn timers(&self) -> BTreeMap<String, u64> {
        let mut timers = BTreeMap::new();
        for queue in jobs::queues::ALL {
            for state in [JobState::Due, JobState::Leased] {
                let page = self.app.core.queue().list_jobs(queue, state, 0, 1000).await.unwrap();
                assert!(page.len() < 1000, "more than one page");
                timers.extend(page.into_iter().map(|job| (job.id, job.at_ms)));
            }
        }
        timers
    }

    /// Returns kind, channel and state of an order's messages, in the order of their creation.
    pub async fn messages(&self, order: &str) -> Vec<(String, String, String)> {
        sqlx::query_as("SELECT kind, channel, state FROM outbox WHERE order_id = $1 ORDER BY id")
            .bind(order)
            .fetch_all(&self.app.core.db)
            .await
            .unwrap()
    }

    /// Returns the number of messages of this kind that an order has.
    pub async fn messages_of(&self, order: &str, kind: &str) -> usize {
        self.messages(order).await.into_iter().filter(|(k, ..)| k == kind).count()
    }
}
