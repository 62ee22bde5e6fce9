//! A count of open orders that all callers of this process share when there are many orders.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::census::{self, OrderCensus};
use foundation::db::Pool;
use parking_lot::Mutex;

/// Number of open orders above which a count is reused. Counting takes a second for a few hundred thousand open orders,
/// and a count is reused for ten times as long as it took. Smaller counts are not reused.
const MANY: u64 = 10_000;
/// Age up to which a large count is used while the next one runs. Longer than the time between two refreshes of a page,
/// so that a person who looks at a page waits for a count only the first time.
const USABLE: Duration = Duration::from_secs(30);
static LATEST: Mutex<Option<CachedCensus>> = Mutex::new(None);
static COUNTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[derive(Debug, Clone)]
struct CachedCensus {
    at: Instant,
    took: Duration,
    census: Arc<OrderCensus>,
}

impl CachedCensus {
    fn is_fresh(&self) -> bool {
        self.census.orders > MANY && self.at.elapsed() < self.took * 10
    }

    /// Returns whether the count may be used while the next one is running.
    fn is_usable(&self) -> bool {
        let least = if self.census.orders > MANY { USABLE } else { Duration::ZERO };
        self.at.elapsed() < least.max(self.took * 20)
    }
}

fn latest() -> Option<CachedCensus> {
    LATEST.lock().clone()
}

/// Returns the latest count, unless it is too old.
pub fn latest_count() -> Option<Arc<OrderCensus>> {
    latest().filter(CachedCensus::is_usable).map(|counted| counted.census)
}

/// Counts all open orders, or returns a recent count if there are very many. One count runs at a time, in a task that
/// continues even if its caller stops waiting. Other callers get the latest count, if there is one. With many orders
/// the caller that started the count also gets the latest one, and the next call returns the new count.
pub async fn count_orders(db: &Pool) -> Result<Arc<OrderCensus>, sqlx::Error> {
    let known = latest();
    if let Some(counted) = known.as_ref().filter(|known| known.is_fresh()) {
        return Ok(counted.census.clone());
    }
    let Ok(counting) = COUNTING.try_lock() else {
        return match latest_count() {
            Some(census) => Ok(census),
            None => census::take_census(db).await.map(Arc::new),
        };
    };
    let db = db.clone();
    let count = tokio::spawn(async move {
        let _counting = counting;
        let begun = Instant::now();
        let census = census::take_census(&db).await.map(Arc::new);
        let counted = |census: &Arc<OrderCensus>| CachedCensus {
            at: Instant::now(),
            took: begun.elapsed(),
            census: census.clone(),
        };
        *LATEST.lock() = census.as_ref().ok().map(counted);
        census
    });
    match known.filter(CachedCensus::is_usable) {
        Some(counted) if counted.census.orders > MANY => Ok(counted.census),
        _ => count.await.unwrap_or(Err(sqlx::Error::WorkerCrashed)),
    }
}
