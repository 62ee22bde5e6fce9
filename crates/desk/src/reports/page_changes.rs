//! Detects changes of the rows that pages show. One query per second serves all open pages of this process; while no
//! page is open, there is no query.
//!
//! Each history numbers its rows from a sequence. Reading the position of a sequence costs the same for any length of
//! history. A number is drawn before its transaction commits. A change is therefore announced when its number is drawn,
//! and again when every transaction of that time has ended. A page that reloaded before the commit then reloads again.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use foundation::{db::Pool, loops::LoopRegistry};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum pages of this process that are notified at the same time. Other pages poll.
const MOST_WATCHERS: usize = 256;

/// Kind of rows that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ChangeTopic {
    Orders,
    /// Raised and acknowledged alerts.
    Alerts,
    Bindings,
}

impl ChangeTopic {
    const ALL: [Self; 3] = [Self::Orders, Self::Alerts, Self::Bindings];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the topic with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == word)
    }
}

/// Open pages of this process.
#[derive(Debug, Clone, Default)]
pub struct ChangeBoard(Arc<Mutex<PageWatchers>>);

#[derive(Debug, Default)]
struct PageWatchers {
    /// In the order of [`ChangeTopic::ALL`].
    bells: [watch::Sender<()>; 3],
    count: usize,
    /// Whether a task is looking for changes.
    looked_for: bool,
    /// Whether this process is shutting down and notifies no pages.
    closed: bool,
}

/// A page that is notified. Dropping it ends the notifications, also when the browser disconnects.
#[derive(Debug)]
pub struct PageWatcher {
    board: ChangeBoard,
    rung: watch::Receiver<()>,
}

impl PageWatcher {
    /// Waits until rows have changed. Returns false if this process is shutting down.
    pub async fn wait_for_change(&mut self) -> bool {
        self.rung.changed().await.is_ok() && !self.board.lock().closed
    }
}

impl Drop for PageWatcher {
    fn drop(&mut self) {
        self.board.lock().count -= 1;
    }
}

impl ChangeBoard {
    /// Registers a page for notifications. Returns `None` if there are too many pages or this process is shutting down.
    pub fn watch_topic(&self, topic: ChangeTopic, db: &Pool, loops: &LoopRegistry) -> Option<PageWatcher> {
        let mut watchers = self.lock();
        if watchers.closed || watchers.count >= MOST_WATCHERS {
            return None;
        }
        watchers.count += 1;
        if !watchers.looked_for {
            watchers.looked_for = true;
            tokio::spawn(self.clone().look_for_changes(db.clone(), loops.clone()));
        }
        let rung = watchers.bells[topic as usize].subscribe();
        Some(PageWatcher { board: self.clone(), rung })
    }

    /// Wakes all pages and ends the notifications, for the shutdown of the process.
    pub fn close(&self) {
        let mut watchers = self.lock();
        watchers.closed = true;
        watchers.bells.iter().for_each(ring);
    }

    fn lock(&self) -> MutexGuard<'_, PageWatchers> {
        self.0.lock()
    }

    /// Looks for changes until no page is registered.
    async fn look_for_changes(self, db: Pool, loops: LoopRegistry) {
        let turns = loops.register_loop("page changes");
        let mut next = Instant::now();
        let mut seen = SeenMarks::default();
        let mut failing = false;
        loop {
            next = next.max(Instant::now()) + LOOK_EVERY;
            sleep_until(next).await;
            {
                let mut watchers = self.lock();
                if watchers.count == 0 {
                    watchers.looked_for = false;
                    return;
                }
            }
            // A turn that timed out counts as a failed query.
            let answer = turns.run_turn(load_marks(&db)).await;
            match answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok(marks) => {
                    let changed = seen.find_changed(&marks);
                    let watchers = self.lock();
                    watchers.bells.iter().zip(changed).filter(|(_, changed)| *changed).for_each(|(bell, _)| ring(bell));
                    failing = false;
                }
                Err(_) if failing => {}
                Err(error) => {
                    failing = true;
                    tracing::warn!(%error, "Pages cannot be notified of changes; they poll instead.");
                }
            }
        }
    }
}

