//! Time until an idle worker starts a job that is due now: from the start of the enqueue call to the start of the
//! handler.
//!
//! Both times are read from one monotonic clock, so both sides run in this process, each with its own connection. Jobs
//! run one after another, with pauses in which the worker falls asleep.

use std::time::{Duration, Instant};

use anyhow::Context;
use jobs::ExpireAttempt;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{CONCURRENCY, stage::QueueStage, timers};
use crate::bench::spread::SamplePercentiles;
use queue::{Delivery, NewJob, Outcome, Registry, Runtime, Store};

/// Pause between jobs, long enough for the worker to settle the job and sleep.
const PAUSE: Duration = Duration::from_millis(20);
const PICKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the times in microseconds.
pub(super) async fn measure_pickup(pickups: u32) -> anyhow::Result<SamplePercentiles> {
    let stage = QueueStage::start().await?;
    let (started, mut starts) = mpsc::unbounded_channel();
    let registry = Registry::new().register(move |_: ExpireAttempt, _: Delivery| {
        let _ = started.send(Instant::now());
        std::future::ready(Outcome::done())
    });
    let stop = CancellationToken::new();
    let of_worker = Store::connect(&stage.url()).await?;
    let runtime = Runtime::new(of_worker, registry).queues(timers::QUEUES.map(|queue| (queue, CONCURRENCY)));
    let runtime = tokio::spawn(runtime.run(stop.clone()));
    stage.wait_for_workers(1).await?;

    let mut samples = Vec::new();
    for number in 0..pickups {
        sleep(PAUSE).await;
        let job = [NewJob::now(&timers::bench_timer(number))];
        let begun = Instant::now();
        stage.store.enqueue(&job).await?;
        let start = timeout(PICKUP_TIMEOUT, starts.recv()).await.context("a job did not start")?;
        let start = start.context("the worker has ended")?;
        samples.push(i64::try_from((start - begun).as_micros()).unwrap_or(i64::MAX));
    }
    stop.cancel();
    runtime.await.context("the worker panicked")??;
    Ok(SamplePercentiles::from_samples(samples))
}
