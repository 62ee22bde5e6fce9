//! The worker process. It runs the queue runtime and these tasks until a signal drains them: the gate, the
//! reconciler, the mirror of the dead letters, the daily partitions of the history, the rules of areas, the copies of
//! their limits, the webhook endpoints and replays to them, the waiting orders created in SQL, the number of shards, the search for drivers for waiting orders,
//! and the outage alert.

use std::{sync::Arc, time::Duration};

use settings::Config;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::registry;
use app::App;
use areas::admission::{limits_mirror, sql_orders};
use desk::dead_letters::mirror;
use foundation::{db::history_days, error::ServiceError, worker_gate};
use maintenance::recovery::reconciler;
use orders::{compensation::outage, feed::replay, fleet::waiting_orders};
use queue::{Gate, RunSummary, Runtime};

/// Queues to serve, each with its maximum number of concurrent jobs.
pub type Queues = Vec<(&'static str, usize)>;

/// Returns the configured queues, limited to those in `only`. `concurrency`, if given, replaces the configured value.
pub fn select_queues(config: &Config, only: &[String], concurrency: Option<usize>) -> Result<Queues, ServiceError> {
    for name in only {
        if !jobs::queues::ALL.contains(&name.as_str()) {
            let known = jobs::queues::ALL.join(", ");
            return Err(ServiceError::Unusable(format!("no queue '{name}'; queues are {known}")));
        }
    }
    let queues: Queues = jobs::queues::ALL
        .into_iter()
        .filter(|queue| only.is_empty() || only.iter().any(|o| o == queue))
        .filter_map(|queue| {
            let configured = config.worker.concurrency.get(queue).copied();
            concurrency.or(configured).filter(|n| *n > 0).map(|n| (queue, n))
        })
        .collect();
    if queues.is_empty() {
        return Err(ServiceError::Unusable("no queue to serve; set worker.concurrency in config.toml".to_owned()));
    }
    Ok(queues)
}

/// Runs jobs until `stop`, then drains: running jobs may finish, the others are handed back.
pub async fn run(app: App, queues: Queues, stop: CancellationToken) -> Result<RunSummary, ServiceError> {
    let gate = Gate::new_closed();
    let missing_epoch = Arc::new(Notify::new());
    let helpers = CancellationToken::new();
    let runtime = Runtime::new(app.core.store.clone(), registry::build_registry(&app));
    let boot = runtime.boot().to_owned();
    let watch = tokio::spawn(worker_gate::watch_gate(app.core.clone(), boot, gate.clone(), helpers.clone()));
    let reconcile = tokio::spawn(reconciler::run(app.maintenance.clone(), missing_epoch.clone(), helpers.clone()));
    let mirror = tokio::spawn(mirror::run(app.core.clone(), helpers.clone()));
    let rules = tokio::spawn(app.areas.clone().keep_fresh(helpers.clone()));
    let endpoints = tokio::spawn(app.notify.endpoints.clone().keep_fresh(app.core.clone(), helpers.clone()));
    let shards = tokio::spawn(app.core.shards.clone().keep_fresh(
        app.core.upkeep.clone(),
        app.core.loops.clone(),
        helpers.clone(),
    ));
    let outages = tokio::spawn(outage::run(app.orders.clone(), helpers.clone()));
    let replays = tokio::spawn(replay::keep_replaying(app.orders.clone(), helpers.clone()));
    let counting = tokio::spawn(sql_orders::keep_counting(app.areas.clone(), helpers.clone()));
    let copies = tokio::spawn(limits_mirror::keep_copied(app.areas.clone(), helpers.clone()));
    let waiting = tokio::spawn(waiting_orders::run(app.orders.clone(), helpers.clone()));
    let watchdog = tokio::spawn(app.core.loops.clone().watch_loops(helpers.clone()));
    let days = tokio::spawn(history_days::run(
        app.config.database.clone(),
        app.config.retention.events,
        app.core.db.clone(),
        helpers.clone(),
    ));

    let mut runtime = runtime
        .follow_shards(app.core.shards.subscribe())
        .queues(queues)
        .gate(gate)
        .on_missing_epoch(missing_epoch)
        .on_dead(|job, error| tracing::error!(job.id = %job, error, "A job is dead; see: dispatchq dead show {job}"))
        .grace(app.config.worker.drain);
    if !app.config.worker.name.is_empty() {
        runtime = runtime.name(&app.config.worker.name);
    }
    let summary = runtime
        .run(stop)
        .await
        .map_err(|error| ServiceError::Unusable(format!("the worker stopped unexpectedly: {error}")));
    helpers.cancel();
    for helper in [
        watch, reconcile, mirror, days, rules, endpoints, shards, outages, replays, counting, copies, waiting, watchdog,
    ] {
        // The tasks check the token between their steps. A step that hangs on a dead server must not delay the
        // shutdown.
        let _ = tokio::time::timeout(Duration::from_secs(3), helper).await;
    }
    summary
}
