//! Cost of idle workers: commands per second that eight worker processes send to Redis.
//!
//! A script call counts as one command, because it is one message and one answer. Commands that scripts call inside
//! Redis are not traffic. INFO counts both in one table, so the commands of the engine's scripts are excluded. An idle
//! worker sends none of those as a plain command. Every other command is counted.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, sleep};

use super::{child::WorkerChild, redis_info, stage::QueueStage};

const WORKERS: usize = 8;
/// Pause after the start, so that its commands are not counted.
const SETTLE_DOWN: Duration = Duration::from_secs(2);

/// Commands that the engine's scripts call.
const IN_SCRIPTS: &str = "del exists expire get hdel hexists hget hgetall hincrby hkeys hlen hmget hset hsetnx info pexpire publish \
    scard set sismember time zadd zcard zcount zintercard zmscore zpopmin zrange zrangebyscore zrem zremrangebyscore zscore";
/// Commands of the measurement itself.
const OURS: [&str; 2] = ["info", "quit"];

/// Returns commands per second.
pub(super) async fn measure_idle(idle_for: Duration) -> anyhow::Result<f64> {
    let stage = QueueStage::start().await?;
    let workers =
        (0..WORKERS).map(|_| WorkerChild::start(&stage.url(), 0, false)).collect::<anyhow::Result<Vec<_>>>()?;
    stage.wait_for_workers(WORKERS).await?;
    sleep(SETTLE_DOWN).await;
    let before = count_commands_sent(&stage.read_info("commandstats").await?);
    let begun = Instant::now();
    sleep(idle_for).await;
    let after = count_commands_sent(&stage.read_info("commandstats").await?);
    let took = begun.elapsed();
    for worker in workers {
        // The workers only wait for the end of their input.
        worker.wait_for_observed(Duration::ZERO).await?;
    }
    let commands = after.saturating_sub(before) as f64;
    Ok(commands / took.as_secs_f64())
}

/// Returns the number of commands that clients sent, from `INFO commandstats`.
fn count_commands_sent(commandstats: &BTreeMap<String, String>) -> u64 {
    let calls = commandstats.iter().filter_map(|(name, stats)| {
        let command = name.strip_prefix("cmdstat_")?;
        (!IN_SCRIPTS.split(' ').any(|name| name == command) && !OURS.contains(&command))
            .then(|| redis_info::calls_in(stats))?
    });
    calls.sum()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn command_list_matches_the_engine_scripts() {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../queue/src/scripts");
        let text: String =
            fs::read_dir(scripts).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        let called = |call: &str| {
            let calls: Vec<String> =
                text.split(call).skip(1).filter_map(|rest| rest.split('\'').next()).map(str::to_lowercase).collect();
            calls
        };
        let called: BTreeSet<String> = [called("redis.call('"), called("in_chunks('")].concat().into_iter().collect();
        let listed: BTreeSet<String> = IN_SCRIPTS.split(' ').map(str::to_owned).collect();
        assert_eq!(called.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
