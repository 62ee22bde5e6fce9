//! `dispatchq bench`.

use std::process::ExitCode;

use foundation::{config::log::LogConfig, telemetry};
use lab::bench::{
    self, frame,
    queue::worker::{self, WorkerOptions},
};
use settings::Config;

/// Log filter. Warnings of the pool are hidden, because some benchmarks kill the servers.
const FILTER: &str = "warn,sqlx_core::pool=error";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Measure the queue on this machine, on its own Redis: throughput, lateness, memory, idle cost
    Queue(bench::queue::QueueOptions),
    /// Create orders for a simulated partner at a steady rate, on private servers
    Orders(bench::orders::OrdersOptions),
    /// Let many drivers accept each order at the same moment
    Accept(bench::accept::AcceptOptions),
    /// Measure admission checks, order creation near the limit, and a burst of 77,000 requests
    Admission(bench::admission::AdmissionOptions),
    /// Inject one fault after another while orders are created, and compare the answers to clients with the tables
    Chaos(bench::chaos::ChaosOptions),
    /// Run this version next to the previous one on open orders: upgrade, rollback, second upgrade
    Upgrade(bench::upgrade::UpgradeOptions),
    /// Stop nodes of a Redis Cluster and change the number of shards while orders are open
    Cluster(bench::cluster::ClusterOptions),
    /// Load every console page with many orders and fifty viewers, and measure load times and dispatch lateness
    Console(bench::console::ConsoleOptions),
    /// Flush Redis while many orders are open, and measure when all timers are restored and dispatch continues
    Rebuild(bench::rebuild::RebuildOptions),
    /// Run bindings on a simulated provider that checks every call: cycles per second, waits, stops, CPU time
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
