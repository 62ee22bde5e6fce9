//! Timers that are due evenly over each second, next to others that are not due.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use crate::figures::{LatenessFigures, now_ms};

/// Delay of the timers that do not fall due.
pub(crate) const FAR: Duration = Duration::from_secs(24 * 3600);
/// Delay of each timer that falls due.
const AHEAD_MS: u64 = 2_000;
/// Interval between calls of the producer.
const EVERY_MS: u64 = 100;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct TimerLoad {
    /// Number of timers that do not fall due
    #[arg(long, default_value_t = 10_000)]
    pub(crate) pending: u32,
    /// Number of timers that fall due per second
    #[arg(long, default_value_t = 500)]
    due_per_s: u32,
    /// Seconds in which timers fall due
    #[arg(long, default_value_t = 10)]
    seconds: u32,
}

/// Lateness of the timers that have run, in milliseconds. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimerSamples(Arc<Mutex<Vec<u64>>>);

impl TimerSamples {
    /// Records that a timer runs now, and was due at this time.
    pub(crate) fn record(&self, wanted_ms: u64) {
        self.0.lock().push(now_ms().saturating_sub(wanted_ms));
    }

    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl TimerLoad {
    /// Pushes the due times of timers, in milliseconds since 1970, and waits until all have run. Returns their lateness.
    pub(crate) async fn run(
        self,
        name: &'static str,
        samples: TimerSamples,
        is_worker_finished: impl Fn() -> bool,
        mut push: impl AsyncFnMut(Vec<u64>) -> anyhow::Result<()>,
    ) -> anyhow::Result<LatenessFigures> {
        let (begun, first_ms) = (Instant::now(), now_ms() + AHEAD_MS);
        let due_per_s = u64::from(self.due_per_s);
        let per_call = due_per_s * EVERY_MS / 1000;
        let calls = u64::from(self.seconds) * 1000 / EVERY_MS;
        for call in 0..calls {
            sleep_until(begun + Duration::from_millis(EVERY_MS * call)).await;
            let wanted = (call * per_call..(call + 1) * per_call).map(|n| first_ms + n * 1000 / due_per_s);
            push(wanted.collect()).await?;
        }
        let all = usize::try_from(per_call * calls)?;
        let finished = async {
            while samples.count() < all && !is_worker_finished() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = timeout(DRAIN_TIMEOUT, finished).await;
        anyhow::ensure!(samples.count() == all, "only {} of {all} timers ran", samples.count());
        let samples = std::mem::take(&mut *samples.0.lock());
        Ok(LatenessFigures::of(name, self.pending, self.due_per_s, samples))
    }
}
