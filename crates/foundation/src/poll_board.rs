//! Requests that wait until something changes (long polls and streams).
//!
//! One query per interval serves all waiting requests of this process. While no request waits, there is no query. A change
//! thus reaches a waiting request within one interval, whichever process made it, and no channel between processes is
//! needed.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{db::Pool, loops::LoopRegistry};

/// A kind of change that requests wait for.
pub trait PollSource: Send + Sync + 'static {
    /// Subject of a request, for example a driver.
    type Key: Eq + Hash + Clone + Send + Sync + 'static;
    /// Result of the previous query.
    type Seen: Default + Send;

    /// Name of the background loop.
    const NAME: &'static str;
    /// Time between two queries.
    const INTERVAL: Duration;
    const CAPACITY: Capacity;

    /// Queries the state of these subjects. Returns those that have changed since the previous query, or may have.
    fn find_changed(
        db: &Pool,
        keys: &[Self::Key],
        seen: &mut Self::Seen,
    ) -> impl Future<Output = Result<Vec<Self::Key>, sqlx::Error>> + Send;
}

/// Maximum number of requests that may wait in this process.
#[derive(Debug, Clone, Copy)]
pub enum Capacity {
    /// Of all subjects together. Further requests do not wait.
    InAll(usize),
    /// Per subject. Further requests do not wait.
    PerKey(usize),
    /// Per subject. A further request displaces the oldest.
    Newest(usize),
}

/// Reason why a request stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    Changed,
    TimedOut,
    /// Newer requests with the same subject took its place.
    Displaced,
    /// The process is shutting down.
    Closed,
}

/// Waiting requests of this process. Clones share them.
#[derive(Debug)]
pub struct PollBoard<S: PollSource>(Arc<Mutex<WaitingRequests<S::Key>>>);

#[derive(Debug)]
struct WaitingRequests<K> {
    by_key: HashMap<K, KeyRequests>,
    /// Number of requests so far. Numbers the requests.
    last_number: u64,
    /// Whether the polling task is running.
    is_polled: bool,
    is_closed: bool,
}

/// Waiting requests with the same subject.
#[derive(Debug)]
struct KeyRequests {
    /// Wakes the requests. The value is a request number; requests with a lower number are displaced.
    bell: watch::Sender<u64>,
    numbers: BTreeSet<u64>,
}

/// Registration of a waiting request. Dropping it, for example when the client disconnects, removes the request.
#[derive(Debug)]
pub struct PollPlace<S: PollSource> {
    board: PollBoard<S>,
    key: S::Key,
    number: u64,
    rung: watch::Receiver<u64>,
}

impl<S: PollSource> Default for PollBoard<S> {
    fn default() -> Self {
        let none = WaitingRequests { by_key: HashMap::new(), last_number: 0, is_polled: false, is_closed: false };
        Self(Arc::new(Mutex::new(none)))
    }
}

impl<S: PollSource> Clone for PollBoard<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: PollSource> PollBoard<S> {
    /// Registers a request before it reads, so that a change after the read wakes it. Returns `None` if the request must not
    /// wait: the board is full, or the process is shutting down.
    pub fn enter(&self, db: &Pool, loops: &LoopRegistry, key: &S::Key) -> Option<PollPlace<S>> {
        let mut waiting = self.0.lock();
        if waiting.is_closed || waiting.is_full(S::CAPACITY, key) {
            return None;
        }
        let (number, rung) = waiting.add_request(S::CAPACITY, key);
        if !std::mem::replace(&mut waiting.is_polled, true) {
            tokio::spawn(self.clone().poll(db.clone(), loops.clone()));
        }
        Some(PollPlace { board: self.clone(), key: key.clone(), number, rung })
    }

    /// Wakes all requests and lets no further request wait. For the shutdown of the process.
    pub fn close(&self) {
        let mut waiting = self.0.lock();
        waiting.is_closed = true;
        waiting.by_key.values().for_each(KeyRequests::wake);
    }

