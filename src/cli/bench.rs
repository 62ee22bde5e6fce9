//! `dispatchq bench`.

use std::process::ExitCode;

use crate::{
    bench::{self, QueueOptions, WorkerOptions},
    config::{Config, LogConfig},
    telemetry,
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Measure the queue on this machine, with a Redis of its own: throughput, lateness, memory, idle cost
    Queue(QueueOptions),
    #[command(hide = true)]
    Worker(WorkerOptions),
}

impl Command {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        telemetry::init_logs(&LogConfig { filter: "warn".to_owned(), ..Config::defaults().log })?;
        let good = match self {
            Self::Queue(options) => bench::run(options).await?,
            Self::Worker(options) => {
                bench::worker::run(options).await?;
                true
            }
        };
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
