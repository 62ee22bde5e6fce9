//! What this process saw of each area last. An advice may be up to a tenth of a second old.

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

/// An advice may be so old.
const FRESH: Duration = Duration::from_millis(100);
/// The first request that finds a count too old asks again, and the others take the old one for so long.
const GRACE: Duration = Duration::from_millis(40);
/// How an area stands, and what else an answer tells.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AreaStanding {
    pub standing: AreaLoad,
    /// The threshold it was full by.
    pub busy_threshold: Option<i64>,
    /// Milliseconds since the epoch: until when the order that waits longest counts.
    pub oldest_expiry_ms: Option<i64>,
    /// Seconds that lately assigned orders waited, on average.
    pub average_wait_s: Option<f64>,
}

impl AreaStanding {
    /// How it stands by these limits: that it was full by others says nothing.
    pub fn standing_under(&self, limits: &AreaLimits) -> AreaLoad {
        let same = self.busy_threshold == Some(limits.max_waiting);
        AreaLoad { busy_since: self.standing.busy_since.filter(|_| same), ..self.standing }
    }
}

/// What was last seen of each area and service type. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct StandingsCache(Arc<Mutex<Known>>);

type Known = HashMap<AreaKey, CachedStanding>;

#[derive(Debug, Clone, Copy)]
struct CachedStanding {
    seen_at: Instant,
    /// A request asks again since then.
    asked_at: Instant,
    seen: AreaStanding,
}

impl StandingsCache {
    fn lock_known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }

    /// Returns what was seen, if it is fresh. `None`: the caller asks again, and others may take the old answer a moment longer.
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
