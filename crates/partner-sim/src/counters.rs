//! What was seen and done so far.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use serde::Serialize;

const SECOND: Duration = Duration::from_secs(1);

/// Numbers since the start. They stay when bookings are forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SimulationCounters {
    /// Requests of the partner API, whatever became of them.
    pub requests: u64,
    /// Most requests that ran at the same time.
    pub max_concurrent: u64,
    /// Most requests that came within any one second of real time.
    pub max_in_a_second: u64,
    /// Bookings made.
    pub bookings: u64,
    /// Bookings asked for again with the same key and body.
    pub bookings_repeated: u64,
    /// Questions for a job's status.
    pub polls: u64,
    /// Bookings cancelled by us; repeated cancels do not count.
    pub cancels: u64,
    /// Cancels refused because of a passenger aboard.
    pub cancels_too_late: u64,
    /// Callbacks the receiver took, wrong ones not among them.
    pub callbacks_sent: u64,
    /// Callbacks that arrived and were sent once more.
    pub callbacks_doubled: u64,
    /// Tries the receiver refused or did not answer.
    pub callbacks_refused: u64,
    /// Callbacks given up after all tries.
    pub callbacks_given_up: u64,
    /// Callbacks not sent, as their rate wants.
    pub callbacks_withheld: u64,
    /// Wrong callbacks sent: forged, about an unknown booking, with a foreign job id.
    pub callbacks_wrong: u64,
    /// Wrong callbacks that the receiver took.
    pub callbacks_wrong_taken: u64,
    /// Requests above the limit: 429.
    pub rate_limited: u64,
    /// Requests with a bad key, or with a good one while keys fail: 401.
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
    /// One line each, in the order of the fields, with words for underscores.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        for (name, count) in value.as_object().into_iter().flatten() {
            writeln!(f, "{:<24}{count:>12}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

/// Counts requests as they come and go.
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
    fn the_busiest_second_slides() {
        let (mut traffic, mut counters, start) =
            (RequestTraffic::default(), SimulationCounters::default(), Instant::now());
        for at_ms in [0, 600, 900, 1200, 1599, 3000] {
            traffic.begin_request(&mut counters, start + Duration::from_millis(at_ms));
            traffic.end_request();
        }
        // 600, 900, 1200, 1599; no calendar second had as many.
        assert_eq!((counters.requests, counters.max_in_a_second, counters.max_concurrent), (6, 4, 1));
    }
}
