//! `dispatchq shards` as an operator runs it: as a process of this binary.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use serde::Deserialize;
use tokio::{
    process::Command,
    time::{Instant, sleep, timeout},
};

use crate::testbed::processes;

/// Timeouts for a command, and for settling all shards, on a busy machine.
const COMMAND_WAIT: Duration = Duration::from_secs(60);
const SETTLED_WAIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(250);

/// The command with the configuration of a run.
#[derive(Debug, Clone)]
pub(super) struct ShardCommand {
    program: PathBuf,
    config: PathBuf,
}

/// Fields of `shards list --json` that are needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct ShardMap {
    shards: u16,
    /// Whether all timers are in their new shards.
    #[serde(default)]
    derived: bool,
    /// Whether, in addition, no job is left in other shards.
    settled: bool,
}

impl ShardCommand {
    pub(super) fn new(config: &Path) -> anyhow::Result<Self> {
        let program = env::current_exe().context("cannot find the dispatchq binary that is running")?;
        Ok(Self { program, config: config.to_owned() })
    }

    /// Returns whether this binary has the command.
    pub(super) async fn is_known(&self) -> anyhow::Result<bool> {
        Ok(self.run_command(&["set", "--help"]).await?.status.success())
    }

    /// Sets the number of shards, and waits until they are settled. Returns the time it took.
    pub(super) async fn set_shards(&self, count: u16) -> anyhow::Result<Duration> {
        let (begun, before) = (Instant::now(), self.read_map().await?.shards);
        self.read_output(&["set", &count.to_string()]).await?;
        loop {
            let map = self.read_map().await?;
            if map.settled && map.shards == count {
                return Ok(begun.elapsed());
            }
            ensure!(begun.elapsed() < SETTLED_WAIT, "not settled {SETTLED_WAIT:?} after shards set {count}: {map:?}");
            if map.derived && count < before {
                // Without a drain, timers in the closed shards would run only at their times. The command fails while
                // some of them are running.
                let drained = self.run_command(&["drain"]).await?;
                tracing::debug!(status = %drained.status, "Left-over shards were drained.");
            }
            sleep(LOOK).await;
        }
    }

    async fn read_map(&self) -> anyhow::Result<ShardMap> {
        let printed = self.read_output(&["list", "--json"]).await?;
        serde_json::from_str(&printed).with_context(|| format!("shards list printed: {printed}"))
    }

    async fn read_output(&self, args: &[&str]) -> anyhow::Result<String> {
        let Output { status, stdout, stderr } = self.run_command(args).await?;
        let said = String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "shards {} ended with {status}: {said}", args.join(" "));
        Ok(String::from_utf8(stdout)?)
    }

    async fn run_command(&self, args: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command.arg("shards").arg("--config").arg(&self.config).args(args).stdin(Stdio::null()).kill_on_drop(true);
        processes::clear_settings(&mut command);
        let output = timeout(COMMAND_WAIT, command.output()).await;
        let output = output.with_context(|| format!("shards {} does not end", args.join(" ")))?;
        output.with_context(|| format!("cannot start {} shards", self.program.display()))
    }
}
