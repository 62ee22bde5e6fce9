//! Latest known state of each area in this process. The answer to a check may be up to a tenth of a second old.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    admission::{decide::AreaLoad, limits::AreaLimits},
    ids::AreaKey,
};
use parking_lot::{Mutex, MutexGuard};

/// Maximum age of a state that answers a check.
const FRESH: Duration = Duration::from_millis(100);
/// Time that other requests may use an outdated state while one request reads the new one.
const GRACE: Duration = Duration::from_millis(40);
/// State of an area, with additional values for answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AreaStanding {
    pub standing: AreaLoad,
    /// Threshold at which the area became busy.
    pub busy_threshold: Option<i64>,
    /// End of the time for which the longest-waiting order counts, in milliseconds since the epoch.
    pub oldest_expiry_ms: Option<i64>,
    /// Average wait of recently assigned orders, in seconds.
    pub average_wait_s: Option<f64>,
}

impl AreaStanding {
    /// Returns the load under these limits. Ignores a busy mark that was set under another threshold.
    pub fn standing_under(&self, limits: &AreaLimits) -> AreaLoad {
        let same = self.busy_threshold == Some(limits.max_waiting);
        AreaLoad { busy_since: self.standing.busy_since.filter(|_| same), ..self.standing }
    }
}

/// Latest known state by area and service type. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct StandingsCache(Arc<Mutex<Known>>);

type Known = HashMap<AreaKey, CachedStanding>;

#[derive(Debug, Clone, Copy)]
struct CachedStanding {
    seen_at: Instant,
    /// Time of the latest request that started to read a new state.
    asked_at: Instant,
    seen: AreaStanding,
}

impl StandingsCache {
    fn lock_known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }

    /// Returns the state if it is fresh. On `None` the caller must read a new one; other requests may use the old state
    /// for `GRACE`.
    pub(crate) fn read_fresh(&self, key: &AreaKey) -> Option<AreaStanding> {
        let mut known = self.lock_known();
        let look = known.get_mut(key)?;
        let age = look.seen_at.elapsed();
        if age < FRESH || (age < FRESH + GRACE && look.asked_at.elapsed() < GRACE) {
            return Some(look.seen);
        }
        look.asked_at = Instant::now();
        None
    }

    pub(crate) fn remember(&self, key: AreaKey, seen: AreaStanding) {
        self.lock_known().insert(key, CachedStanding { seen_at: Instant::now(), asked_at: Instant::now(), seen });
    }
}
