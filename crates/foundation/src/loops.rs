//! Background loops of a process. Each turn has a timeout, and a watchdog reports loops that have not completed a turn
//! for a minute.
//!
//! If a server vanishes, its statement gets no response, and sqlx waits forever. A turn without progress for
//! [`LoopRegistry::DEFAULT_LIMIT`] is therefore cancelled, and the next turn uses other connections. Work in many steps
//! reports progress after each step with [`report_progress`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// Time without progress after which a loop is reported as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// Loop whose turn this task is running.
    static CURRENT: LoopTurns;
}

/// Loops of this process. Clones share them.
#[derive(Debug, Clone)]
pub struct LoopRegistry {
    beats: Arc<Mutex<BTreeMap<&'static str, LoopBeat>>>,
    limit: Duration,
}

#[derive(Debug, Clone, Copy)]
struct LoopBeat {
    /// Distinguishes the loop from a later one with the same name.
    id: u64,
    at: Instant,
    turns: u64,
    /// Whether the watchdog has reported the loop as stuck.
    is_said: bool,
}

/// A registered loop. Dropping it removes it from the registry.
#[derive(Debug, Clone)]
pub struct LoopTurns(Arc<RegisteredLoop>);

#[derive(Debug)]
struct RegisteredLoop {
    name: &'static str,
    id: u64,
    loops: LoopRegistry,
}

impl Drop for RegisteredLoop {
    fn drop(&mut self) {
        let mut beats = self.loops.lock_beats();
        if beats.get(self.name).is_some_and(|beat| beat.id == self.id) {
            beats.remove(self.name);
        }
    }
}

impl Default for LoopRegistry {
    fn default() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }
}

impl LoopRegistry {
    /// Time without progress after which a turn is cancelled. It exceeds the sum of the timeouts for acquiring a
    /// connection (5 s) and for a statement (10 s by default).
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(30);

    /// Creates a registry whose turns are cancelled after `limit` without progress.
    pub fn with_limit(limit: Duration) -> Self {
        Self { beats: Arc::default(), limit }
    }

    /// Registers a loop that is about to start. It replaces an earlier loop with the same name.
    pub fn register_loop(&self, name: &'static str) -> LoopTurns {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.lock_beats().insert(name, LoopBeat { id, at: Instant::now(), turns: 0, is_said: false });
        LoopTurns(Arc::new(RegisteredLoop { name, id, loops: self.clone() }))
    }

    pub fn count_turns(&self, name: &str) -> u64 {
        self.lock_beats().get(name).map_or(0, |beat| beat.turns)
    }

    /// Returns the loops with the time since their last progress.
    pub fn idle_times(&self) -> Vec<(&'static str, Duration)> {
        self.lock_beats().iter().map(|(name, beat)| (*name, beat.at.elapsed())).collect()
    }

    /// Returns whether a loop has made no progress for a minute.
    pub fn has_stuck_loop(&self) -> bool {
        self.has_idle_loop(STUCK_AFTER)
    }

    fn has_idle_loop(&self, longer_than: Duration) -> bool {
        self.lock_beats().values().any(|beat| beat.at.elapsed() > longer_than)
    }

    /// Logs stuck loops until `stop`. /metrics shows the same as `dispatchq_loop_idle_seconds`.
    pub async fn watch_loops(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            self.find_stuck(STUCK_AFTER);
        }
    }

    /// Returns the loops that are newly stuck since the last check.
    fn find_stuck(&self, stuck_after: Duration) -> Vec<&'static str> {
        let mut newly_stuck = Vec::new();
        for (name, beat) in self.lock_beats().iter_mut() {
            let idle = beat.at.elapsed();
            match (idle > stuck_after, beat.is_said) {
                (true, false) => {
                    newly_stuck.push(*name);
                    tracing::error!(loop = name, idle_s = idle.as_secs(), "A background loop has made no progress for a minute.");
                }
                (false, true) => tracing::info!(loop = name, "A background loop makes progress again."),
                _ => {}
            }
            beat.is_said = idle > stuck_after;
        }
        newly_stuck
    }

    fn lock_beats(&self) -> MutexGuard<'_, BTreeMap<&'static str, LoopBeat>> {
        self.beats.lock()
    }
}

impl LoopTurns {
    /// Runs one turn. Returns `None` if the turn was cancelled because it made no progress within the limit.
    pub async fn run_turn<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let begun = Instant::now();
        let no_progress = async {
            let limit = self.0.loops.limit;
            loop {
                let quiet = self.last_beat().map_or(begun, |beat| beat.max(begun)).elapsed();
                if quiet >= limit {
                    return;
                }
                tokio::time::sleep(limit - quiet).await;
            }
        };
        tokio::select! {
            done = CURRENT.scope(self.clone(), work) => {
                self.record_beat(1);
                Some(done)
            }
            () = no_progress => {
                tracing::warn!(
                    loop = self.0.name,
                    "A turn of a background loop made no progress and was cancelled; the next turn starts."
                );
                None
            }
        }
    }

    fn record_beat(&self, turns: u64) {
        if let Some(beat) = self.0.loops.lock_beats().get_mut(self.0.name).filter(|beat| beat.id == self.0.id) {
            (beat.at, beat.turns) = (Instant::now(), beat.turns + turns);
        }
    }

    /// Returns the time of the last progress, or `None` if a later loop with the same name has replaced this one.
    fn last_beat(&self) -> Option<Instant> {
        self.0.loops.lock_beats().get(self.0.name).filter(|beat| beat.id == self.0.id).map(|beat| beat.at)
    }
}

/// Reports progress of the loop whose turn calls this. Does nothing outside a loop.
pub fn report_progress() {
    let _ = CURRENT.try_with(|turns| turns.record_beat(0));
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    // Fault F8
    #[tokio::test]
    async fn turn_without_answer_marks_loop_stuck() {
        let loops = LoopRegistry::with_limit(LIMIT);
        let (stuck, well) = (loops.register_loop("stuck"), loops.register_loop("well"));
        assert_eq!(stuck.run_turn(pending::<()>()).await, None);
        assert_eq!(well.run_turn(async { 1 }).await, Some(1));
        assert_eq!((loops.count_turns("stuck"), loops.count_turns("well")), (0, 1));
        assert!(loops.has_idle_loop(LIMIT) && !loops.has_stuck_loop());
        assert_eq!(loops.find_stuck(LIMIT), ["stuck"]);
        assert_eq!(loops.find_stuck(LIMIT), Vec::<&str>::new(), "it is reported once");
        let again = loops.register_loop("stuck");
        drop(stuck);
        assert_eq!(loops.idle_times().len(), 2, "the later loop of a name stays registered");
        drop(again);
        assert_eq!(loops.idle_times().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["well"]);
    }

    // Fault F8
    #[tokio::test]
    async fn long_turn_with_progress_completes() {
        // Long enough that a busy machine does not pause for the whole limit between two steps.
        let limit = LIMIT * 20;
        let turns = LoopRegistry::with_limit(limit).register_loop("long");
        let work = async {
            for _ in 0..22 {
                tokio::time::sleep(limit / 20).await;
                report_progress();
            }
        };
        assert_eq!(turns.run_turn(work).await, Some(()));
    }
}
