//! A private Redis with an epoch, so that workers take jobs, and its statistics.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use servers::RedisServer;
use tokio::time::sleep;

use super::redis_info;
use queue::Store;

const LOOK: Duration = Duration::from_millis(10);
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// The private server. Dropping it ends the server and removes its data.
#[derive(Debug)]
pub(super) struct QueueStage {
    redis: RedisServer,
    pub(super) store: Store,
}

impl QueueStage {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let redis = RedisServer::start().await.context("the benchmark needs a private Redis")?;
        let store = Store::connect(&redis.url()).await?;
        // There is nothing to rebuild, but workers take no job until the rebuild is finished.
        let run_id = store.run_id().await?;
        let marker = store.begin_rebuild().await?;
        if !store.finish_rebuild(&marker, &run_id).await? {
            bail!("another program uses the private Redis at {}", redis.url());
        }
        Ok(Self { redis, store })
    }

    pub(super) fn url(&self) -> String {
        self.redis.url()
    }

    /// Waits until this many workers have sent a heartbeat.
    pub(super) async fn wait_for_workers(&self, count: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.store.list_workers().await?.len() < count {
            if begun.elapsed() > STARTUP_TIMEOUT {
                bail!("the worker processes did not start within {STARTUP_TIMEOUT:?}");
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the append-only file is not being rewritten.
    pub(super) async fn wait_for_aof_rewrite(&self) -> anyhow::Result<()> {
        redis_info::wait_for_aof_rewrite(self.redis.port()).await
    }

    /// Reads one section of INFO.
    pub(super) async fn read_info(&self, section: &str) -> anyhow::Result<BTreeMap<String, String>> {
        redis_info::read_info(self.redis.port(), section).await
    }

    /// Reads the used memory when it is stable.
    pub(super) async fn read_used_memory(&self) -> anyhow::Result<u64> {
        redis_info::read_used_memory(self.redis.port()).await
    }
}
