//! The worker process of a soak: the real runtime with a handler that notes its run. It says what it has seen once a
//! minute, and for the last time when its standard input ends.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use jobs::ExpireAttempt;
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;
use workers::{Delivery, Outcome, Registry, Runtime, Store};

use super::watch::SoakWatch;
use crate::bench::{
    options::{CONCURRENCY, SoakWorkerOptions},
    runs::now_us,
    timers::QUEUES,
    worker::input_closed,
};
use dispatch::telemetry;

pub async fn run(options: SoakWorkerOptions) -> anyhow::Result<()> {
    telemetry::init_metrics()?;
    let watch = Arc::new(SoakWatch::new(options.places));
    let registry = Registry::new().register({
        let watch = watch.clone();
        move |timer: ExpireAttempt, delivery: Delivery| {
            watch.record_run(timer.attempt, delivery.due_ms, now_us());
            std::future::ready(Outcome::done())
        }
    });
    let store = Store::connect(&options.redis).await?;
    let (stop, closed) = (CancellationToken::new(), input_closed());
    let runtime = Runtime::new(store, registry).queues(QUEUES.map(|queue| (queue, CONCURRENCY)));
    let runtime = tokio::spawn(runtime.run(stop.clone()));
    let every = Duration::from_millis(options.every_ms.max(1));
    let mut ticks = interval_at(Instant::now() + every, every);
    loop {
        tokio::select! {
            _ = ticks.tick() => print_observation(&watch)?,
            () = closed.cancelled() => break,
        }
    }
    stop.cancel();
    runtime.await.context("the worker panicked")?.context("the worker ended by itself")?;
    print_observation(&watch)
}

fn print_observation(watch: &SoakWatch) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(&watch.take_observation())?)?)
}
