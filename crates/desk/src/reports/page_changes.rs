//! Changes of the rows that pages show. Pages wait for them on a [`PollBoard`].
//!
//! Each history numbers its rows from a sequence. Reading the position of a sequence costs the same for any length of
//! history. A number is drawn before its transaction commits. A change is therefore announced when its number is drawn,
//! and again when every transaction of that time has ended. A page that reloaded before the commit then reloads again.

use std::time::Duration;

use foundation::{
    db::Pool,
    poll_board::{Capacity, PollBoard, PollSource},
};

/// Kind of rows that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
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
pub type ChangeBoard = PollBoard<PageChanges>;

/// Source of the changes that open pages wait for.
#[derive(Debug)]
pub struct PageChanges;

impl PollSource for PageChanges {
    type Key = ChangeTopic;
    type Seen = SeenMarks;

    const NAME: &'static str = "page changes";
    const INTERVAL: Duration = Duration::from_secs(1);
    /// Other pages poll.
    const CAPACITY: Capacity = Capacity::InAll(256);

    async fn find_changed(
        db: &Pool,
        _topics: &[ChangeTopic],
        seen: &mut SeenMarks,
    ) -> Result<Vec<ChangeTopic>, sqlx::Error> {
        let marks = load_marks(db).await?;
        let changed = ChangeTopic::ALL.into_iter().zip(seen.find_changed(&marks));
        Ok(changed.filter_map(|(topic, changed)| changed.then_some(topic)).collect())
    }
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
pub struct SeenMarks([SeenTopic; 3]);

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

/// Reads the latest numbers of the sequences, which show changes. Two changes use the number of another row: an
/// acknowledgement of an alert that of its staff request, a desk claim that of its staff action.
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
