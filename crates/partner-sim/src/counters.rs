//! Counters of requests, bookings and callbacks.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use serde::Serialize;

const SECOND: Duration = Duration::from_secs(1);

/// Counts since the start. Removing bookings does not change them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SimulationCounters {
    /// Requests of the partner API, whatever their result.
    pub requests: u64,
    /// Maximum number of requests that ran at the same time.
    pub max_concurrent: u64,
    /// Maximum number of requests within any second of real time.
    pub max_in_a_second: u64,
    /// New bookings.
    pub bookings: u64,
    /// Booking requests repeated with the same key and body.
    pub bookings_repeated: u64,
    /// Requests for a job's status.
    pub polls: u64,
    /// Bookings cancelled over the API. Repeated cancels do not count.
    pub cancels: u64,
    /// Cancels refused because a passenger was aboard.
    pub cancels_too_late: u64,
    /// Contents of bookings that were accepted.
    pub details: u64,
    /// Callbacks that the receiver accepted, not counting wrong ones.
    pub callbacks_sent: u64,
    /// Accepted callbacks that were sent a second time.
    pub callbacks_doubled: u64,
    /// Attempts that the receiver refused or did not answer.
    pub callbacks_refused: u64,
    /// Callbacks dropped after all attempts.
    pub callbacks_given_up: u64,
    /// Callbacks that were not sent, because only a configured share is sent.
    pub callbacks_withheld: u64,
    /// Wrong callbacks sent: forged, about an unknown booking, or with a foreign job id.
    pub callbacks_wrong: u64,
    /// Wrong callbacks that the receiver accepted.
    pub callbacks_wrong_taken: u64,
    /// Requests above the rate limit, answered 429.
    pub rate_limited: u64,
    /// Requests with a wrong key, or with the right one while keys fail, answered 401.
    pub unauthorized: u64,
    /// Requests answered 503 because of an outage.
    pub unavailable: u64,
    pub errors_500: u64,
    pub errors_503: u64,
    pub hangs: u64,
    pub resets: u64,
    pub lost_answers: u64,
}

impl fmt::Display for SimulationCounters {
    /// Writes one line per counter in field order, with spaces instead of underscores.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        for (name, count) in value.as_object().into_iter().flatten() {
            writeln!(f, "{:<24}{count:>12}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

/// Tracks running requests and the requests of the last second.
#[derive(Debug, Default)]
pub(super) struct RequestTraffic {
    running: u64,
    last_second: VecDeque<Instant>,
}

impl RequestTraffic {
    pub(super) fn begin_request(&mut self, counters: &mut SimulationCounters, now: Instant) {
        self.running += 1;
        while self.last_second.front().is_some_and(|at| now.saturating_duration_since(*at) >= SECOND) {
            self.last_second.pop_front();
        }
        self.last_second.push_back(now);
        counters.requests += 1;
        counters.max_concurrent = counters.max_concurrent.max(self.running);
        counters.max_in_a_second = counters.max_in_a_second.max(self.last_second.len() as u64);
    }

    pub(super) fn end_request(&mut self) {
        self.running -= 1;
    }

    pub(super) fn running_requests(&self) -> u64 {
        self.running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_second_is_a_sliding_window() {
        let (mut traffic, mut counters, start) =
            (RequestTraffic::default(), SimulationCounters::default(), Instant::now());
        for at_ms in [0, 600, 900, 1200, 1599, 3000] {
            traffic.begin_request(&mut counters, start + Duration::from_millis(at_ms));
            traffic.end_request();
        }
        // The window contains 600, 900, 1200 and 1599; no calendar second contains four.
        assert_eq!((counters.requests, counters.max_in_a_second, counters.max_concurrent), (6, 4, 1));
    }
}
