//! Faults of Redis. They use their own connections, not the proxy.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, ensure};
use redis::{aio::MultiplexedConnection, cmd};
use servers::RedisServer;
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::stage::{ChaosStage, require_proxies};
use crate::testbed::Testbed;

const CLOCK: &str = include_str!("clock.c");
/// Clock difference of a new primary.
const STEP_SECS: i64 = 40;
const SYNC_WAIT: Duration = Duration::from_secs(10);

async fn connect_to_redis(redis: &RedisServer) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(redis.url())?;
    client.get_multiplexed_async_connection().await.context("cannot connect to Redis to inflict a fault")
}

pub(super) async fn flush_redis(testbed: &Testbed) -> anyhow::Result<()> {
    let mut connection = connect_to_redis(&testbed.redis).await?;
    Ok(cmd("FLUSHALL").exec_async(&mut connection).await?)
}

/// Ends every connection except this one.
pub(super) async fn kill_clients(testbed: &Testbed) -> anyhow::Result<()> {
    let mut connection = connect_to_redis(&testbed.redis).await?;
    let killed: i64 =
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).query_async(&mut connection).await?;
    tracing::debug!(killed, "Redis ended connections.");
    Ok(())
}

/// Makes Redis full, or ends that state. A full Redis refuses writes that need memory.
pub(super) async fn set_full(testbed: &Testbed, full: bool) -> anyhow::Result<()> {
    let mut connection = connect_to_redis(&testbed.redis).await?;
    let limit = if full { "1" } else { "0" };
    Ok(cmd("CONFIG").arg(&["SET", "maxmemory", limit]).exec_async(&mut connection).await?)
}

/// Promotes a replica with all the data, on a host with another clock.
pub(super) async fn fail_over_to_another_clock(stage: &mut ChaosStage, dice: u64) -> anyhow::Result<()> {
    let library = clock_library(&stage.testbed).await?;
    let ahead = dice.is_multiple_of(2);
    let offset = stage.clock_offset_secs + if ahead { STEP_SECS } else { -STEP_SECS };
    let text = offset.to_string();
    let settings = [("LD_PRELOAD", library.to_str().unwrap_or_default()), ("CHAOS_CLOCK_OFFSET_SECS", text.as_str())];
    let replica = RedisServer::start_with_env(&settings).await?;
    let mut connection = connect_to_redis(&replica).await?;
    let port = stage.testbed.redis.port().to_string();
    cmd("REPLICAOF").arg(&["127.0.0.1", &port]).exec_async(&mut connection).await?;
    wait_for_sync(&mut connection).await?;
    stage.testbed.redis.kill().await;
    cmd("REPLICAOF").arg(&["NO", "ONE"]).exec_async(&mut connection).await?;
    let ways = require_proxies(&stage.testbed)?;
    ways.redis.redirect_to(replica.port());
    ways.own_redis.redirect_to(replica.port());
    stage.testbed.redis = replica;
    stage.clock_offset_secs = offset;
    Ok(())
}

async fn wait_for_sync(replica: &mut MultiplexedConnection) -> anyhow::Result<()> {
    let deadline = Instant::now() + SYNC_WAIT;
    loop {
        let info: String = cmd("INFO").arg("replication").query_async(replica).await?;
        if info.contains("master_link_status:up") && info.contains("master_sync_in_progress:0") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the replica was not in sync within {SYNC_WAIT:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns a library that shifts the clock of the server that loads it. It is compiled once, with the C compiler that
/// links Rust programs.
async fn clock_library(testbed: &Testbed) -> anyhow::Result<PathBuf> {
    let (source, library) = (testbed.dir.path().join("clock.c"), testbed.dir.path().join("clock.so"));
    if library.exists() {
        return Ok(library);
    }
    std::fs::write(&source, CLOCK)?;
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .stdin(Stdio::null())
        .output()
        .await
        .context("shifting the clock needs a C compiler (cc)")?;
    ensure!(made.status.success(), "cc: {}", String::from_utf8_lossy(&made.stderr));
    Ok(library)
}
