//! `dispatchq work`: one worker process. Any number may run, and each may die at any time.

use std::process::ExitCode;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{serve, service_manager, signals};
use api::ProcessKind;
use app::App;
use workers::worker::process::{self, Queues};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "Examples:\n  dispatchq work\n  dispatchq work --queues notify-queue --concurrency 64")]
pub(super) struct Args {
    /// Queues to serve [default: all]
    #[arg(long, value_delimiter = ',', value_name = "QUEUE,...")]
    queues: Vec<String>,
    /// Jobs that run at the same time, for each queue [default: worker.concurrency]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
}

impl Args {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        orders::service_types::publish(&app.core.db, &app.config).await?;
        let queues = self.select_queues(&app)?;
        let stop = signals::stop_token()?;
        let admin = serve::start_admin(&app, ProcessKind::Work, &stop).await?;
        service_manager::report_serving(&app);
        perform_jobs(&app, queues, &stop).await?;
        stop.cancel();
        if let Some(admin) = admin {
            admin.await??;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the queues to serve. Returns an error for an unknown queue.
    pub(super) fn select_queues(&self, app: &App) -> anyhow::Result<Queues> {
        Ok(process::select_queues(&app.config, &self.queues, self.concurrency.map(usize::from))?)
    }
}

/// Performs jobs until `stop`, then drains.
pub(super) async fn perform_jobs(app: &App, queues: Queues, stop: &CancellationToken) -> anyhow::Result<()> {
    // A worker without the queue of messages may run where it cannot reach their receivers.
    if queues.iter().any(|(queue, _)| *queue == jobs::queues::NOTIFY) {
        app.orders.first_tries.start();
    }
    tracing::info!(?queues, "Performing jobs.");
    let summary = process::run(app.clone(), queues, stop.clone()).await?;
    app.core.behind_answers.close();
    if timeout(app.config.worker.drain, app.core.behind_answers.wait()).await.is_err() {
        tracing::warn!("Messages are still being sent; their jobs send them again.");
    }
    tracing::info!(settled = summary.settled, refused = summary.refused, handed_back = summary.released, "Drained.");
    Ok(())
}
