//! Long polls of drivers' apps that wait for an offer.
//!
//! One query to Postgres, four times a second, serves all waiting requests of this process. Without waiting requests
//! there are no queries. An offer thus reaches a waiting app within 250 ms, whichever worker made it, and no channel
//! between processes is needed.
//!
//! A driver may have two waiting requests: one from the app after a network change, and an older one whose disconnect
//! this process has not noticed yet. A third request ends the oldest.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use model::ids::{DriverId, OfferId};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use crate::offers::live::{self, LiveOffer};
use foundation::{db::Pool, loops::LoopRegistry};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Waiting drivers of this process and their requests.
#[derive(Debug, Clone, Default)]
pub struct OfferBoard(Arc<Mutex<WaitingDrivers>>);

/// Maximum waiting requests per driver and process.
const MOST_PER_DRIVER: usize = 2;

#[derive(Debug)]
pub enum WaitOutcome {
    Offers(Vec<LiveOffer>),
    /// The request was displaced by newer requests of the same driver.
    SentAway,
}

#[derive(Debug, Default)]
struct WaitingDrivers {
    by_driver: HashMap<DriverId, DriverRequests>,
    /// Number of requests so far.
    count: u64,
    /// Whether a polling task is running.
    looked_for: bool,
    /// Whether this process is stopping, so that requests no longer wait.
    closed: bool,
}

#[derive(Debug)]
struct DriverRequests {
    /// Notifies the requests when the offers may have changed. The value is a request number; requests with a lower
    /// number are displaced.
    bell: watch::Sender<u64>,
    numbers: BTreeSet<u64>,
}

/// Registration of a waiting request. Dropping it, for example when the app disconnects, removes the request.
struct BoardPlace<'a> {
    board: &'a OfferBoard,
    driver: &'a DriverId,
    number: u64,
    rung: watch::Receiver<u64>,
}

impl BoardPlace<'_> {
    fn is_lost(&self) -> bool {
        *self.rung.borrow() > self.number
    }
}

impl Drop for BoardPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = self.board.lock_board();
        if let Some(requests) = waiting.by_driver.get_mut(self.driver) {
            requests.numbers.remove(&self.number);
            if requests.numbers.is_empty() {
                waiting.by_driver.remove(self.driver);
            }
        }
    }
}

/// Minimum response time for an app that polls without sending the offers it knows.
const SPIN_PAUSE: Duration = LOOK_EVERY;

impl OfferBoard {
    /// Returns the driver's live offers as soon as they differ from `known`, or after `at_most`.
    pub async fn wait_for_offers(
        &self,
        (db, loops): (&Pool, &LoopRegistry),
        driver: &DriverId,
        known: &BTreeSet<OfferId>,
        at_most: Duration,
    ) -> Result<WaitOutcome, sqlx::Error> {
        if at_most.is_zero() {
            return Ok(WaitOutcome::Offers(live::live_offers(db, driver).await?));
        }
        let end = Instant::now() + at_most;
        // Register before reading, so that an offer made in between wakes the request.
        let mut place = self.enter_board(db, loops, driver);
        loop {
            let offers = live::live_offers(db, driver).await?;
            if self.is_closed() {
                return Ok(WaitOutcome::Offers(offers));
            }
            if known.is_empty() && !offers.is_empty() {
                tokio::time::sleep(SPIN_PAUSE).await;
            }
            let is_new = offers.len() != known.len() || offers.iter().any(|o| !known.contains(&o.offer_id));
            if is_new || timeout_at(end, place.rung.changed()).await.is_err() {
                return Ok(WaitOutcome::Offers(offers));
            }
            if place.is_lost() {
                return Ok(WaitOutcome::SentAway);
            }
        }
    }
}

impl DriverRequests {
    fn wake_requests(&self) {
        self.bell.send_modify(|_| ());
    }
}

impl OfferBoard {
    fn lock_board(&self) -> parking_lot::MutexGuard<'_, WaitingDrivers> {
        self.0.lock()
    }

    fn is_closed(&self) -> bool {
        self.lock_board().closed
    }

    /// Wakes all waiting requests and lets no further request wait. Called when the process stops.
    pub fn close(&self) {
        let mut waiting = self.lock_board();
        waiting.closed = true;
        waiting.by_driver.values().for_each(DriverRequests::wake_requests);
    }

    fn enter_board<'a>(&'a self, db: &Pool, loops: &LoopRegistry, driver: &'a DriverId) -> BoardPlace<'a> {
        let mut waiting = self.lock_board();
        waiting.count += 1;
        let number = waiting.count;
        let requests = waiting
            .by_driver
            .entry(driver.clone())
            .or_insert_with(|| DriverRequests { bell: watch::channel(0).0, numbers: BTreeSet::new() });
        let rung = requests.bell.subscribe();
        requests.numbers.insert(number);
        if let Some(first) = requests.numbers.iter().nth_back(MOST_PER_DRIVER - 1).copied()
            && requests.numbers.len() > MOST_PER_DRIVER
        {
            requests.bell.send_replace(first);
        }
        if !waiting.looked_for {
            waiting.looked_for = true;
            tokio::spawn(self.clone().poll_offers(db.clone(), loops.clone()));
        }
        BoardPlace { board: self, driver, number, rung }
    }

    /// Polls the offers until no request is waiting.
    async fn poll_offers(self, db: Pool, loops: LoopRegistry) {
        let turns = loops.register_loop("offer board");
        let mut next = Instant::now();
        let mut seen = HashMap::new();
        let mut failing = false;
        loop {
            next = next.max(Instant::now()) + LOOK_EVERY;
            sleep_until(next).await;
            let drivers: Vec<DriverId> = {
                let mut waiting = self.lock_board();
                if waiting.by_driver.is_empty() {
                    waiting.looked_for = false;
                    return;
                }
                waiting.by_driver.keys().cloned().collect()
            };
            // A cancelled turn counts as a failed query.
            let answer = turns.run_turn(load_live_offers(&db, &drivers)).await;
            match answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok(asked) => {
                    let waiting = self.lock_board();
                    let changed = drivers.iter().filter(|driver| asked.get(*driver) != seen.get(*driver));
                    changed.filter_map(|driver| waiting.by_driver.get(driver)).for_each(DriverRequests::wake_requests);
                    seen = asked;
                    failing = false;
                }
                Err(_) if failing => {}
                Err(error) => {
                    failing = true;
                    tracing::warn!(%error, "The offers could not be polled for the drivers who wait for them.");
                }
            }
        }
    }
}

/// Returns the live offers of those `drivers` that have any.
async fn load_live_offers(db: &Pool, drivers: &[DriverId]) -> Result<HashMap<DriverId, Vec<OfferId>>, sqlx::Error> {
    let rows: Vec<(DriverId, Vec<OfferId>)> = sqlx::query_as(
        "-- drivers asked
         SELECT driver_id, array_agg(id ORDER BY id) FROM offers
         WHERE state = 'offered' AND expires_at > dispatchq_now() AND driver_id = ANY ($1) GROUP BY driver_id",
    )
    .bind(drivers)
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().collect())
}
