//! `dispatchq bench`.

use std::process::ExitCode;

use foundation::{config::log::LogConfig, telemetry};
use lab::bench::{
    self, frame,
    queue::worker::{self, WorkerOptions},
};
use settings::Config;

/// Where servers are killed, the pool has much to say.
const FILTER: &str = "warn,sqlx_core::pool=error";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Measure the queue on this machine, with a Redis of its own: throughput, lateness, memory, idle cost
    Queue(bench::queue::QueueOptions),
    /// Put orders served by a partner on this machine at a steady rate, with servers and a partner of its own
    Orders(bench::orders::OrdersOptions),
    /// Let many drivers press accept at the same moment, order after order
    Accept(bench::accept::AcceptOptions),
    /// Ask whether there is room, create orders where there is little, and answer a burst of 77,000 requests
    Admission(bench::admission::AdmissionOptions),
    /// Let everything fail, one thing after another, while orders are created; compare what clients were told with the tables
    Chaos(bench::chaos::ChaosOptions),
    /// Run this version beside the one before on orders that go on, through an upgrade, a rollback and the next upgrade
    Upgrade(bench::upgrade::UpgradeOptions),
    /// Let nodes of a Redis Cluster fail and cut the queue into more and fewer shards while orders go on
    Cluster(bench::cluster::ClusterOptions),
    /// Visit every page of the console beside very many orders and fifty people who look: how long they take, and whether dispatch is late
    Console(bench::console::ConsoleOptions),
    /// Flush Redis while very many orders are open: when are all timers back, and when does the fleet go on?
    Rebuild(bench::rebuild::RebuildOptions),
    /// Run bindings on a simulated provider that judges every call: cycles per second, waits, stops, processor time
    Bindings(bench::bindings::BindingsOptions),
    #[command(hide = true)]
    Worker(WorkerOptions),
}

impl Command {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        telemetry::init_logs(&LogConfig { filter: FILTER.to_owned(), ..Config::defaults().log })?;
        let good = match self {
            Self::Queue(options) => frame::run(&options).await?,
            Self::Orders(options) => frame::run(&options).await?,
            Self::Accept(options) => frame::run(&options).await?,
            Self::Admission(options) => frame::run(&options).await?,
            Self::Chaos(options) => frame::run(&options).await?,
            Self::Upgrade(options) => frame::run(&options).await?,
            Self::Cluster(options) => frame::run(&options).await?,
            Self::Console(options) => frame::run(&options).await?,
            Self::Rebuild(options) => frame::run(&options).await?,
            Self::Bindings(options) => frame::run(&options).await?,
            Self::Worker(options) => {
                worker::run(options).await?;
                true
            }
        };
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
