//! How soon an idle worker starts a job that is due now: from the begin of the call that enqueues it to the start of its
//! handler.
//!
//! Both ends are read from one monotonic clock, so both are in this process; each has its own connection. One job after
//! the other, with pauses in which the worker falls asleep.

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

/// Long enough for the worker to have settled the job before and to sleep.
const PAUSE: Duration = Duration::from_millis(20);
const PICKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// In microseconds.
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
        let start = start.context("the worker is gone")?;
        samples.push(i64::try_from((start - begun).as_micros()).unwrap_or(i64::MAX));
    }
    stop.cancel();
    runtime.await.context("the worker panicked")??;
    Ok(SamplePercentiles::from_samples(samples))
}
