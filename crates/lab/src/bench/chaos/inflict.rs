//! Starts a fault, waits for its duration, and ends it.

use super::{
    fault::ChaosFault,
    on_clients, on_postgres, on_redis,
    schedule::PlannedFault,
    stage::{ChaosStage, require_proxies},
};
use crate::{
    bench::played::PlayedStage,
    testbed::{Testbed, processes::ChildKind},
};

/// Additional delays in each direction.
const DELAYS_MS: [u64; 3] = [5, 20, 50];

/// Inflicts a fault. If the fault cannot be started or ended, records a problem and continues the run.
pub(super) async fn inflict_fault(stage: &mut ChaosStage, planned: &PlannedFault) -> anyhow::Result<()> {
    if let Err(error) = try_inflict(stage, planned).await {
        stage.problems.push(format!("the fault {} could not be inflicted: {error:#}", planned.fault.cli_name()));
    }
    stage.wait_for(std::time::Duration::ZERO).await
}

async fn try_inflict(stage: &mut ChaosStage, planned: &PlannedFault) -> anyhow::Result<()> {
    match planned.fault {
        ChaosFault::KillWorker => {
            let index = pick_index(planned.dice, stage.testbed.processes.worker_pids().count());
            stage.testbed.processes.kill(ChildKind::Work, index).await
        }
        ChaosFault::KillServe => {
            let index = pick_index(planned.dice, stage.testbed.bases.len());
            stage.testbed.processes.kill(ChildKind::Serve, index).await
        }
        ChaosFault::StopWorker => {
            let index = pick_index(planned.dice, stage.testbed.processes.worker_pids().count());
            freeze(stage, planned, ChildKind::Work, index).await
        }
        ChaosFault::StopServe => {
            let index = pick_index(planned.dice, stage.testbed.bases.len());
            freeze(stage, planned, ChildKind::Serve, index).await
        }
        ChaosFault::Terminate => {
            on_postgres::terminate_sessions(&stage.testbed).await?;
            on_redis::kill_clients(&stage.testbed).await
        }
        ChaosFault::HalfOpen => half_open(stage, planned).await,
        ChaosFault::Latency => {
            let delay = std::time::Duration::from_millis(DELAYS_MS[pick_index(planned.dice, DELAYS_MS.len())]);
            let set = |testbed: &Testbed, delay| {
                let ways = require_proxies(testbed)?;
                ways.redis.set_delay(delay);
                ways.postgres.set_delay(delay);
                anyhow::Ok(())
            };
            set(&stage.testbed, delay)?;
            let waited = stage.wait_for(planned.lasts).await;
            set(&stage.testbed, std::time::Duration::ZERO)?;
            waited
        }
        ChaosFault::Flush => on_redis::flush_redis(&stage.testbed).await,
        ChaosFault::KillRedis => {
            stage.testbed.redis.kill().await;
            stage.wait_for(planned.lasts).await?;
            Ok(stage.testbed.redis.restart().await?)
        }
        ChaosFault::FullRedis => {
            on_redis::set_full(&stage.testbed, true).await?;
            let waited = stage.wait_for(planned.lasts).await;
            on_redis::set_full(&stage.testbed, false).await?;
            waited
        }
        ChaosFault::ClockStep => on_redis::fail_over_to_another_clock(stage, planned.dice).await,
        ChaosFault::KillPostgres => {
            stage.testbed.postgres.kill().await;
            stage.wait_for(planned.lasts).await?;
            Ok(stage.testbed.postgres.restart().await?)
        }
        ChaosFault::ReadOnly => {
            on_postgres::set_read_only(&stage.testbed, true).await?;
            let waited = stage.wait_for(planned.lasts).await;
            on_postgres::set_read_only(&stage.testbed, false).await?;
            waited
        }
        ChaosFault::LongReader => on_postgres::read_for_long(stage, planned).await,
        ChaosFault::HangingReceiver => {
            stage.receivers.set_hanging(true);
            let waited = stage.wait_for(planned.lasts).await;
            stage.receivers.set_hanging(false);
            waited
        }
        ChaosFault::KeyFlood => on_clients::flood_with_keys(stage, planned.lasts).await,
    }
}

/// Freezes a process for the duration of the fault.
async fn freeze(stage: &mut ChaosStage, planned: &PlannedFault, kind: ChildKind, index: usize) -> anyhow::Result<()> {
    stage.testbed.processes.freeze(kind, index, true).await;
    let waited = stage.wait_for(planned.lasts).await;
    stage.testbed.processes.freeze(kind, index, false).await;
    waited
}

/// Blocks connections to one server or to both. Either they are blocked for the duration of the fault, or existing
/// connections are blocked permanently.
async fn half_open(stage: &mut ChaosStage, planned: &PlannedFault) -> anyhow::Result<()> {
    let (of_redis, of_postgres) = [(true, true), (true, false), (false, true)][pick_index(planned.dice, 3)];
    let for_good = (planned.dice / 3).is_multiple_of(2);
    let both = |testbed: &Testbed, work: fn(&servers::TcpProxy)| {
        let ways = require_proxies(testbed)?;
        if of_redis {
            work(&ways.redis);
        }
        if of_postgres {
            work(&ways.postgres);
        }
        anyhow::Ok(())
    };
    if for_good {
        return both(&stage.testbed, servers::TcpProxy::forget_connections);
    }
    both(&stage.testbed, servers::TcpProxy::freeze)?;
    let waited = stage.wait_for(planned.lasts).await;
    both(&stage.testbed, servers::TcpProxy::thaw)?;
    waited
}

/// Returns a random index below `count`.
fn pick_index(dice: u64, count: usize) -> usize {
    usize::try_from(dice % count.max(1) as u64).unwrap_or_default()
}
