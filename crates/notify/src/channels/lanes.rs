//! Who may send now: the share of each channel in what one process delivers at the same time.
//!
//! A channel has at most half of what the others leave free, so that each further channel finds a place however many hang.
//! After [`FAILURES`] failures in a row only one delivery at a time tries whether the receiver is back; a success ends that.
//! A message that finds no place is told when to come back: each at a moment of its own, [`APART`] from the next while
//! nothing gets through. So a backlog of any length costs a bounded number of looks per second, and those who wait return
//! no faster than the channel takes them.
//!
//! The state is this process's own: other processes learn of a receiver by their own deliveries.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use queue::retry::add_jitter;
use rand::random;

/// Failures in a row after which a channel sends one message at a time.
const FAILURES: u32 = 5;
/// A message that finds no place stays away for at least this time.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// As long as the longest backoff of a message.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Between two messages that come back to a channel on which nothing gets through.
const APART: Duration = Duration::from_millis(50);
/// Between two that come back to a channel whose deliveries succeed quickly.
const LEAST_APART: Duration = Duration::from_millis(2);

/// All channels of a process. Cheap to clone; clones share their state.
#[derive(Debug, Clone)]
pub(super) struct ChannelLanes {
    /// Messages this process delivers at the same time.
    total: usize,
    by_channel: Arc<Mutex<BTreeMap<String, ChannelLane>>>,
}

#[derive(Debug)]
struct ChannelLane {
    in_flight: usize,
    /// In a row.
    failures: u32,
    /// When a delivery last ended.
    last_end: Instant,
    /// When the last message that waits comes back.
    last_return: Instant,
}

impl ChannelLane {
    fn new(now: Instant) -> Self {
        Self { in_flight: 0, failures: 0, last_end: now, last_return: now }
    }

    fn is_failing(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Reserves the next free moment to come back at. `random` lies in 0..1.
    fn reserve_return(&mut self, now: Instant, random: f64) -> Duration {
        let apart = if self.is_failing() {
            APART
        } else {
            now.saturating_duration_since(self.last_end).clamp(LEAST_APART, APART)
        };
        let pause = (self.last_return + apart).saturating_duration_since(now).max(LEAST_PAUSE);
        if pause > LONGEST_PAUSE {
            // More wait than come back within this time: spread over it.
            return add_jitter(LONGEST_PAUSE.mul_f64(0.75), 1.0 / 3.0, random);
        }
        self.last_return = now + pause;
        pause
    }
}

impl ChannelLanes {
    pub(super) fn new(total: usize) -> Self {
        Self { total: total.max(1), by_channel: Arc::default() }
    }

    /// Gives a message a place on this channel, or tells how long it should wait.
    pub(super) fn enter_lane(&self, channel: &str) -> Result<LanePlace, Duration> {
        let now = Instant::now();
        let mut lanes = self.lock_lanes();
        let others: usize = lanes.iter().filter(|(name, _)| *name != channel).map(|(_, lane)| lane.in_flight).sum();
        let lane = lanes.entry(channel.to_owned()).or_insert_with(|| ChannelLane::new(now));
        let share = if lane.is_failing() { 1 } else { (self.total.saturating_sub(others) / 2).max(1) };
        if lane.in_flight >= share {
            return Err(lane.reserve_return(now, random()));
        }
        lane.in_flight += 1;
        Ok(LanePlace { lanes: self.clone(), channel: channel.to_owned(), tried: None })
    }

    fn leave_lane(&self, channel: &str, tried: Option<LaneOutcome>) {
        let now = Instant::now();
        if let Some(lane) = self.lock_lanes().get_mut(channel) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
            match tried {
                Some(LaneOutcome::Failed) => {
                    lane.last_end = now;
                    lane.failures = lane.failures.saturating_add(1);
                }
                Some(LaneOutcome::Answered) => {
                    lane.last_end = now;
                    if lane.is_failing() {
                        // Messages that come now need not stand behind those that waited for an ailing receiver.
                        lane.last_return = now;
                    }
                    lane.failures = 0;
                }
                // Nothing was sent: nothing is known of the receiver.
                None => {}
            }
        }
    }

    fn lock_lanes(&self) -> MutexGuard<'_, BTreeMap<String, ChannelLane>> {
        self.by_channel.lock()
    }
}

/// A place on a channel, given back when it is dropped.
#[derive(Debug)]
pub struct LanePlace {
    lanes: ChannelLanes,
    channel: String,
    tried: Option<LaneOutcome>,
}

/// What a delivery taught about its receiver.
#[derive(Debug, Clone, Copy)]
pub(super) enum LaneOutcome {
    /// It took the message, or refused it.
    Answered,
    /// It did not take the message and may take it later.
    Failed,
}

impl LanePlace {
    /// Records how the delivery ended. Without this, nothing was sent.
    pub(super) fn record_outcome(&mut self, tried: LaneOutcome) {
        self.tried = Some(tried);
    }
}

impl Drop for LanePlace {
    fn drop(&mut self) {
        self.lanes.leave_lane(&self.channel, self.tried);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(lanes: &ChannelLanes, channel: &str) -> Vec<LanePlace> {
        std::iter::from_fn(|| lanes.enter_lane(channel).ok()).collect()
    }

    fn fail(lanes: &ChannelLanes, channel: &str, times: u32) {
        for _ in 0..times {
            lanes.enter_lane(channel).unwrap().record_outcome(LaneOutcome::Failed);
        }
    }

    #[test]
    fn each_channel_leaves_half_the_free_lanes() {
        let lanes = ChannelLanes::new(32);
        let held: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|channel| fill(&lanes, channel)).into();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [16, 8, 4, 2, 1, 1]);
        drop(held);
        assert_eq!(fill(&lanes, "b").len(), 16);
    }

    #[test]
    fn failing_channel_tries_one_message_at_once() {
        let lanes = ChannelLanes::new(32);
        fail(&lanes, "hook", FAILURES);
        assert_eq!(fill(&lanes, "hook").len(), 1);
        assert_eq!(fill(&lanes, "mail").len(), 16, "others have their share");
        drop(lanes.enter_lane("hook").unwrap());
        assert_eq!(fill(&lanes, "hook").len(), 1, "nothing was sent");
        lanes.enter_lane("hook").unwrap().record_outcome(LaneOutcome::Answered);
        assert_eq!(fill(&lanes, "hook").len(), 16);
    }

    #[test]
    fn failing_channel_backlog_returns_slowly() {
        let lanes = ChannelLanes::new(32);
        fail(&lanes, "hook", FAILURES);
        let _trial = lanes.enter_lane("hook").unwrap();
        let mut pauses: Vec<_> = (0..20_000).map(|_| lanes.enter_lane("hook").unwrap_err().as_secs()).collect();
        pauses.sort_unstable();
        let most_in_a_second = pauses.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap();
        assert!((20..=80).contains(&most_in_a_second), "{most_in_a_second} come back within one second");
        assert!(pauses.last().is_some_and(|last| *last <= LONGEST_PAUSE.as_secs()), "{:?}", pauses.last());
    }
}
