//! Offers that a change creates in the statement that writes it.
//!
//! The drivers are chosen beforehand: the best of the ranking. The change is written if all of them are free. Each
//! driver is locked, so that other orders make the driver no offer at the same time. If a driver is not free, the
//! statement returns the free ones, and the change goes into a later batch with the next best. A batch never contains
//! two offers to one driver, so its offers do not conflict. The later batch also finds out which of the drivers after
//! those are free, so that an order among many taken drivers needs few batches.

use chrono::{DateTime, Utc};
use model::{
    decide::{Change, change::NewOffers},
    ids::{DriverId, OfferId},
    order::{Offer, OfferState},
    ranking::RankedDriver,
};
use serde::Serialize;
use uuid::Uuid;

/// First key of the advisory locks of drivers who are getting an offer. The second key is a hash of the driver's id.
pub(crate) const OFFERING: i32 = 0x6f66_6672;

/// Maximum number of offers of a change in a batch. A change with more offers is written alone, because one of many
/// drivers is usually not free.
const MOST_SHARED: usize = 4;

/// Drivers after the planned ones that a repeated statement looks at.
const SPARES: usize = 8;

/// Returns whether the change may share a statement with others.
pub(crate) fn fits_batch(change: &Change) -> bool {
    change.new_offers.as_ref().is_none_or(|new| usize::from(new.at_once) <= MOST_SHARED)
}

/// Offers that a change creates, and the drivers who are next.
#[derive(Debug, Clone, Default)]
pub(super) struct OfferPlan {
    pub(super) offers: Vec<PlannedOffer>,
    /// Not created. The statement only returns whether their drivers are free.
    pub(super) spares: Vec<PlannedOffer>,
}

impl OfferPlan {
    /// Plans the offers of a change, skipping drivers in `taken`. Returns `None` if all drivers are taken.
    pub(super) fn new(change: &Change, taken: &[DriverId]) -> Option<Self> {
        let Some(new) = &change.new_offers else { return Some(Self::default()) };
        let mut free = (1..).zip(&new.ranked).filter(|(_, driver)| !taken.contains(&driver.driver_id));
        let mut plan = |most: usize| -> Vec<_> {
            free.by_ref().take(most).map(|(rank, driver)| PlannedOffer::new(change, new, rank, driver)).collect()
        };
        let offers = plan(usize::from(new.at_once.max(1)));
        let spares = plan(if taken.is_empty() { 0 } else { SPARES });
        (!offers.is_empty()).then_some(Self { offers, spares })
    }

    /// Returns the drivers who must be free, and those who are next.
    pub(super) fn drivers(&self) -> impl Iterator<Item = &DriverId> {
        self.offers.iter().chain(&self.spares).map(|planned| &planned.offer.driver_id)
    }
}

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
    fn new(change: &Change, new: &NewOffers, rank: usize, driver: &RankedDriver) -> Self {
        Self {
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
        }
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
    /// Whether the offer is not created.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_spare: bool,
}

impl<'a> NewOfferValues<'a> {
    pub(super) fn from_plan(order_id: &'a str, plan: &'a OfferPlan) -> impl Iterator<Item = Self> {
        let offers = plan.offers.iter().map(|planned| (planned, false));
        let spares = plan.spares.iter().map(|planned| (planned, true));
        offers.chain(spares).map(move |(planned, is_spare)| Self {
            order_id,
            is_spare,
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
