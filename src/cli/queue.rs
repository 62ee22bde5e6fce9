//! `dispatchq queue list|stats|pause|resume`.

use std::process::ExitCode;

use anyhow::ensure;
use queue::store::{LatenessSummary, QueueStats};
use serde_json::json;

use super::{output, remote::ApiClient};
use model::input::parse_reason;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List queues and their job counts
    List {
        #[arg(long)]
        json: bool,
    },
    /// Print queues, and how late jobs start over all processes
    Stats {
        #[arg(long)]
        json: bool,
    },
    /// Pause a queue: running jobs finish, and no further ones start
    Pause {
        queue: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Resume a paused queue
    Resume {
        queue: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => {
                let queues = api.get(&["admin", "queues"], &[]).await?["queues"].take();
                if json { output::print_json(&queues)? } else { print_table(serde_json::from_value(queues)?) }
            }
            Self::Stats { json } => {
                let mut stats = api.get(&["admin", "queues"], &[]).await?;
                if json {
                    output::print_json(&stats)?;
                } else {
                    let lateness = serde_json::from_value(stats["lateness"].take())?;
                    print_stats(serde_json::from_value(stats["queues"].take())?, &lateness);
                }
            }
            Self::Pause { queue, reason } => print_paused(&queue, set_paused(api, &queue, "pause", reason).await?),
            Self::Resume { queue, reason } => print_resumed(&queue, set_paused(api, &queue, "resume", reason).await?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Pauses or resumes a queue. Returns whether that changed anything.
async fn set_paused(api: &ApiClient, queue: &str, step: &str, reason: Option<String>) -> anyhow::Result<bool> {
    check_known_queue(queue)?;
    let body = json!({ "reason": api.reason_of_change(reason)? });
    Ok(api.post(&["admin", "queues", queue, step], &body).await?["changed"] == true)
}

/// Fails if the queue does not exist.
pub(super) fn check_known_queue(queue: &str) -> anyhow::Result<()> {
    ensure!(jobs::queues::ALL.contains(&queue), "no queue '{queue}'; queues are {}", jobs::queues::ALL.join(", "));
    Ok(())
}

fn state_text(changed: bool, word: &str) -> String {
    if changed { format!("{word} now") } else { format!("{word} already") }
}

fn print_paused(queue: &str, changed: bool) {
    println!("{queue} is {}. Resume it: dispatchq queue resume {queue}", state_text(changed, "paused"));
}

fn print_resumed(queue: &str, changed: bool) {
    println!("{queue} is {}.", state_text(changed, "running"));
}

fn print_stats(stats: Vec<QueueStats>, lateness: &LatenessSummary) {
    print_table(stats);
    println!(
        "\nLateness since the start of the last hour: p50 {} ms, p99 {} ms, max {} ms ({} jobs).",
        lateness.p50_ms, lateness.p99_ms, lateness.max_ms, lateness.count
    );
}

fn print_table(stats: Vec<QueueStats>) {
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
    output::print_rows(&headings, rows, "No queues.");
}
