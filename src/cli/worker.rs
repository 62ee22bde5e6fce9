//! `dispatchq worker list|drain|resume`.

use std::{process::ExitCode, time::Duration};

use serde_json::{Value, json};

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time_ms},
    },
};
use model::input::parse_reason;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List worker processes seen within the last minute
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Drain a worker: running jobs finish, and it takes no further ones until it is resumed or restarted
    #[command(after_help = "Example:\n  dispatchq worker drain 5f1c0e7a9b3d2468")]
    Drain {
        /// ID of the worker in `dispatchq worker list`
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Resume a drained worker
    Resume {
        /// ID of the worker in `dispatchq worker list`
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_workers(&api.get(&["admin", "workers"], &[]).await?["workers"], json)?,
            Self::Drain { id, reason } => print_drained(&id, &change_worker(api, &id, "drain", reason).await?),
            Self::Resume { id, reason } => print_resumed(&id, &change_worker(api, &id, "resume", reason).await?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn change_worker(api: &ApiClient, id: &str, step: &str, reason: Option<String>) -> anyhow::Result<Value> {
    let body = json!({ "reason": api.reason_of_change(reason)? });
    Ok(api.post(&["admin", "workers", id, step], &body).await?)
}

/// Returns `now`, or `already` if nothing was changed.
fn when_changed(done: &Value) -> &'static str {
    if done["changed"] == true { "now" } else { "already" }
}

fn print_drained(id: &str, done: &Value) {
    let (when, state) = (when_changed(done), show_field(done, "state"));
    output::print_escaped(&format!("{id} is {state} {when}. Resume it: dispatchq worker resume {id}"));
    let unserved: Vec<&str> =
        done["unserved_queues"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !unserved.is_empty() {
        output::print_escaped(&format!("No other worker takes jobs of {}.", unserved.join(", ")));
    }
}

fn print_resumed(id: &str, done: &Value) {
    output::print_escaped(&format!("{id} takes jobs {}.", when_changed(done)));
}

/// Prints workers in the format of the API.
fn print_workers(workers: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(workers);
    }
    let rows = workers.as_array().into_iter().flatten().map(|worker| {
        let seen = Duration::from_millis(worker["seen_ms_ago"].as_u64().unwrap_or_default());
        [
            show_field(worker, "boot"),
            show_field(worker, "replica"),
            show_field(worker, "state"),
            show_field(worker, "host"),
            show_field(worker, "pid"),
            show_field(worker, "version"),
            show_field(worker, "in_hand"),
            show_memory(worker),
            show_processor(worker),
            list_items(worker, "queues").len().to_string(),
            show_time_ms(worker, "started_ms"),
            format!("{:.1} s ago", seen.as_secs_f64()),
        ]
    });
    let headings =
        ["ID", "REPLICA", "STATE", "HOST", "PID", "VERSION", "RUNNING", "MEMORY", "CPU", "QUEUES", "STARTED", "SEEN"];
    output::print_rows(&headings, rows, "No worker is running. Start one: dispatchq work");
    Ok(())
}

fn show_memory(worker: &Value) -> String {
    worker["resident_bytes"].as_u64().map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes / 1_048_576))
}

fn show_processor(worker: &Value) -> String {
    worker["cpu_percent"].as_u64().map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}
