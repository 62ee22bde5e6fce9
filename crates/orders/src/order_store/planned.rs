//! Offers that a change creates in the statement that writes it.
//!
//! The drivers are chosen beforehand: the best of the ranking. The change is written if all of them are free. Each
//! driver is locked, so that other orders make the driver no offer at the same time. If a driver is not free, the
//! statement returns the free ones, and the change goes into a later batch with the next best. A batch never contains
//! two offers to one driver, so its offers do not conflict.

use chrono::{DateTime, Utc};
use model::{
    decide::Change,
    ids::{DriverId, OfferId},
    order::{Offer, OfferState},
    ranking::RankedDriver,
};
use serde::Serialize;
use uuid::Uuid;

/// First key of the advisory locks of drivers who are getting an offer. The second key is a hash of the driver's id.
pub(crate) const OFFERING: i32 = 0x6f66_6672;

/// Maximum offers of a change in a batch. A change with more offers is written alone, because one of many drivers is
/// usually not free.
const MOST_PLANNED: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct PlannedOffer {
    pub(super) offer: Offer,
    pub(super) distance_m: f64,
    score: f64,
    /// Place in the ranking, from 1.
    rank: usize,
    per_driver: u16,
}

impl PlannedOffer {
    /// Plans the offers of a change, skipping drivers in `taken`. Returns `None` if the change has too many offers for
    /// a batch, or all drivers are taken.
    pub(super) fn plan_all(change: &Change, taken: &[DriverId]) -> Option<Vec<Self>> {
        let Some(new) = &change.new_offers else { return Some(Vec::new()) };
        let wanted = usize::from(new.at_once.max(1));
        if wanted > MOST_PLANNED {
            return None;
        }
        let plan = |(rank, driver): (usize, &RankedDriver)| Self {
            offer: Offer {
                id: OfferId::from_uuid(Uuid::now_v7()),
                attempt_no: change.order.attempt_no,
                wave: new.wave,
                round: change.order.round,
                driver_id: driver.driver_id.clone(),
                state: OfferState::Offered,
                offered_at: change.at,
                expires_at: new.expires_at,
            },
            distance_m: driver.distance_m,
            score: driver.score,
            rank,
            per_driver: new.per_driver.max(1),
        };
        let free = (1..).zip(&new.ranked).filter(|(_, driver)| !taken.contains(&driver.driver_id));
        let planned: Vec<Self> = free.take(wanted).map(plan).collect();
        (!planned.is_empty()).then_some(planned)
    }
}

#[derive(Serialize)]
pub(super) struct NewOfferValues<'a> {
    order_id: &'a str,
    id: OfferId,
    attempt_no: i32,
    wave: i32,
    round: i32,
    driver_id: &'a DriverId,
    distance_m: f64,
    score: f64,
    rank: usize,
    per_driver: u16,
    offered_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
}

impl<'a> NewOfferValues<'a> {
    pub(super) fn from_offers(order_id: &'a str, offers: &'a [PlannedOffer]) -> impl Iterator<Item = Self> {
        offers.iter().map(move |planned| Self {
            order_id,
            id: planned.offer.id,
            attempt_no: planned.offer.attempt_no,
            wave: planned.offer.wave,
            round: planned.offer.round,
            driver_id: &planned.offer.driver_id,
            distance_m: planned.distance_m,
            score: planned.score,
            rank: planned.rank,
            per_driver: planned.per_driver,
            offered_at: planned.offer.offered_at,
            expires_at: planned.offer.expires_at,
        })
    }
}
