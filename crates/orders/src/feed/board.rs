//! Long polls of the feed: requests that wait for the next step.
//!
//! One query to Postgres, four times a second, serves all waiting requests of this process. Without waiting requests
//! there are no queries. The query returns the end of each waiting producer's feed, and requests whose feed has grown
//! are woken. A step thus reaches a waiting request within 250 ms, whichever process wrote it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::read::{FeedCursor, FeedPage, FeedScope, load_page};
use foundation::{db::Pool, loops::LoopRegistry};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Maximum waiting requests per scope and process. Further requests are answered immediately.
const MOST_PER_SCOPE: usize = 32;

/// Waiting requests of this process.
#[derive(Debug, Clone, Default)]
pub struct FeedBoard(Arc<Mutex<WaitingReaders>>);

#[derive(Debug, Default)]
struct WaitingReaders {
    by_scope: HashMap<FeedScope, ScopeRequests>,
    /// Whether a polling task is running.
    looked_for: bool,
    /// Whether this process is stopping, so that requests no longer wait.
    closed: bool,
}

#[derive(Debug)]
struct ScopeRequests {
    /// Notifies the requests when their feed may have grown.
    bell: watch::Sender<()>,
    count: usize,
}

/// Registration of a waiting request. Dropping it, for example when the client disconnects, removes the request.
struct FeedBoardPlace<'a> {
    board: &'a FeedBoard,
    scope: &'a FeedScope,
    rung: watch::Receiver<()>,
}

impl Drop for FeedBoardPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = self.board.lock_board();
        if let Some(requests) = waiting.by_scope.get_mut(self.scope) {
            requests.count -= 1;
            if requests.count == 0 {
                waiting.by_scope.remove(self.scope);
            }
        }
    }
}

impl FeedBoard {
    /// Returns the steps after a cursor: as soon as there is one, or an empty page after `at_most`. Returns `None` if
    /// the cursor is ahead of this database and therefore from another one.
    pub async fn wait_for_steps(
        &self,
        (db, loops): (&Pool, &LoopRegistry),
        scope: &FeedScope,
        mut after: FeedCursor,
        limit: u32,
        at_most: Duration,
    ) -> Result<Option<FeedPage>, sqlx::Error> {
        let end = Instant::now() + at_most;
        // Register before reading, so that a step written in between wakes the request.
        let mut place = if at_most.is_zero() { None } else { self.enter_board(db, loops, scope) };
        loop {
            let Some(page) = load_page(db, scope, after, limit).await? else { return Ok(None) };
            let Some(place) = place.as_mut().filter(|_| page.events.is_empty() && !self.is_closed()) else {
                return Ok(Some(page));
            };
            if !matches!(timeout_at(end, place.rung.changed()).await, Ok(Ok(()))) {
                return Ok(Some(page));
            }
            after = page.next;
        }
    }

    /// Wakes all waiting requests and lets no further request wait. Called when the process stops.
    pub fn close(&self) {
        let mut waiting = self.lock_board();
        waiting.closed = true;
        waiting.by_scope.values().for_each(ScopeRequests::wake_requests);
    }

    fn lock_board(&self) -> parking_lot::MutexGuard<'_, WaitingReaders> {
        self.0.lock()
    }

    fn is_closed(&self) -> bool {
        self.lock_board().closed
    }

    /// Registers a request. Returns `None` if too many requests of this scope are waiting.
    fn enter_board<'a>(&'a self, db: &Pool, loops: &LoopRegistry, scope: &'a FeedScope) -> Option<FeedBoardPlace<'a>> {
        let mut waiting = self.lock_board();
        let requests = waiting
            .by_scope
            .entry(scope.clone())
            .or_insert_with(|| ScopeRequests { bell: watch::channel(()).0, count: 0 });
        if requests.count >= MOST_PER_SCOPE {
            return None;
        }
        requests.count += 1;
        let rung = requests.bell.subscribe();
        if !waiting.looked_for {
            waiting.looked_for = true;
            tokio::spawn(self.clone().poll_feed(db.clone(), loops.clone()));
        }
        Some(FeedBoardPlace { board: self, scope, rung })
    }

    /// Polls the feeds until no request is waiting.
    async fn poll_feed(self, db: Pool, loops: LoopRegistry) {
        let turns = loops.register_loop("feed board");
        let mut next = Instant::now();
        let mut seen = HashMap::new();
        let mut failing = false;
        loop {
            next = next.max(Instant::now()) + LOOK_EVERY;
            sleep_until(next).await;
            let scopes: Vec<FeedScope> = {
                let mut waiting = self.lock_board();
                if waiting.by_scope.is_empty() {
                    waiting.looked_for = false;
                    return;
                }
                waiting.by_scope.keys().cloned().collect()
            };
            // A cancelled turn counts as a failed query.
            let answer = turns.run_turn(load_ends(&db, &scopes)).await;
            match answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok(ends) => {
                    let waiting = self.lock_board();
                    let grown = scopes.iter().filter(|scope| ends.get(*scope) != seen.get(*scope));
                    grown.filter_map(|scope| waiting.by_scope.get(scope)).for_each(ScopeRequests::wake_requests);
                    seen = ends;
                    failing = false;
                }
                Err(_) if failing => {}
                Err(error) => {
                    failing = true;
                    tracing::warn!(%error, "The feed could not be polled for the requests that wait for steps of orders.");
                }
            }
        }
    }
}

impl ScopeRequests {
    fn wake_requests(&self) {
        self.bell.send_modify(|()| ());
    }
}

/// Last readable step of a feed: transaction and number.
type FeedEnd = (String, i64);

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
        let rows: Vec<(String, String, i64)> = sqlx::query_as(
            "-- ends of producers' feeds
             SELECT o.owner, last.tx::text, last.seq
             FROM unnest($1::text[]) AS o (owner)
                  CROSS JOIN LATERAL (SELECT f.tx, f.seq FROM order_feed f
                                      WHERE f.owner = o.owner AND f.tx < pg_snapshot_xmin(pg_current_snapshot())
                                      ORDER BY f.tx DESC, f.seq DESC LIMIT 1) last",
        )
        .bind(&owners)
        .fetch_all(db)
        .await?;
        ends.extend(rows.into_iter().map(|(owner, tx, seq)| (FeedScope::Producer(owner), (tx, seq))));
    }
    if scopes.contains(&FeedScope::All) {
        let last: Option<FeedEnd> = sqlx::query_as(
            "-- end of feed
             SELECT tx::text, seq FROM order_feed f
             WHERE f.tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY f.tx DESC, f.seq DESC LIMIT 1",
        )
        .fetch_optional(db)
        .await?;
        ends.extend(last.map(|end| (FeedScope::All, end)));
    }
    Ok(ends)
}
