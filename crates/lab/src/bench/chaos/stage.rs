//! Installation that faults are inflicted on.

use std::time::Duration;

use anyhow::Context;
use foundation::db::Pool;
use partner_sim::PartnerSim;

use super::watch::LatenessWatch;
use crate::{
    bench::{played::PlayedStage, receivers::MessageReceivers},
    testbed::{ServerProxies, Testbed},
};

/// Time after its start during which a process may end because its servers are down. Its supervisor would restart it.
const STARTING: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct ChaosStage {
    pub(super) testbed: Testbed,
    pub(super) sim: PartnerSim,
    pub(super) receivers: MessageReceivers,
    pub(super) watch: LatenessWatch,
    /// Processes that ended unexpectedly, and faults that could not be started or ended.
    pub(super) problems: Vec<String>,
    /// Processes that could not start during a fault and were restarted.
    pub(super) false_starts: u64,
    /// Current difference of the clock of Redis.
    pub(super) clock_offset_secs: i64,
}

impl PlayedStage for ChaosStage {
    fn db(&self) -> &Pool {
        &self.testbed.app.core.db
    }

    fn sim(&self) -> &PartnerSim {
        &self.sim
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

/// Returns the proxies of the servers. Fails for an installation without proxies.
pub(super) fn require_proxies(testbed: &Testbed) -> anyhow::Result<&ServerProxies> {
    testbed.ways.as_ref().context("this installation has no proxies")
}
