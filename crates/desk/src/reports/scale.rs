//! Number of `work` replicas wanted. `model::scale` computes it from timers, job runs and partners in Redis.
//!
//! All input is in Redis, so every process returns the same number, apart from changes in between: workers report their
//! job runs every two seconds.

use model::scale::{ASSUMED_MEAN_US, CallLimit, QueueLoad, ScaleAdvice, ScaleLimits, advise_scale};

use crate::capability::Desk;
use queue::{
    StoreError,
    store::{QueueRuns, QueueStats, WorkerEntry},
};
use settings::ScaleConfig;

/// Replicas of one Deployment, which serve the same queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerGroup {
    pub queues: Vec<&'static str>,
    /// Concurrent jobs of a replica, per queue. `None`: `worker.concurrency` of the configuration.
    pub concurrency: Option<u32>,
}

/// Returns the number of replicas wanted a minute from now, with reasons. Returns `None` if Redis or one of its shards
/// has lost the timers: a rebuild is running, or no worker is there to run it.
pub async fn read_scale(desk: &Desk, group: &WorkerGroup) -> Result<Option<ScaleAdvice>, StoreError> {
    let (stats, workers) = (desk.core.queue().queue_stats(&group.queues).await?, desk.core.store.list_workers().await?);
    let calls = read_call_limit(desk).await?;
    // Read last, so that a flush in between is noticed.
    let queue = desk.core.queue();
    for store in queue.homes() {
        if store.epoch().await?.is_none() {
            return Ok(None);
        }
    }
    let loads: Vec<QueueLoad> = group
        .queues
        .iter()
        .zip(&stats)
        .map(|(&queue, stats)| {
            let runs = fleet_runs(queue, &workers);
            let calls = calls.filter(|_| calls_partners(desk, queue));
            QueueLoad { places: places_of(desk, group, queue), calls, ..queue_load(queue, stats, runs) }
        })
        .collect();
    Ok(Some(advise_scale(&loads, &limits_of(&desk.config.scale))))
}

fn queue_load(queue: &'static str, stats: &QueueStats, runs: Option<QueueRuns>) -> QueueLoad {
    // More replicas do not help a paused queue.
    let waiting = |jobs: u64| if stats.paused { 0 } else { jobs };
    QueueLoad {
        queue,
        due: waiting(stats.due),
        falling_due: waiting(stats.falling_due),
        busy_milli: runs.map_or(0, |runs| runs.busy_milli),
        mean_us: runs.map_or(ASSUMED_MEAN_US, |runs| runs.mean_us),
        places: 0,
        calls: None,
    }
}

/// Returns the job runs of a queue over all live workers, with the mean duration of all runs. Returns `None` if the
/// queue had no run.
fn fleet_runs(queue: &str, workers: &[WorkerEntry]) -> Option<QueueRuns> {
    let live = workers.iter().filter(|worker| worker.is_live());
    let runs: Vec<QueueRuns> = live.filter_map(|worker| worker.info.runs.get(queue).copied()).collect();
    // A queue that was idle for a long time has a rate of 0, but its mean still counts.
    let weight = |runs: &QueueRuns| runs.per_ks.saturating_add(1);
    let sum = |pick: fn(&QueueRuns) -> u64| runs.iter().map(pick).fold(0, u64::saturating_add);
    let weighted = runs.iter().map(|runs| runs.mean_us.saturating_mul(weight(runs))).fold(0, u64::saturating_add);
    let weights = runs.iter().map(weight).fold(0, u64::saturating_add);
    Some(QueueRuns {
        mean_us: weighted.checked_div(weights)?,
        busy_milli: sum(|runs| runs.busy_milli),
        per_ks: sum(|runs| runs.per_ks),
    })
}

/// Returns the calls that all partners together allow now, or `None` if there are no partners.
async fn read_call_limit(desk: &Desk) -> Result<Option<CallLimit>, StoreError> {
    let mut limit: Option<CallLimit> = None;
    for partner in desk.partners.registry.iter() {
        let breaker = partner.breaker_state(&desk.core.store).await?;
        let (per_s, at_once) = if breaker.is_open() {
            (0, 0)
        } else if breaker.is_half_open() {
            (1, 1)
        } else {
            (partner.config.rate_per_s, partner.config.max_concurrent)
        };
        limit = Some(limit.unwrap_or_default().with(per_s, at_once));
    }
    Ok(limit)
}

/// Returns whether the jobs of a queue are calls to partners. A job that a partner's rate has delayed is due only when
/// the rate allows it. A queue with mixed jobs therefore has no more due calls than the rate allows.
fn calls_partners(desk: &Desk, queue: &str) -> bool {
    let served_by_partner = |service_type| desk.config.partner_of(service_type).is_some();
    let is_all_partners = || desk.config.service_types.keys().all(served_by_partner);
    queue == jobs::queues::JOBID_POLL || (queue == jobs::queues::DISPATCH && is_all_partners())
}

fn places_of(desk: &Desk, group: &WorkerGroup, queue: &str) -> u64 {
    let configured = || desk.config.worker.concurrency.get(queue).map_or(0, |places| *places as u64);
    group.concurrency.map_or_else(configured, u64::from)
}

fn limits_of(config: &ScaleConfig) -> ScaleLimits {
    ScaleLimits {
        min: config.min.into(),
        max: config.max.into(),
        target_percent: config.target.into(),
        per_worker: config.per_worker.into(),
    }
}
