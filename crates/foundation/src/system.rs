//! This machine's clock and generator: the sources of a running process. Tests put others in their place.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use chrono::{DateTime, TimeDelta, Utc};

pub use model::{
    chance::{Rng, SeededRng},
    clock::{Clock, FixedClock},
};

/// The clock of this machine, which may be wrong. Deadlines go by Postgres' clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// The clock of Postgres, estimated from this machine's clock and the last time that Postgres told. Clones share the estimate.
#[derive(Debug, Clone)]
pub struct DatabaseClock {
    /// How far the clock of Postgres is ahead, in milliseconds.
    ahead_ms: Arc<AtomicI64>,
    clock: Arc<dyn Clock>,
}

impl DatabaseClock {
    /// Returns a clock that agrees with `clock` until [`DatabaseClock::adjust`] is called.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { ahead_ms: Arc::default(), clock }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now() + TimeDelta::milliseconds(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Records the time that Postgres has just told.
    pub fn adjust(&self, database_now: DateTime<Utc>) {
        self.ahead_ms.store((database_now - self.clock.now()).num_milliseconds(), Ordering::Relaxed);
    }
}

impl Default for DatabaseClock {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

/// The generator of this thread, seeded by the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_unit(&self) -> f64 {
        rand::random()
    }
}
