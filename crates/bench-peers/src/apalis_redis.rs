//! Stock apalis-redis with its fastest settings.
//!
//! docs/BENCHMARKS.md lists the settings that were tried. Leases are off, although dispatchq always works with leases:
//! they cost apalis-redis most of its throughput, and the comparison uses its fastest mode. A second measurement has
//! leases on.

use std::{
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use anyhow::Context;
use apalis_core::backend::ext::{
    BackendExt,
    poll_strategy::{PollSnapshot, PollStrategy, PollWith},
};
use apalis_redis::{Config, ConnectionManager, RedisStorage};
use redis::AsyncCommands;
use servers::RedisServer;
use tokio::time::{Interval, MissedTickBehavior};

pub(crate) const NAME: &str = "apalis-redis";
pub(crate) const QUEUE: &str = "bench";

/// Interval between polls. Without polling, an idle worker looks for jobs only every 30 s.
const POLL: Duration = Duration::from_millis(1);
/// Jobs per call of `push_bulk`, the same number that dispatchq sends in one call.
pub(crate) const PUSH: usize = 500;

/// Job source of a worker. A job is its number, or the time it was wanted at.
pub(crate) type Polled = PollWith<RedisStorage<u64>, SteadyPoll>;

/// Returns the version of apalis-redis in Cargo.lock.
pub(crate) fn locked_version() -> anyhow::Result<String> {
    let lock = include_str!("../../../Cargo.lock");
    let mut lines = lock.lines().skip_while(|line| *line != "name = \"apalis-redis\"");
    let version = lines.find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.map(ToOwned::to_owned).context("Cargo.lock does not name apalis-redis")
}

/// Settings of apalis-redis. The defaults are the fastest that were found; the options exist to find faster ones.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct PeerSettings {
    /// Maximum jobs fetched in one call; from 8,000 on its script fails
    #[arg(long, default_value_t = 1000)]
    pub(crate) buffer: usize,
    /// Enable leases and events, the default of apalis-redis
    #[arg(long)]
    pub(crate) leases: bool,
    /// Run each job in its own task
    #[arg(long)]
    pub(crate) parallelize: bool,
}

/// Fastest settings with leases. Taking a job then costs one command per job, which walks the list of all waiting jobs.
pub(crate) const WITH_LEASES: PeerSettings = PeerSettings { buffer: 100, leases: true, parallelize: false };

impl PeerSettings {
    pub(crate) fn queue_config(self) -> Config {
        Config::default().queue(QUEUE).batch_size(self.buffer).lock_tasks(self.leases).emit_events(self.leases)
    }

    pub(crate) fn settings_text(self) -> String {
        let leases = if self.leases { "on" } else { "off" };
        let tasks = if self.parallelize { ", a task per job" } else { "" };
        let poll = POLL.as_millis();
        format!("buffer {}, polled every {poll} ms, leases and events {leases}{tasks}", self.buffer)
    }
}

pub(crate) async fn connect_to_redis(redis: &RedisServer) -> anyhow::Result<ConnectionManager> {
    Ok(apalis_redis::connect(redis.url()).await?)
}

pub(crate) fn open_storage(connection: &ConnectionManager, config: &Config) -> RedisStorage<u64> {
    RedisStorage::new(connection.clone()).with_config(config.clone())
}

pub(crate) fn poll_storage(connection: &ConnectionManager, config: &Config) -> Polled {
    let mut interval = tokio::time::interval(POLL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    open_storage(connection, config).poll_with_strategy(SteadyPoll(interval))
}

/// Polls at an interval. The stock `IntervalStrategy` may report ready without registering a waker. If a fetch then
/// takes longer than the interval and finds nothing, its worker sleeps until the next heartbeat, 30 s later.
#[derive(Debug)]
pub(crate) struct SteadyPoll(Interval);

impl PollStrategy for SteadyPoll {
    fn poll_drive(&mut self, cx: &mut TaskContext<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        let mut ready = Poll::Pending;
        while self.0.poll_tick(cx).is_ready() {
            ready = Poll::Ready(Some(()));
        }
        ready
    }
}

/// Returns the number of acknowledged jobs.
pub(crate) async fn count_done(connection: &mut ConnectionManager, config: &Config) -> anyhow::Result<u64> {
    Ok(connection.scard(config.done_jobs_set()).await?)
}
