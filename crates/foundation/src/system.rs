//! Clock and random generator of this machine. Tests replace them.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use chrono::{DateTime, TimeDelta, Utc};

pub use model::{
    chance::{Rng, SeededRng},
    clock::{Clock, FixedClock},
};

/// Clock of this machine, which may be wrong. Deadlines use the clock of Postgres.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// Clock of Postgres, estimated from this machine's clock and the last known time of Postgres. Clones share the
/// estimate.
#[derive(Debug, Clone)]
pub struct DatabaseClock {
    /// Milliseconds by which the clock of Postgres is ahead.
    ahead_ms: Arc<AtomicI64>,
    clock: Arc<dyn Clock>,
}

impl DatabaseClock {
    /// Creates a clock that equals `clock` until [`DatabaseClock::adjust`] is called.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { ahead_ms: Arc::default(), clock }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now() + TimeDelta::milliseconds(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Adjusts the estimate to the time that Postgres has just returned.
    pub fn adjust(&self, database_now: DateTime<Utc>) {
        self.ahead_ms.store((database_now - self.clock.now()).num_milliseconds(), Ordering::Relaxed);
    }
}

impl Default for DatabaseClock {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

/// Random generator of this thread, seeded by the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_unit(&self) -> f64 {
        rand::random()
    }
}
