//! A private Redis with an epoch, so that workers take jobs; and what it says of itself.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use servers::RedisServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};
use workers::Store;

const LOOK: Duration = Duration::from_millis(100);
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Dropping it ends the server and removes its data.
#[derive(Debug)]
pub(super) struct QueueStage {
    redis: RedisServer,
    pub(super) store: Store,
}

impl QueueStage {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let redis = RedisServer::start().await.context("the benchmark needs a Redis of its own")?;
        let store = Store::connect(&redis.url()).await?;
        // There is nothing to rebuild, and workers take no job before that is established.
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

    /// Returns once so many workers have given a sign of life.
    pub(super) async fn wait_for_workers(&self, count: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.store.list_workers().await?.len() < count {
            if begun.elapsed() > STARTUP_TIMEOUT {
                bail!("the worker processes did not start within {STARTUP_TIMEOUT:?}");
            }
            sleep(LOOK / 10).await;
        }
        Ok(())
    }

    /// Returns once the append-only file is not being rewritten: filling a queue brings that about, not using it.
    pub(super) async fn wait_for_aof_rewrite(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let info = self.read_info("persistence").await?;
            let busy = |name: &str| info.get(name).is_some_and(|value| value != "0");
            if !busy("aof_rewrite_in_progress") && !busy("aof_rewrite_scheduled") || begun.elapsed() > STARTUP_TIMEOUT {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// One section of INFO. It goes over a connection of its own, which is gone afterwards and costs no memory.
    pub(super) async fn read_info(&self, section: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.redis.port())).await?;
        stream.write_all(format!("INFO {section}\r\nQUIT\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(parse_info(&answer))
    }
}

fn parse_info(answer: &str) -> BTreeMap<String, String> {
    let pairs = answer.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_read_line_by_line() {
        let info = parse_info("$40\r\n# Memory\r\nused_memory:871\r\nmaxmemory_policy:noeviction\r\n\r\n+OK\r\n");
        assert_eq!(info.get("used_memory").map(String::as_str), Some("871"));
        assert_eq!(info.len(), 2);
    }
}
