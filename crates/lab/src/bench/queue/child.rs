//! Worker processes of this binary, and the results they print.

use std::{env, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::runs::ObservedRuns;

/// Timeout for a drain.
const END_WITHIN: Duration = Duration::from_secs(30);

/// A worker process. Dropping it kills the process. If this process dies first, the worker ends by itself.
#[derive(Debug)]
pub(super) struct WorkerChild {
    child: Child,
    /// Standard input of the worker. Closing it ends the worker.
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl WorkerChild {
    /// Starts a worker that performs timers 0..`jobs`. With 0 it is idle. A `metered` worker records metrics like one
    /// that is scraped.
    pub(super) fn start(redis_url: &str, jobs: u32, metered: bool) -> anyhow::Result<Self> {
        let program = env::current_exe().context("cannot find this program's own file")?;
        let mut child = Command::new(&program)
            .args(["bench", "worker", "--redis", redis_url, "--jobs", &jobs.to_string()])
            .args(metered.then_some("--metrics"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker process has no pipes");
        };
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

    /// Waits until all timers have run, or for `within`. Returns the worker's results.
    pub(super) async fn wait_for_observed(mut self, within: Duration) -> anyhow::Result<ObservedRuns> {
        let line = timeout(within, self.output.next_line()).await;
        drop(self.input);
        let line = match line {
            Ok(line) => line?,
            Err(_) => timeout(END_WITHIN, self.output.next_line()).await.context("a worker process hangs")??,
        };
        let status = timeout(END_WITHIN, self.child.wait()).await.context("a worker process does not end")??;
        let line = line.with_context(|| format!("a worker process ended without output ({status})"))?;
        serde_json::from_str(&line).with_context(|| format!("a worker process printed: {line}"))
    }
}
