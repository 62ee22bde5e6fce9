//! `dispatchq worker list`.

use std::process::ExitCode;

use super::output::{self, format_time_ms};
use dispatch::app::App;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Worker processes seen within the last minute
    List {
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        let Self::List { json } = self;
        let workers = app.store.list_workers().await?;
        if json {
            output::print_json(&workers)?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows = workers.into_iter().map(|w| {
            [
                w.replica,
                w.info.host,
                w.info.pid.to_string(),
                w.info.version,
                w.info.in_hand.to_string(),
                w.info.queues.len().to_string(),
                format_time_ms(w.info.started_ms),
                format!("{:.1} s ago", std::time::Duration::from_millis(w.seen_ms_ago).as_secs_f64()),
            ]
        });
        let headings = ["REPLICA", "HOST", "PID", "VERSION", "RUNNING", "QUEUES", "STARTED", "SEEN"];
        output::print_rows(&headings, rows, "No worker is running. Start one: dispatchq work");
        Ok(ExitCode::SUCCESS)
    }
}
