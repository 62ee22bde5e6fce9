//! Begins a fault, lets it last, and ends it.

use anyhow::Context;

use super::{fault::Fault, on_clients, on_postgres, on_redis, schedule::Planned, stage::Stage};
use crate::testbed::{Testbed, Ways};

/// Added delay, each way.
const DELAYS_MS: [u64; 3] = [5, 20, 50];

/// A fault that cannot be made or ended is a problem of the run, and no reason to end it.
pub(super) async fn inflict(stage: &mut Stage, planned: &Planned) -> anyhow::Result<()> {
    if let Err(error) = try_inflict(stage, planned).await {
        stage.problems.push(format!("the fault {} could not be made: {error:#}", planned.fault.name()));
    }
    stage.wait(std::time::Duration::ZERO).await
}

async fn try_inflict(stage: &mut Stage, planned: &Planned) -> anyhow::Result<()> {
    match planned.fault {
        Fault::KillWorker => {
            let index = pick(planned.dice, stage.testbed.processes.worker_pids().count());
            stage.testbed.processes.kill_worker(index).await
        }
        Fault::KillServe => stage.testbed.processes.kill_serve(pick(planned.dice, stage.testbed.bases.len())).await,
        Fault::StopWorker => {
            let index = pick(planned.dice, stage.testbed.processes.worker_pids().count());
            stage.testbed.processes.freeze_worker(index, true).await;
            let waited = stage.wait(planned.lasts).await;
            stage.testbed.processes.freeze_worker(index, false).await;
            waited
        }
        Fault::StopServe => {
            let index = pick(planned.dice, stage.testbed.bases.len());
            stage.testbed.processes.freeze_serve(index, true).await;
            let waited = stage.wait(planned.lasts).await;
            stage.testbed.processes.freeze_serve(index, false).await;
            waited
        }
        Fault::Terminate => {
            on_postgres::terminate_sessions(&stage.testbed).await?;
            on_redis::kill_clients(&stage.testbed).await
        }
        Fault::HalfOpen => half_open(stage, planned).await,
        Fault::Latency => {
            let delay = std::time::Duration::from_millis(DELAYS_MS[pick(planned.dice, DELAYS_MS.len())]);
            let set = |testbed: &Testbed, delay| {
                let ways = ways(testbed)?;
                ways.redis.delay(delay);
                ways.postgres.delay(delay);
                anyhow::Ok(())
            };
            set(&stage.testbed, delay)?;
            let waited = stage.wait(planned.lasts).await;
            set(&stage.testbed, std::time::Duration::ZERO)?;
            waited
        }
        Fault::Flush => on_redis::flush(&stage.testbed).await,
        Fault::KillRedis => {
            stage.testbed.redis.kill().await;
            stage.wait(planned.lasts).await?;
            Ok(stage.testbed.redis.restart().await?)
        }
        Fault::FullRedis => {
            on_redis::set_full(&stage.testbed, true).await?;
            let waited = stage.wait(planned.lasts).await;
            on_redis::set_full(&stage.testbed, false).await?;
            waited
        }
        Fault::ClockStep => on_redis::fail_over_to_another_clock(stage, planned.dice).await,
        Fault::KillPostgres => {
            stage.testbed.postgres.kill().await;
            stage.wait(planned.lasts).await?;
            Ok(stage.testbed.postgres.restart().await?)
        }
        Fault::ReadOnly => {
            on_postgres::set_read_only(&stage.testbed, true).await?;
            let waited = stage.wait(planned.lasts).await;
            on_postgres::set_read_only(&stage.testbed, false).await?;
            waited
        }
        Fault::LongReader => on_postgres::read_for_long(stage, planned).await,
        Fault::HangingReceiver => {
            stage.receivers.hang(true);
            let waited = stage.wait(planned.lasts).await;
            stage.receivers.hang(false);
            waited
        }
        Fault::KeyFlood => on_clients::flood_with_keys(stage, planned.lasts).await,
    }
}

/// Nothing passes for a while; or never again on the connections there are. To one server or to both.
async fn half_open(stage: &mut Stage, planned: &Planned) -> anyhow::Result<()> {
    let (of_redis, of_postgres) = [(true, true), (true, false), (false, true)][pick(planned.dice, 3)];
    let for_good = (planned.dice / 3).is_multiple_of(2);
    let both = |testbed: &Testbed, work: fn(&servers::Proxy)| {
        let ways = ways(testbed)?;
        if of_redis {
            work(&ways.redis);
        }
        if of_postgres {
            work(&ways.postgres);
        }
        anyhow::Ok(())
    };
    if for_good {
        return both(&stage.testbed, servers::Proxy::forget_connections);
    }
    both(&stage.testbed, servers::Proxy::freeze)?;
    let waited = stage.wait(planned.lasts).await;
    both(&stage.testbed, servers::Proxy::thaw)?;
    waited
}

pub(super) fn ways(testbed: &Testbed) -> anyhow::Result<&Ways> {
    testbed.ways.as_ref().context("this installation has no proxies")
}

/// One of so many.
fn pick(dice: u64, count: usize) -> usize {
    usize::try_from(dice % count.max(1) as u64).unwrap_or_default()
}
