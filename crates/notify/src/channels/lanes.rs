//! Admission to delivery: each channel's share of the messages that one process delivers at the same time.
//!
//! A channel gets at most half of the places that the other channels leave free, so another channel always finds a
//! place. The endpoints of one producer are a group and share one such half: while several of them are active, each gets
//! at most half of what the others leave free of it. After [`FAILURES`] failures in a row, a channel sends one
//! message at a time to test the receiver; a success restores its share. A message without a place gets its own time to
//! return, at least [`APART`] after the previous one while nothing is delivered. The worker therefore checks a bounded
//! number of messages per second for any length of backlog. Messages return no faster than the channel accepts them.
//!
//! The state belongs to this process. Other processes learn about a receiver from their own deliveries.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use queue::retry::add_jitter;
use rand::random;

use crate::endpoints::owners::EndpointOwners;

/// Failures in a row after which a channel sends one message at a time.
const FAILURES: u32 = 5;
/// Minimum pause of a message that finds no place.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause; equal to the longest backoff of a message.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Time between two returning messages while the channel delivers nothing.
const APART: Duration = Duration::from_millis(50);
/// Time between two returning messages while deliveries succeed quickly.
const LEAST_APART: Duration = Duration::from_millis(2);
/// Time for which an endpoint without messages still counts as one that needs a part of its producer's share.
const ACTIVE: Duration = Duration::from_secs(60);

/// Lanes of all channels in this process. Cheap to clone; clones share their state.
#[derive(Debug, Clone)]
pub(super) struct ChannelLanes {
    /// Messages that this process delivers at the same time.
    total: usize,
    /// Groups of the endpoints.
    owners: EndpointOwners,
    by_channel: Arc<Mutex<Lanes>>,
}

type Lanes = BTreeMap<String, ChannelLane>;

#[derive(Debug)]
struct ChannelLane {
    /// Channel itself, or the channel of the producer that owns the endpoint.
    group: String,
    in_flight: usize,
    /// Failures in a row.
    failures: u32,
    /// End of the latest delivery.
    last_end: Instant,
    /// Latest return time that was assigned.
    last_return: Instant,
}

impl ChannelLane {
    fn new(group: String, now: Instant) -> Self {
        Self { group, in_flight: 0, failures: 0, last_end: now, last_return: now }
    }

    fn is_failing(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Returns whether the channel has messages or had some a short time ago.
    fn is_active(&self, now: Instant) -> bool {
        self.in_flight > 0 || self.last_end.max(self.last_return) + ACTIVE > now
    }

    /// Reserves the next return time and returns the pause until then. `random` is in 0..1.
    fn reserve_return(&mut self, now: Instant, random: f64) -> Duration {
        let apart = if self.is_failing() {
            APART
        } else {
            now.saturating_duration_since(self.last_end).clamp(LEAST_APART, APART)
        };
        let pause = (self.last_return + apart).saturating_duration_since(now).max(LEAST_PAUSE);
        if pause > LONGEST_PAUSE {
            // More messages wait than can return within this time, so their returns are spread randomly.
            return add_jitter(LONGEST_PAUSE.mul_f64(0.75), 1.0 / 3.0, random);
        }
        self.last_return = now + pause;
        pause
    }
}

impl ChannelLanes {
    pub(super) fn new(total: usize, owners: EndpointOwners) -> Self {
        Self { total: total.max(1), owners, by_channel: Arc::default() }
    }

    pub(super) fn with_owners(self, owners: EndpointOwners) -> Self {
        Self { owners, ..self }
    }

    /// Reserves a place on this channel, or returns how long the message must wait.
    pub(super) fn enter_lane(&self, channel: &str) -> Result<LanePlace, Duration> {
        self.enter_or(channel, |lane, now| lane.reserve_return(now, random()))
    }

    /// Reserves a place on this channel. Returns `None` if it has none; the message then reserves no time to return.
    pub(super) fn try_enter(&self, channel: &str) -> Option<LanePlace> {
        self.enter_or(channel, |_, _| ()).ok()
    }

    fn enter_or<E>(
        &self,
        channel: &str,
        when_full: impl FnOnce(&mut ChannelLane, Instant) -> E,
    ) -> Result<LanePlace, E> {
        let now = Instant::now();
        let group = self.owners.group_of(channel);
        let mut lanes = self.lock_lanes();
        let free = self.free_places(&lanes, channel, &group);
        let is_shared = lanes.iter().any(|(name, lane)| name != channel && lane.group == group && lane.is_active(now));
        let lane = lanes.entry(channel.to_owned()).or_insert_with(|| ChannelLane::new(group.clone(), now));
        lane.group = group;
        let share = match (lane.is_failing(), is_shared) {
            (true, _) => free.min(1),
            (false, true) => free.min((free / 2).max(1)),
            (false, false) => free,
        };
        if lane.in_flight >= share {
            return Err(when_full(lane, now));
        }
        lane.in_flight += 1;
        Ok(LanePlace { lanes: self.clone(), channel: channel.to_owned(), tried: None })
    }