fn ring(bell: &watch::Sender<()>) {
    bell.send_modify(|()| ());
}

/// Positions of the histories, and the transactions at that time. Transactions below `oldest` have ended; those from
/// `next` on have not started.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
struct HistoryMarks {
    oldest: i64,
    next: i64,
    orders: i64,
    alerts: i64,
    bindings: i64,
}

/// Last seen state of one topic.
#[derive(Debug, Clone, Copy, Default)]
struct SeenTopic {
    mark: Option<i64>,
    /// Transactions below this one may have drawn numbers whose rows were not visible yet.
    unsettled_below: Option<i64>,
}

#[derive(Debug, Default)]
struct SeenMarks([SeenTopic; 3]);

impl SeenMarks {
    /// Returns the topics that have changed since the last call, or may have. The first call announces nothing
    /// immediately, because pages are loaded just before it.
    fn find_changed(&mut self, marks: &HistoryMarks) -> [bool; 3] {
        let mut changed = [false; 3];
        for ((topic, mark), changed) in
            self.0.iter_mut().zip([marks.orders, marks.alerts, marks.bindings]).zip(&mut changed)
        {
            let has_moved = topic.mark.is_some_and(|seen| seen != mark);
            let has_settled = topic.unsettled_below.is_some_and(|end| marks.oldest >= end);
            *changed = has_moved || has_settled;
            if has_moved || topic.mark.is_none() {
                topic.unsettled_below = Some(marks.next);
            } else if has_settled {
                topic.unsettled_below = None;
            }
            topic.mark = Some(mark);
        }
        changed
    }
}

/// Reads the positions of the sequences. An acknowledgement of an alert draws no number, but its staff request does. A
/// desk claim draws the number of its staff action.
async fn load_marks(db: &Pool) -> Result<HistoryMarks, sqlx::Error> {
    sqlx::query_as(
        "-- marks of pages
         SELECT pg_snapshot_xmin(s.now)::text::bigint AS oldest, pg_snapshot_xmax(s.now)::text::bigint AS next,
                coalesce(pg_sequence_last_value('order_events_seq'), 0)
                    + coalesce(pg_sequence_last_value('staff_actions_id_seq'), 0) AS orders,
                coalesce(pg_sequence_last_value('alerts_id_seq'), 0)
                    + coalesce(pg_sequence_last_value('staff_requests_id_seq'), 0) AS alerts,
                coalesce(pg_sequence_last_value('binding_events_seq_seq'), 0) AS bindings
         FROM (SELECT pg_current_snapshot() AS now) s",
    )
    .fetch_one(db)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(oldest: i64, next: i64, orders: i64) -> HistoryMarks {
        HistoryMarks { oldest, next, orders, alerts: 0, bindings: 0 }
    }

    #[test]
    fn change_is_announced_at_start_and_commit() {
        let mut seen = SeenMarks::default();
        assert_eq!(seen.find_changed(&marks(10, 10, 5)), [false; 3], "pages were just loaded");
        assert_eq!(
            seen.find_changed(&marks(10, 10, 5)),
            [true; 3],
            "transactions from before the first call have ended"
        );
        assert_eq!(seen.find_changed(&marks(10, 10, 5)), [false; 3]);
        // Transaction 10 draws a number and stays open.
        assert_eq!(seen.find_changed(&marks(10, 11, 6)), [true, false, false]);
        assert_eq!(seen.find_changed(&marks(10, 12, 6)), [false; 3]);
        assert_eq!(seen.find_changed(&marks(11, 12, 6)), [true, false, false], "it has committed");
        assert_eq!(seen.find_changed(&marks(12, 12, 6)), [false; 3]);
        assert_eq!(seen.find_changed(&marks(12, 13, 7)), [true, false, false]);
        assert_eq!(seen.find_changed(&marks(12, 14, 8)), [true, false, false], "another, before the first has ended");
        assert_eq!(seen.find_changed(&marks(13, 14, 8)), [false; 3]);
        assert_eq!(seen.find_changed(&marks(14, 14, 8)), [true, false, false]);
    }
}
