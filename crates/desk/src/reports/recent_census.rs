//! A count of open orders that all who look at this process share, where orders are many.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::census::{self, OrderCensus};
use foundation::db::Pool;
use parking_lot::Mutex;

/// Counting takes a second for each few hundred thousand open orders. With so many a count is used for ten times as long as
/// it took; fewer are counted each time.
const MANY: u64 = 10_000;
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

    /// Good enough while the next count is under way.
    fn is_usable(&self) -> bool {
        self.at.elapsed() < self.took * 20
    }
}

fn latest() -> Option<CachedCensus> {
    LATEST.lock().clone()
}

/// The latest count, unless it is too old.
pub fn latest_count() -> Option<Arc<OrderCensus>> {
    latest().filter(CachedCensus::is_usable).map(|counted| counted.census)
}

/// Counts all open orders, or answers a recent count of very many. One counts at a time, by a task that goes on when its caller does not
/// wait for it any longer; those who ask meanwhile have the latest count, if there is one. Where orders are many so has the one who asked
/// first, and the next look shows the new count.
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
