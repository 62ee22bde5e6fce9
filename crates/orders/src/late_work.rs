//! Refusal of creations while due jobs are late. Design: docs/design/http-api.md.
//!
//! An API process reads the oldest due job of each queue that orders wait for, several times a second. It refuses a
//! share of the creations that grows with the lateness of that job. Late jobs count only while workers take jobs of
//! their queue: a queue that is paused, or that no worker serves, is no overload.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use foundation::core::Core;
use futures_util::future::join_all;
use jobs::queues;
use queue::{Shards, Store, store::OldestDue};
use tokio_util::sync::CancellationToken;

/// Queues whose jobs need only this installation. Polls, callbacks, messages and bindings may be late because of other
/// systems.
pub const QUEUES: [&str; 3] = [queues::DISPATCH, queues::DISPATCH_TIMEOUT, queues::LIFETIME_CANCEL];
const EVERY: Duration = Duration::from_millis(200);
/// Time without a change of the oldest due job after which its queue counts as not served.
const STANDSTILL: Duration = Duration::from_secs(1);

/// Lateness of due jobs in ms, as this process last measured it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LateWork(Arc<AtomicU64>);

impl LateWork {
    /// Returns the share of creations to refuse: none up to half of `max`, all from `max` on.
    pub(crate) fn refused_share(&self, max: Duration) -> f64 {
        let (late, max) = (self.lateness().as_secs_f64(), max.as_secs_f64());
        if max == 0.0 { 0.0 } else { (2.0 * late / max - 1.0).clamp(0.0, 1.0) }
    }

    pub fn lateness(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Measures the lateness until `stop`. `max` is `http.max_lateness`.
pub async fn run(core: Core, late_work: LateWork, max: Duration, stop: CancellationToken) {
    if max.is_zero() {
        return;
    }
    let turns = core.loops.register_loop("late work");
    let (mut seen, mut before, mut is_logged) = (SeenQueues::default(), 0, false);
    while !stop.is_cancelled() {
        let late_ms = turns.run_turn(seen.measure(&core.queue())).await.unwrap_or_default();
        // A single high value is no overload: a worker has just started, or the leases of a dead one have ended.
        late_work.0.store(late_ms.min(before), Ordering::Relaxed);
        before = late_ms;
        let late = late_work.lateness();
        if !is_logged && late > max / 2 {
            tracing::warn!(late_ms, "Due jobs are late, so a part of the creations is refused.");
            is_logged = true;
        } else if is_logged && late < max / 4 {
            tracing::info!("Due jobs are on time again, and creations are accepted.");
            is_logged = false;
        }
        stop.run_until_cancelled(tokio::time::sleep(EVERY)).await;
    }
}

/// The queues of each shard, as last seen.
#[derive(Debug, Default)]
struct SeenQueues(Vec<[SeenQueue; QUEUES.len()]>);

impl SeenQueues {
    /// Returns the greatest lateness in ms over all shards and queues. A shard that does not answer counts as on time.
    async fn measure(&mut self, shards: &Shards) -> u64 {
        let answers = join_all(shards.stores().iter().map(read_oldest)).await;
        self.0.resize_with(answers.len(), Default::default);
        let now = Instant::now();
        let all = self.0.iter_mut().zip(answers).flat_map(|(seen, answers)| seen.iter_mut().zip(answers));
        all.map(|(seen, oldest)| seen.update(oldest, now)).max().unwrap_or_default()
    }
}

async fn read_oldest(store: &Store) -> Vec<OldestDue> {
    let answer = tokio::time::timeout(EVERY, store.oldest_due(&QUEUES)).await;
    answer.ok().and_then(Result::ok).unwrap_or_else(|| vec![OldestDue::default(); QUEUES.len()])
}

#[derive(Debug, Default)]
struct SeenQueue {
    oldest: Option<String>,
    /// When another job was last seen in the place of the oldest one.
    advanced: Option<Instant>,
}

impl SeenQueue {
    /// Returns the lateness in ms. 0 unless workers take jobs of the queue.
    fn update(&mut self, seen: OldestDue, now: Instant) -> u64 {
        let before = std::mem::replace(&mut self.oldest, seen.id);
        if before.is_some() && self.oldest.is_some() && before != self.oldest {
            self.advanced = Some(now);
        }
        let advances = self.advanced.is_some_and(|at| now.saturating_duration_since(at) <= STANDSTILL);
        if seen.is_served && advances { seen.late_ms } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_share_grows_with_lateness() {
        let late = LateWork::default();
        let share = |late_ms, max_ms| {
            late.0.store(late_ms, Ordering::Relaxed);
            late.refused_share(Duration::from_millis(max_ms))
        };
        assert_eq!([0, 250, 375, 500, 9_000].map(|late_ms| share(late_ms, 500)), [0.0, 0.0, 0.5, 1.0, 1.0]);
        assert_eq!(share(9_000, 0), 0.0, "no bound");
    }

    #[test]
    fn late_queue_counts_only_while_it_advances() {
        let start = Instant::now();
        let mut queue = SeenQueue::default();
        let mut see = |at_ms, id: Option<&str>, is_served| {
            let oldest = OldestDue { id: id.map(str::to_owned), late_ms: 700, is_served };
            queue.update(oldest, start + Duration::from_millis(at_ms))
        };
        assert_eq!(see(0, None, true), 0);
        assert_eq!(see(200, Some("a"), true), 0, "the first late job");
        assert_eq!(see(400, Some("b"), true), 700, "a worker took it");
        assert_eq!(see(600, Some("b"), true), 700);
        assert_eq!(see(800, Some("c"), false), 0, "no lease is left");
        assert_eq!(see(1_000, Some("c"), true), 700);
        assert_eq!(see(1_900, Some("c"), true), 0, "standstill");
    }
}