    /// Returns the share of the group without the places that its other channels have.
    fn free_places(&self, lanes: &Lanes, channel: &str, group: &str) -> usize {
        let sum = |is_counted: &dyn Fn(&str, &ChannelLane) -> bool| -> usize {
            lanes.iter().filter(|(name, lane)| is_counted(name, lane)).map(|(_, lane)| lane.in_flight).sum()
        };
        let of_other_groups = sum(&|_, lane| lane.group != group);
        let of_siblings = sum(&|name, lane| lane.group == group && name != channel);
        (self.total.saturating_sub(of_other_groups) / 2).max(1).saturating_sub(of_siblings)
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
                        // The receiver is back. New messages do not have to return after the messages that waited
                        // during the failure.
                        lane.last_return = now;
                    }
                    lane.failures = 0;
                }
                // Nothing was sent, so the receiver's state is unknown.
                None => {}
            }
        }
    }

    fn lock_lanes(&self) -> MutexGuard<'_, Lanes> {
        self.by_channel.lock()
    }
}

/// A place on a channel. Dropping it frees the place.
#[derive(Debug)]
pub struct LanePlace {
    lanes: ChannelLanes,
    channel: String,
    tried: Option<LaneOutcome>,
}

/// Availability of a receiver, as shown by a delivery.
#[derive(Debug, Clone, Copy)]
pub(super) enum LaneOutcome {
    /// The receiver accepted or rejected the message.
    Answered,
    /// The receiver did not accept the message but may accept it later.
    Failed,
}

impl LanePlace {
    /// Records the result of the delivery. Without a result, the place counts as unused.
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

    fn lanes_of(total: usize) -> ChannelLanes {
        ChannelLanes::new(total, EndpointOwners::default())
    }

    /// Returns lanes with ten endpoints of the producer `shop`.
    fn lanes_with_endpoints() -> (ChannelLanes, Vec<String>) {
        let channels: Vec<String> = (0..10).map(|n| format!("endpoint:{n}")).collect();
        let owners = EndpointOwners::default();
        owners.replace(channels.iter().map(|channel| (channel.clone(), "producer:shop".to_owned())).collect());
        (ChannelLanes::new(32, owners), channels)
    }

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
        let lanes = lanes_of(32);
        let held: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|channel| fill(&lanes, channel)).into();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [16, 8, 4, 2, 1, 1]);
        drop(held);
        assert_eq!(fill(&lanes, "b").len(), 16);
    }

    #[test]
    fn endpoints_of_a_producer_share_one_half() {
        let (lanes, channels) = lanes_with_endpoints();
        let first: Vec<_> = channels.iter().map(|channel| lanes.enter_lane(channel).unwrap()).collect();
        let more: Vec<_> = channels.iter().map(|channel| fill(&lanes, channel)).collect();
        assert_eq!(more.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(first.len(), 10);
        assert_eq!(fill(&lanes, "mail").len(), (32 - 14) / 2);
    }

    #[test]
    fn full_share_refuses_every_endpoint_of_the_producer() {
        let (lanes, channels) = lanes_with_endpoints();
        let held = fill(&lanes, &channels[0]);
        assert_eq!(held.len(), 16, "no other endpoint has messages");
        assert!(lanes.enter_lane(&channels[1]).is_err());
        assert!(lanes.enter_lane("producer:shop").is_err(), "the declared endpoint is one of them");
        assert_eq!(fill(&lanes, "producer:other").len(), 8);
    }

    #[test]
    fn endpoint_leaves_half_to_active_endpoints() {
        let (lanes, channels) = lanes_with_endpoints();
        drop(lanes.enter_lane(&channels[1]).unwrap());
        let held = [&channels[0], &channels[1], &channels[0]].map(|channel| fill(&lanes, channel));
        assert_eq!(held.map(|places| places.len()), [8, 4, 0]);
    }

    #[test]
    fn trying_a_full_channel_delays_no_message() {
        let lanes = lanes_of(2);
        let _place = lanes.enter_lane("hook").unwrap();
        for _ in 0..1_000 {
            assert!(lanes.try_enter("hook").is_none());
        }
        assert_eq!(lanes.enter_lane("hook").unwrap_err(), LEAST_PAUSE);
    }

    #[test]
    fn failing_channel_tries_one_message_at_once() {
        let lanes = lanes_of(32);
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
        let lanes = lanes_of(32);
        fail(&lanes, "hook", FAILURES);
        let _trial = lanes.enter_lane("hook").unwrap();
        let mut pauses: Vec<_> = (0..20_000).map(|_| lanes.enter_lane("hook").unwrap_err().as_secs()).collect();
        pauses.sort_unstable();
        let most_in_a_second = pauses.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap();
        assert!((20..=80).contains(&most_in_a_second), "{most_in_a_second} come back within one second");
        assert!(pauses.last().is_some_and(|last| *last <= LONGEST_PAUSE.as_secs()), "{:?}", pauses.last());
    }
}
