//! Drivers' apps that wait for an offer (long polls).
//!
//! One question to Postgres, four times a second, serves all who wait at this process, however many they are; while nobody
//! waits, nothing is asked. So an offer reaches a waiting app within a quarter of a second, whichever worker made it, and no
//! channel between processes has to be kept alive.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sqlx::PgPool;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use uuid::Uuid;

use super::drivers::{self, LiveOffer};
use crate::{app::App, loops::Loops};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Who waits at this process, with how many requests.
#[derive(Debug, Clone, Default)]
pub struct OfferBoard(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    by_driver: HashMap<String, (watch::Sender<()>, usize)>,
    /// A task looks for them.
    looked_for: bool,
    /// This process ends: nobody waits any more.
    closed: bool,
}

/// A place in the board; leaves it when dropped, also when the app hangs up.
struct Place<'a> {
    board: &'a OfferBoard,
    driver: &'a str,
    rung: watch::Receiver<()>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.board.lock();
        if let Some((_, count)) = waiting.by_driver.get_mut(self.driver) {
            *count -= 1;
            if *count == 0 {
                waiting.by_driver.remove(self.driver);
            }
        }
    }
}

/// Whoever asks again and again without saying what is known already gets an answer as often as this.
const SPIN_PAUSE: Duration = LOOK_EVERY;

/// What the driver is being asked: as soon as it is something else than the offers already `known`, or after `at_most`.
pub async fn wait(
    app: &App,
    driver: &str,
    known: &BTreeSet<Uuid>,
    at_most: Duration,
) -> Result<Vec<LiveOffer>, sqlx::Error> {
    let end = Instant::now() + at_most;
    loop {
        // First the place, then the look: what comes in between rings.
        let mut place = app.offers.enter(app, driver);
        let offers = drivers::live_offers(&app.db, driver).await?;
        if app.offers.is_closed() {
            return Ok(offers);
        }
        if known.is_empty() && !offers.is_empty() && !at_most.is_zero() {
            tokio::time::sleep(SPIN_PAUSE).await;
        }
        let is_new = offers.len() != known.len() || offers.iter().any(|o| !known.contains(&o.offer_id));
        if is_new || timeout_at(end, place.rung.changed()).await.is_err() {
            return Ok(offers);
        }
    }
}

impl OfferBoard {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Answers all who wait, and lets nobody wait any more: for the end of a process.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        for (bell, _) in waiting.by_driver.values() {
            bell.send_replace(());
        }
    }

    fn enter<'a>(&'a self, app: &App, driver: &'a str) -> Place<'a> {
        let mut waiting = self.lock();
        let (bell, count) = waiting.by_driver.entry(driver.to_owned()).or_insert_with(|| (watch::channel(()).0, 0));
        *count += 1;
        let rung = bell.subscribe();
        if !waiting.looked_for {
            waiting.looked_for = true;
            tokio::spawn(self.clone().look(app.db.clone(), app.loops.clone()));
        }
        Place { board: self, driver, rung }
    }

    /// Until nobody waits any more.
    async fn look(self, db: PgPool, loops: Loops) {
        let turns = loops.register("offer board");
        let mut next = Instant::now();
        let mut seen = HashMap::new();
        let mut failing = false;
        loop {
            next = next.max(Instant::now()) + LOOK_EVERY;
            sleep_until(next).await;
            let drivers: Vec<String> = {
                let mut waiting = self.lock();
                if waiting.by_driver.is_empty() {
                    waiting.looked_for = false;
                    return;
                }
                waiting.by_driver.keys().cloned().collect()
            };
            // A turn that was given up is an answer that failed.
            let answer = turns.turn(asked(&db, &drivers)).await;
            match answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok(asked) => {
                    let waiting = self.lock();
                    let changed = drivers.iter().filter(|driver| asked.get(*driver) != seen.get(*driver));
                    for (bell, _) in changed.filter_map(|driver| waiting.by_driver.get(driver)) {
                        bell.send_replace(());
                    }
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
async fn asked(db: &PgPool, drivers: &[String]) -> Result<HashMap<String, Vec<Uuid>>, sqlx::Error> {
    let rows: Vec<(String, Vec<Uuid>)> = sqlx::query_as(
        "-- drivers asked
         SELECT driver_id, array_agg(id ORDER BY id) FROM offers
         WHERE state = 'offered' AND expires_at > dispatchq_now() AND driver_id = ANY ($1) GROUP BY driver_id",
    )
    .bind(drivers)
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().collect())
}
