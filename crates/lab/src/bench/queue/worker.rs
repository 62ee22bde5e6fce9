//! The measured worker process: the real runtime with a handler that only records its run.
//!
//! It is a separate process, so that the producer shares neither its threads nor its connection, as in production. It
//! ends when all timers have run and are settled, or when its standard input ends because its parent closed it or died.
//! Metrics are recorded only on request, because the compared queues record none.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use jobs::ExpireAttempt;
use tokio_util::sync::CancellationToken;

use super::{
    CONCURRENCY,
    runs::{TimerRuns, now_us},
    timers::{QUEUE, QUEUES},
};
use foundation::telemetry;
use queue::{Delivery, Outcome, Registry, Runtime, Store};

/// Interval between checks whether the last results are written.
const LOOK: Duration = Duration::from_millis(1);

/// Options of the measured worker process. Internal.
#[derive(Debug, Clone, Args)]
pub struct WorkerOptions {
    #[arg(long, value_name = "URL")]
    pub redis: String,

    /// End when this many timers have run and are settled; 0: end with standard input
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub jobs: u32,

    #[arg(long, value_name = "N", default_value_t = CONCURRENCY)]
    pub concurrency: usize,

    /// Record metrics for Prometheus
    #[arg(long)]
    pub metrics: bool,
}

/// Runs the worker, then prints its results as one line of JSON.
pub async fn run(options: WorkerOptions) -> anyhow::Result<()> {
    if options.metrics {
        telemetry::init_metrics()?;
    }
    let runs = Arc::new(TimerRuns::new(options.jobs));
    let registry = Registry::new().register({
        let runs = runs.clone();
        move |timer: ExpireAttempt, delivery: Delivery| {
            runs.record_run(timer.attempt, delivery.due_ms, now_us());
            std::future::ready(Outcome::done())
        }
    });
    let store = Store::connect(&options.redis).await?;
    let (stop, closed) = (CancellationToken::new(), input_closed());
    let began_us = now_us();
    let runtime = Runtime::new(store.clone(), registry).queues(QUEUES.map(|queue| (queue, options.concurrency)));
    let runtime = tokio::spawn(runtime.run(stop.clone()));
    let settled_us = tokio::select! {
        settled_us = wait_until_settled(&runs, &store) => Some(settled_us?),
        () = closed.cancelled() => None,
    };
    let observed = runs.summarize_runs(began_us, settled_us);
    stop.cancel();
    runtime.await.context("the worker panicked")?.context("the worker ended unexpectedly")?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&observed)?)?;
    Ok(())
}

/// Waits until every timer has run and no lease is left. Returns that time.
async fn wait_until_settled(runs: &TimerRuns, store: &Store) -> anyhow::Result<i64> {
    runs.wait_until_complete().await;
    while store.queue_stats(&[QUEUE]).await?.iter().any(|stats| stats.leased > 0) {
        tokio::time::sleep(LOOK).await;
    }
    Ok(now_us())
}

/// Returns a token that is cancelled when standard input ends. It uses a thread, not a task: a blocking read cannot be
/// interrupted, and the process must be able to end during it.
fn input_closed() -> CancellationToken {
    let closed = CancellationToken::new();
    let token = closed.clone();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        token.cancel();
    });
    closed
}
