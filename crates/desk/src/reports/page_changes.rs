//! Whether what pages show has changed: one question to Postgres a second for all who look at pages of this process, however
//! many they are; none while no page is looked at.
//!
//! Each history numbers its rows from a sequence, and reading how far a sequence is costs the same however long the history is.
//! A number is drawn before its transaction commits. So a change is announced when its number is drawn, and once more when every
//! transaction of that time has ended: a page that looked too early looks again.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use foundation::{db::Pool, loops::LoopRegistry};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pages that may be told at once at this process. Others ask again by themselves.
const MOST_WATCHERS: usize = 256;

/// What a page shows rows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ChangeTopic {
    Orders,
    /// Raised and acknowledged ones.
    Alerts,
    Bindings,
}

impl ChangeTopic {
    const ALL: [Self; 3] = [Self::Orders, Self::Alerts, Self::Bindings];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The topic of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == word)
    }
}

/// Who looks at pages of this process.
#[derive(Debug, Clone, Default)]
pub struct ChangeBoard(Arc<Mutex<PageWatchers>>);

#[derive(Debug, Default)]
struct PageWatchers {
    /// In the order of [`ChangeTopic::ALL`].
    bells: [watch::Sender<()>; 3],
    count: usize,
    /// A task looks for them.
    looked_for: bool,
    /// This process ends: no page is told any more.
    closed: bool,
}

/// One page that is told; dropped, also when the browser hangs up, it is told no more.
#[derive(Debug)]
pub struct PageWatcher {
    board: ChangeBoard,
    rung: watch::Receiver<()>,
}

impl PageWatcher {
    /// Returns when rows have changed; `false`: this process ends.
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
    /// Has a page told of changes. `None`: too many are, or this process ends.
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

    /// Lets all go who are told, and has none told any more: for the end of a process.
    pub fn close(&self) {
        let mut watchers = self.lock();
        watchers.closed = true;
        watchers.bells.iter().for_each(ring);
    }

    fn lock(&self) -> MutexGuard<'_, PageWatchers> {
        self.0.lock()
    }

    /// Until no page is told any more.
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
            // A turn that was given up is an answer that failed.
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
                    tracing::warn!(%error, "Pages cannot be told of changes; they ask again by themselves.");
                }
            }
        }
    }
}

fn ring(bell: &watch::Sender<()>) {
    bell.send_modify(|()| ());
}

/// How far the histories are, and the transactions of that time: those below `oldest` have ended, those from `next` on have not
/// begun.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
struct HistoryMarks {
    oldest: i64,
    next: i64,
    orders: i64,
    alerts: i64,
    bindings: i64,
}

/// What was seen of one topic.
#[derive(Debug, Clone, Copy, Default)]
struct SeenTopic {
    mark: Option<i64>,
    /// Transactions below this one may have drawn numbers that could not be seen yet.
    unsettled_below: Option<i64>,
}

#[derive(Debug, Default)]
struct SeenMarks([SeenTopic; 3]);

impl SeenMarks {
    /// Returns which topics have changed since the last look, or may have. The first look announces nothing at once: pages are made
    /// just before it.
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

/// Acknowledging an alert draws no number of its own, but a person asks for it. That a person is on an order is in the record of what
/// staff did.
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
        assert_eq!(seen.find_changed(&marks(10, 10, 5)), [false; 3], "pages were just made");
        assert_eq!(seen.find_changed(&marks(10, 10, 5)), [true; 3], "what began before the first look has ended");
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
