//! Long polls of drivers' apps that wait for an offer.
//!
//! A driver may have two waiting requests: one from the app after a network change, and an older one whose disconnect
//! this process has not noticed yet. A third request ends the oldest.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use model::ids::{DriverId, OfferId};
use tokio::time::Instant;

use crate::offers::live::{self, LiveOffer};
use foundation::{
    db::Pool,
    loops::LoopRegistry,
    poll_board::{Capacity, PollBoard, PollSource, Wakeup, find_differing},
};

/// Minimum response time for an app that polls without sending the offers it knows.
const SPIN_PAUSE: Duration = LiveOffers::INTERVAL;

/// Waiting drivers of this process.
pub type OfferBoard = PollBoard<LiveOffers>;

/// Offers that an app knows, each with the version if the app named it.
pub type KnownOffers = BTreeMap<OfferId, Option<i32>>;

/// Live offers of drivers.
#[derive(Debug)]
pub struct LiveOffers;

impl PollSource for LiveOffers {
    type Key = DriverId;
    type Seen = HashMap<DriverId, OfferVersions>;

    const NAME: &'static str = "offer board";
    const INTERVAL: Duration = Duration::from_millis(250);
    const CAPACITY: Capacity = Capacity::Newest(2);

    async fn find_changed(
        db: &Pool,
        drivers: &[DriverId],
        seen: &mut Self::Seen,
    ) -> Result<Vec<DriverId>, sqlx::Error> {
        let offers = load_live_offers(db, drivers).await?;
        Ok(find_differing(drivers, offers, seen))
    }
}

#[derive(Debug)]
pub enum WaitOutcome {
    Offers(Vec<LiveOffer>),
    /// The request was displaced by newer requests of the same driver.
    SentAway,
}

/// Ids and versions of live offers.
type OfferVersions = (Vec<OfferId>, Vec<i32>);

/// Returns the driver's live offers as soon as they differ from `known`, or after `at_most`. If an app names no versions,
/// it gets the changes of its offers that happen during the request.
pub async fn wait_for_offers(
    board: &OfferBoard,
    (db, loops): (&Pool, &LoopRegistry),
    driver: &DriverId,
    known: &KnownOffers,
    at_most: Duration,
) -> Result<WaitOutcome, sqlx::Error> {
    let end = Instant::now() + at_most;
    let mut first: Option<Vec<i32>> = None;
    let mut place = if at_most.is_zero() { None } else { board.enter(db, loops, driver) };
    loop {
        let offers = live::live_offers(db, driver).await?;
        let Some(place) = &mut place else { return Ok(WaitOutcome::Offers(offers)) };
        if known.is_empty() && !offers.is_empty() {
            tokio::time::sleep(SPIN_PAUSE).await;
        }
        let versions: Vec<i32> = offers.iter().map(|offer| offer.version).collect();
        if differs_from(&offers, known) || *first.get_or_insert_with(|| versions.clone()) != versions {
            return Ok(WaitOutcome::Offers(offers));
        }
        match place.wait(end).await {
            Wakeup::Changed => {}
            Wakeup::Displaced => return Ok(WaitOutcome::SentAway),
            Wakeup::TimedOut | Wakeup::Closed => return Ok(WaitOutcome::Offers(offers)),
        }
    }
}

fn differs_from(offers: &[LiveOffer], known: &KnownOffers) -> bool {
    let is_known = |offer: &LiveOffer| {
        known.get(&offer.offer_id).is_some_and(|version| version.is_none_or(|version| version == offer.version))
    };
    offers.len() != known.len() || !offers.iter().all(is_known)
}

/// Returns the live offers of those `drivers` that have any.
async fn load_live_offers(db: &Pool, drivers: &[DriverId]) -> Result<HashMap<DriverId, OfferVersions>, sqlx::Error> {
    let rows: Vec<(DriverId, Vec<OfferId>, Vec<i32>)> = sqlx::query_as(
        "-- drivers asked
         SELECT driver_id, array_agg(id ORDER BY id), array_agg(version ORDER BY id) FROM offers
         WHERE state = 'offered' AND expires_at > dispatchq_now() AND driver_id = ANY ($1) GROUP BY driver_id",
    )
    .bind(drivers)
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|(driver, ids, versions)| (driver, (ids, versions))).collect())
}
