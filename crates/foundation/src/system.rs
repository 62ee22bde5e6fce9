//! This machine's clock and generator: the sources of a running process. Tests put others in their place.

use chrono::{DateTime, Utc};

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

/// The generator of this thread, seeded by the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_unit(&self) -> f64 {
        rand::random()
    }
}
