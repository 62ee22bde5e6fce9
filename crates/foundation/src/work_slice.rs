//! Time limit of one request for work that may take longer than a request.
//!
//! The work checks the slice between its steps. It always does at least one step, so that repeated requests finish it.

use std::time::{Duration, Instant};

/// Time for the part of the work that one request does.
#[derive(Debug, Clone, Copy)]
pub struct WorkSlice {
    /// `None`: the work runs to its end.
    ends: Option<Instant>,
}

impl WorkSlice {
    /// No time limit.
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