    /// Queries until no request waits.
    async fn poll(self, db: Pool, loops: LoopRegistry) {
        let turns = loops.register_loop(S::NAME);
        let mut next = Instant::now();
        let mut seen = S::Seen::default();
        let mut is_failing = false;
        loop {
            next = next.max(Instant::now()) + S::INTERVAL;
            sleep_until(next).await;
            let Some(keys) = self.0.lock().keys_to_poll() else { return };
            // A cancelled turn counts as a failed query.
            let answer = turns.run_turn(S::find_changed(&db, &keys, &mut seen)).await;
            match answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok(changed) => {
                    let waiting = self.0.lock();
                    changed.iter().filter_map(|key| waiting.by_key.get(key)).for_each(KeyRequests::wake);
                    is_failing = false;
                }
                Err(_) if is_failing => {}
                Err(error) => {
                    is_failing = true;
                    tracing::warn!(%error, board = S::NAME, "Waiting requests cannot be checked for changes.");
                }
            }
        }
    }
}

impl<K: Eq + Hash + Clone> WaitingRequests<K> {
    fn is_full(&self, capacity: Capacity, key: &K) -> bool {
        match capacity {
            Capacity::InAll(most) => self.by_key.values().map(|requests| requests.numbers.len()).sum::<usize>() >= most,
            Capacity::PerKey(most) => self.by_key.get(key).is_some_and(|requests| requests.numbers.len() >= most),
            Capacity::Newest(_) => false,
        }
    }

    fn add_request(&mut self, capacity: Capacity, key: &K) -> (u64, watch::Receiver<u64>) {
        self.last_number += 1;
        let requests = self
            .by_key
            .entry(key.clone())
            .or_insert_with(|| KeyRequests { bell: watch::channel(0).0, numbers: BTreeSet::new() });
        let rung = requests.bell.subscribe();
        requests.numbers.insert(self.last_number);
        if let Capacity::Newest(most) = capacity
            && requests.numbers.len() > most
            && let Some(first) = requests.numbers.iter().nth_back(most.saturating_sub(1))
        {
            requests.bell.send_replace(*first);
        }
        (self.last_number, rung)
    }

    /// Returns the subjects of waiting requests. Returns `None` if no request waits; the polling task then ends.
    fn keys_to_poll(&mut self) -> Option<Vec<K>> {
        self.is_polled = !self.by_key.is_empty();
        self.is_polled.then(|| self.by_key.keys().cloned().collect())
    }
}

impl KeyRequests {
    fn wake(&self) {
        self.bell.send_modify(|_| ());
    }
}

impl<S: PollSource> PollPlace<S> {
    /// Waits for a change, at most until `end`.
    pub async fn wait(&mut self, end: Instant) -> Wakeup {
        if self.board.0.lock().is_closed {
            return Wakeup::Closed;
        }
        let is_rung = timeout_at(end, self.rung.changed()).await.is_ok();
        if self.board.0.lock().is_closed {
            Wakeup::Closed
        } else if !is_rung {
            Wakeup::TimedOut
        } else if *self.rung.borrow() > self.number {
            Wakeup::Displaced
        } else {
            Wakeup::Changed
        }
    }
}

impl<S: PollSource> Drop for PollPlace<S> {
    fn drop(&mut self) {
        let mut waiting = self.board.0.lock();
        if let Some(requests) = waiting.by_key.get_mut(&self.key) {
            requests.numbers.remove(&self.number);
            if requests.numbers.is_empty() {
                waiting.by_key.remove(&self.key);
            }
        }
    }
}

/// Returns the subjects whose value differs from the previous query, and stores the new values.
pub fn find_differing<K: Eq + Hash + Clone, V: PartialEq>(
    keys: &[K],
    values: HashMap<K, V>,
    seen: &mut HashMap<K, V>,
) -> Vec<K> {
    let differing = keys.iter().filter(|key| values.get(*key) != seen.get(*key)).cloned().collect();
    *seen = values;
    differing
}
