//! `dispatchq queue list`.

use std::process::ExitCode;

use super::output;
use crate::app::App;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// All queues and how they stand
    List {
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        let Self::List { json } = self;
        let stats = app.store.stats(&jobs::queues::ALL).await?;
        if json {
            output::json(&stats)?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows = stats.into_iter().map(|s| {
            [
                s.queue,
                s.due.to_string(),
                s.scheduled.to_string(),
                s.next_minute.to_string(),
                s.leased.to_string(),
                s.dead.to_string(),
                s.oldest_due_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms")),
                if s.paused { "paused" } else { "" }.to_owned(),
            ]
        });
        let headings = ["QUEUE", "DUE", "SCHEDULED", "NEXT MINUTE", "RUNNING", "DEAD", "OLDEST DUE", ""];
        output::table(&headings, rows, "No queues.");
        let lateness = app.store.lateness().await?;
        if lateness.count > 0 {
            println!(
                "\nLateness since the start of the last hour: p50 {} ms, p99 {} ms, max {} ms ({} jobs).",
                lateness.p50_ms, lateness.p99_ms, lateness.max_ms, lateness.count
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
