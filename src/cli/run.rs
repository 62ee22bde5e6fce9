//! `dispatchq run`: the HTTP API and a worker in one process. They share connections, caches and batches, so an order
//! costs less than with separate processes. Any number may run, and each may die at any time.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::{serve, signals, work};
use app::App;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dispatchq run\n  dispatchq run --bind 0.0.0.0:8080 --concurrency 64")]
pub(super) struct Args {
    #[command(flatten)]
    serve: serve::Args,
    #[command(flatten)]
    work: work::Args,
}

impl Args {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        orders::service_types::publish(&app.core.db, &app.config).await?;
        let queues = self.work.select_queues(&app)?;
        let stop = signals::stop_token()?;
        let serving = stop_others(self.serve.serve_until(&app, &stop), &stop);
        let working = stop_others(work::perform_jobs(&app, queues, &stop), &stop);
        let (served, worked) = tokio::join!(serving, working);
        served.and(worked)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs one half of the process. When it ends, also with an error, the other half stops.
async fn stop_others(half: impl Future<Output = anyhow::Result<()>>, stop: &CancellationToken) -> anyhow::Result<()> {
    let _stops = stop.clone().drop_guard();
    half.await
}
