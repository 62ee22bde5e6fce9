//! Long polls of the feed: requests that wait for the next step.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::read::{FeedCursor, FeedPage, FeedScope, load_page};
use foundation::{
    db::Pool,
    loops::LoopRegistry,
    poll_board::{Capacity, PollBoard, PollSource, Wakeup, find_differing},
};

/// Waiting requests of this process.
pub type FeedBoard = PollBoard<FeedEnds>;

/// Ends of feeds.
#[derive(Debug)]
pub struct FeedEnds;

impl PollSource for FeedEnds {
    type Key = FeedScope;
    type Seen = HashMap<FeedScope, FeedEnd>;

    const NAME: &'static str = "feed board";
    const INTERVAL: Duration = Duration::from_millis(250);
    const CAPACITY: Capacity = Capacity::PerKey(32);

    async fn find_changed(
        db: &Pool,
        scopes: &[FeedScope],
        seen: &mut Self::Seen,
    ) -> Result<Vec<FeedScope>, sqlx::Error> {
        let ends = load_ends(db, scopes).await?;
        Ok(find_differing(scopes, ends, seen))
    }
}

/// Returns the steps after a cursor: as soon as there is one, or an empty page after `at_most`. Returns `None` if
/// the cursor is ahead of this database and therefore from another one.
pub async fn wait_for_steps(
    board: &FeedBoard,
    (db, loops): (&Pool, &LoopRegistry),
    scope: &FeedScope,
    mut after: FeedCursor,
    limit: u32,
    at_most: Duration,
) -> Result<Option<FeedPage>, sqlx::Error> {
    let end = Instant::now() + at_most;
    let mut place = if at_most.is_zero() { None } else { board.enter(db, loops, scope) };
    loop {
        let Some(page) = load_page(db, scope, after, limit).await? else { return Ok(None) };
        let Some(place) = place.as_mut().filter(|_| page.events.is_empty()) else { return Ok(Some(page)) };
        if place.wait(end).await != Wakeup::Changed {
            return Ok(Some(page));
        }
        after = page.next;
    }
}

/// Last readable step of a feed: position and number.
type FeedEnd = (i64, i64);

async fn load_ends(db: &Pool, scopes: &[FeedScope]) -> Result<HashMap<FeedScope, FeedEnd>, sqlx::Error> {
    let owners: Vec<&str> = scopes
        .iter()
        .filter_map(|scope| match scope {
            FeedScope::All => None,
            FeedScope::Producer(owner) => Some(owner.as_str()),
        })
        .collect();
    let mut ends = HashMap::new();
    if !owners.is_empty() {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "-- ends of producers' feeds
             SELECT o.owner, last.position, last.seq
             FROM unnest($1::text[]) AS o (owner)
                  CROSS JOIN LATERAL (SELECT f.position, f.seq FROM order_feed f
                                      WHERE f.owner = o.owner AND f.position < dispatchq_feed_horizon()
                                      ORDER BY f.position DESC, f.seq DESC LIMIT 1) last",
        )
        .bind(&owners)
        .fetch_all(db)
        .await?;
        ends.extend(rows.into_iter().map(|(owner, position, seq)| (FeedScope::Producer(owner), (position, seq))));
    }
    if scopes.contains(&FeedScope::All) {
        let last: Option<FeedEnd> = sqlx::query_as(
            "-- end of feed
             SELECT position, seq FROM order_feed f
             WHERE f.position < dispatchq_feed_horizon() ORDER BY f.position DESC, f.seq DESC LIMIT 1",
        )
        .fetch_optional(db)
        .await?;
        ends.extend(last.map(|end| (FeedScope::All, end)));
    }
    Ok(ends)
}
