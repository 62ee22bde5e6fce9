//! Time until jobs are on time again, after the load has ended or Postgres was stopped.

use std::{sync::Arc, time::Duration};

use orders::late_work::QUEUES;
use parking_lot::Mutex;
use queue::Shards;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::OrdersOptions;
use crate::{
    bench::machine,
    testbed::{Testbed, signals::send_signal},
};

const EVERY: Duration = Duration::from_millis(50);
/// Lateness of a due job that counts as late, in ms.
const LATE_MS: u64 = 100;
/// Time without late jobs after which they count as on time.
const CALM: Duration = Duration::from_secs(1);

/// Milliseconds until jobs were on time, from the last creation and from the end of the stop of Postgres.
#[derive(Debug, Serialize)]
pub(super) struct RecoveryTimes {
    after_load: Option<u64>,
    after_stop: Option<u64>,
}

/// Watch of the lateness during a run, and the stop of Postgres if the options request one.
pub(super) struct RecoveryWatch {
    samples: LatenessSamples,
    _watched: AbortOnDropHandle<()>,
    stopping: Option<AbortOnDropHandle<anyhow::Result<Instant>>>,
}

impl RecoveryWatch {
    /// Starts at the first creation.
    pub(super) fn start(testbed: &Testbed, options: &OrdersOptions) -> Self {
        let samples = LatenessSamples::default();
        let stopping = options.stop_postgres.map(|length| {
            let stopping = stop_postgres(testbed.postgres.pid(), options.creation_duration() / 2, length);
            AbortOnDropHandle::new(tokio::spawn(stopping))
        });
        Self { _watched: samples.watch(testbed.app.core.queue()), samples, stopping }
    }

    /// Returns the times until jobs were on time. `load_ended` is the time of the last creation.
    pub(super) async fn finish(self, load_ended: Option<Instant>) -> anyhow::Result<RecoveryTimes> {
        let continued = match self.stopping {
            Some(stopping) => Some(stopping.await??),
            None => None,
        };
        let recovery_ms = |since: Option<Instant>| self.samples.recovery_ms(since?);
        Ok(RecoveryTimes { after_load: recovery_ms(load_ended), after_stop: recovery_ms(continued) })
    }
}

/// Lateness of the oldest due job, read 20 times a second. Most jobs that start at a time are less late than this job.
#[derive(Debug, Clone, Default)]
struct LatenessSamples(Arc<Mutex<Vec<(Instant, u64)>>>);

impl LatenessSamples {
    /// Reads the lateness until the returned handle is dropped.
    fn watch(&self, queue: Shards) -> AbortOnDropHandle<()> {
        let samples = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let mut late_ms = 0;
                for store in queue.stores() {
                    let oldest = store.oldest_due(&QUEUES).await.unwrap_or_default();
                    late_ms = oldest.iter().map(|oldest| oldest.late_ms).fold(late_ms, u64::max);
                }
                samples.0.lock().push((Instant::now(), late_ms));
            }
        }))
    }

    /// Returns the milliseconds from `since` until jobs were on time, and stayed so for a second or until the end.
    /// `None` if they never were.
    fn recovery_ms(&self, since: Instant) -> Option<u64> {
        let mut on_time_since = None;
        for (at, late_ms) in self.0.lock().iter().filter(|(at, _)| *at >= since) {
            if *late_ms >= LATE_MS {
                on_time_since = None;
            } else if *at - *on_time_since.get_or_insert(*at) >= CALM {
                break;
            }
        }
        on_time_since.map(|at: Instant| u64::try_from((at - since).as_millis()).unwrap_or(u64::MAX))
    }
}

/// Stops Postgres with its sessions (SIGSTOP) at this time, for this long. Returns when it continues.
async fn stop_postgres(pid: u32, after: Duration, length: Duration) -> anyhow::Result<Instant> {
    sleep(after).await;
    let stopped = StoppedProcesses::stop_family(pid)?;
    sleep(length).await;
    drop(stopped);
    Ok(Instant::now())
}

/// Stopped processes. Dropping it continues them.
#[derive(Debug)]
struct StoppedProcesses(Vec<u32>);

impl StoppedProcesses {
    /// Stops a process first and then its children, because a stopped process cannot start new ones.
    fn stop_family(pid: u32) -> anyhow::Result<Self> {
        send_signal("STOP", [pid])?;
        let family = machine::read_family_times(pid).unwrap_or_default();
        let stopped = Self(family.living.into_keys().chain([pid]).collect());
        send_signal("STOP", stopped.0.iter().copied())?;
        Ok(stopped)
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        if let Err(error) = send_signal("CONT", self.0.iter().copied()) {
            tracing::error!(%error, "Postgres could not be continued.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_ends_when_jobs_stay_on_time() {
        let start = Instant::now();
        let recovery = |late: &[(u64, u64)]| {
            let at = |(ms, late_ms): &(u64, u64)| (start + Duration::from_millis(*ms), *late_ms);
            LatenessSamples(Arc::new(Mutex::new(late.iter().map(at).collect()))).recovery_ms(start)
        };
        assert_eq!(recovery(&[(50, 0), (100, 3)]), Some(50));
        assert_eq!(recovery(&[(50, 900), (700, 20), (1_000, 120), (1_200, 99)]), Some(1_200));
        assert_eq!(recovery(&[(50, 900), (700, 20), (1_700, 20), (9_000, 800)]), Some(700), "a later overload");
        assert_eq!(recovery(&[(50, 900)]), None);
    }
}
