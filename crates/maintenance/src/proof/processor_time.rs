//! Processor time of a future: the time that threads spend in its polls, by the clock of each thread.

use std::{future::poll_fn, pin::pin, time::Duration};

use nix::time::{ClockId, clock_gettime};

/// Runs a future. Returns its result, and the processor time of its polls in this process. The time of Postgres and
/// Redis is not included.
pub(super) async fn measure_processor_time<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut spent = Duration::ZERO;
    let mut work = pin!(work);
    let done = poll_fn(|context| {
        let before = thread_time();
        let polled = work.as_mut().poll(context);
        spent += thread_time().saturating_sub(before);
        polled
    })
    .await;
    (done, spent)
}

/// Returns the processor time of this thread; zero if the system has no such clock.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
