//! Drivers' apps that wait for an offer (long polls).
//!
//! One question to Postgres, four times a second, serves all who wait at this process, however many they are; while no app
//! waits, nothing is asked. So an offer reaches a waiting app within a quarter of a second, whichever worker made it, and no
//! channel between processes has to be kept alive.
//!
//! A driver waits with two requests at most: the app that came back after its network changed, and the one whose hang-up
//! this process has not noticed yet. With a third the oldest is sent away.

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

/// Who waits at this process, with how many requests.
#[derive(Debug, Clone, Default)]
pub struct OfferBoard(Arc<Mutex<WaitingDrivers>>);

/// Requests with which one driver may wait at this process.
const MOST_PER_DRIVER: usize = 2;

/// What came of waiting.
#[derive(Debug)]
pub enum WaitOutcome {
    Offers(Vec<LiveOffer>),
    /// Younger requests of the same driver wait instead.
    SentAway,
}

#[derive(Debug, Default)]
struct WaitingDrivers {
    by_driver: HashMap<DriverId, DriverRequests>,
    /// Requests so far.
    count: u64,
    /// A task looks for them.
    looked_for: bool,
    /// This process ends: no app waits any more.
    closed: bool,
}

/// The waiting requests of one driver.
#[derive(Debug)]
struct DriverRequests {
    /// Rings when there is something to look at. The value: requests before this number are sent away.
    bell: watch::Sender<u64>,
    numbers: BTreeSet<u64>,
}

/// A place in the board; leaves it when dropped, also when the app hangs up.
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

/// An app that asks again and again without saying what it knows already gets an answer as often as this.
const SPIN_PAUSE: Duration = LOOK_EVERY;

impl OfferBoard {
    /// Returns what the driver is being asked: as soon as it is something else than the offers already `known`, or after
    /// `at_most`.
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
        // First the place, then the look: what comes in between rings.
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

    /// Answers all who wait, and lets no app wait any more: for the end of a process.
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

    /// Until no app waits any more.
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
            // A turn that was given up is an answer that failed.
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
                    tracing::warn!(%error, "Drivers who wait for offers could not be looked after.");
                }
            }
        }
    }
}

/// Which of `drivers` have live offers, and which.
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
