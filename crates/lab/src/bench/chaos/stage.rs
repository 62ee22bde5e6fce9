//! The installation that is put under faults, and time that passes there.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{receivers::MessageReceivers, watch::LatenessWatch};
use crate::testbed::Testbed;

/// How often is looked for processes that ended by themselves.
const LOOK: Duration = Duration::from_millis(250);
/// A process that cannot reach its servers ends within this time of its start, for its supervisor to start it again.
const STARTING: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct ChaosStage {
    pub(super) testbed: Testbed,
    pub(super) receivers: MessageReceivers,
    pub(super) watch: LatenessWatch,
    /// Processes that ended by themselves, and faults that could not be made or ended.
    pub(super) problems: Vec<String>,
    /// Processes that could not start during a fault, and were started again.
    pub(super) false_starts: u64,
    /// How far the clock of Redis is off by now.
    pub(super) clock_offset_secs: i64,
}

impl ChaosStage {
    /// Lets time pass. Processes that end by themselves are replaced, and reported.
    pub(super) async fn wait_for(&mut self, time: Duration) -> anyhow::Result<()> {
        self.wait_until(Instant::now() + time).await
    }

    pub(super) async fn wait_until(&mut self, end: Instant) -> anyhow::Result<()> {
        loop {
            self.replace_ended_processes()?;
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            sleep(LOOK.min(end - now)).await;
        }
    }

    fn replace_ended_processes(&mut self) -> anyhow::Result<()> {
        for process in self.testbed.processes.replace_those_that_ended()? {
            if process.had_started || process.ran > STARTING {
                self.problems.push(process.line);
            } else {
                self.false_starts += 1;
            }
        }
        self.watch.set_workers(self.testbed.processes.worker_metrics());
        Ok(())
    }
}
