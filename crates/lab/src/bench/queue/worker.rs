//! The worker process that is measured: the real runtime, with a handler that does nothing but note its run.
//!
//! A process of its own, so that the producer shares neither its threads nor its connection, as in production. It
//! ends when all timers have run and are settled, or with its standard input: when its parent closes that, or dies. Metrics
//! are recorded only when asked for: the queues it is compared with record none.

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

/// How often to look whether the last results are written.
const LOOK: Duration = Duration::from_millis(1);

/// Options of the measured worker process; not for people.
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

/// Works, then prints what it saw as one line of JSON.
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
    runtime.await.context("the worker panicked")?.context("the worker ended by itself")?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&observed)?)?;
    Ok(())
}

/// Waits until every timer has run and no lease is left, and answers when that was.
async fn wait_until_settled(runs: &TimerRuns, store: &Store) -> anyhow::Result<i64> {
    runs.wait_until_complete().await;
    while store.queue_stats(&[QUEUE]).await?.iter().any(|stats| stats.leased > 0) {
        tokio::time::sleep(LOOK).await;
    }
    Ok(now_us())
}

/// Cancelled when standard input ends. A thread and not a task: nothing can interrupt a read, so the process must be able
/// to end in the middle of it.
fn input_closed() -> CancellationToken {
    let closed = CancellationToken::new();
    let token = closed.clone();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        token.cancel();
    });
    closed
}
