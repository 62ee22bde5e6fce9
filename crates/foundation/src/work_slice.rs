//! The time that one request has for work that may take longer than a request may.
//!
//! Work that gets a slice does at least one step, so that repeated requests reach its end, and looks at the slice between steps.

use std::time::{Duration, Instant};

/// The part of a long work that one request does.
#[derive(Debug, Clone, Copy)]
pub struct WorkSlice {
    /// `None`: the work runs to its end.
    ends: Option<Instant>,
}

impl WorkSlice {
    /// The whole work.
    pub const WHOLE: Self = Self { ends: None };

    /// A slice that ends after this time.
    pub fn lasting(time: Duration) -> Self {
        Self { ends: Some(Instant::now() + time) }
    }

    /// Returns whether no further step may start.
    pub fn is_over(self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }
}
