//! `dispatchq worker list`.

use std::{process::ExitCode, time::Duration};

use serde_json::Value;

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time_ms},
    },
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List worker processes seen within the last minute
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let Self::List { json } = self;
        print_workers(&api.get(&["admin", "workers"], &[]).await?["workers"], json)
    }
}

/// Prints workers in the format of the API.
fn print_workers(workers: &Value, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(workers)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = workers.as_array().into_iter().flatten().map(|worker| {
        let seen = Duration::from_millis(worker["seen_ms_ago"].as_u64().unwrap_or_default());
        [
            show_field(worker, "replica"),
            show_field(worker, "host"),
            show_field(worker, "pid"),
            show_field(worker, "version"),
            show_field(worker, "in_hand"),
            list_items(worker, "queues").len().to_string(),
            show_time_ms(worker, "started_ms"),
            format!("{:.1} s ago", seen.as_secs_f64()),
        ]
    });
    let headings = ["REPLICA", "HOST", "PID", "VERSION", "RUNNING", "QUEUES", "STARTED", "SEEN"];
    output::print_rows(&headings, rows, "No worker is running. Start one: dispatchq work");
    Ok(ExitCode::SUCCESS)
}
