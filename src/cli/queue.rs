//! `dispatchq queue list|stats|pause|resume`.

mod remote;

use std::process::ExitCode;

use anyhow::ensure;
use serde_json::json;

use super::{order::cli_operator, output};
use app::App;
use foundation::{queue_pauses, staff_actions::ActionAuthor};
use model::input::parse_reason;
use queue::store::{LatenessSummary, QueueStats};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// All queues and how they stand
    List {
        #[arg(long)]
        json: bool,
    },
    /// All queues, and how late their jobs start, over the whole fleet
    Stats {
        #[arg(long)]
        json: bool,
    },
    /// Stop a queue: its jobs wait, what runs finishes
    Pause {
        queue: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Let a stopped queue run again
    Resume {
        queue: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json: true } => output::print_json(&app.core.queue().queue_stats(&jobs::queues::ALL).await?)?,
            Self::List { json: false } => print_table(app.core.queue().queue_stats(&jobs::queues::ALL).await?),
            Self::Stats { json } => {
                let (stats, lateness) =
                    (app.core.queue().queue_stats(&jobs::queues::ALL).await?, app.core.store.read_lateness().await?);
                if json {
                    output::print_json(&json!({ "queues": stats, "lateness": lateness }))?;
                } else {
                    print_stats(stats, &lateness);
                }
            }
            Self::Pause { queue, reason } => {
                check_known_queue(&queue)?;
                let by = ActionAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                let was_running = queue_pauses::pause_queue(&app.core, &queue, by).await?;
                print_paused(&queue, was_running);
            }
            Self::Resume { queue, reason } => {
                check_known_queue(&queue)?;
                let by = ActionAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                let was_paused = queue_pauses::resume_queue(&app.core, &queue, by).await?;
                print_resumed(&queue, was_paused);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses a queue that does not exist.
pub(super) fn check_known_queue(queue: &str) -> anyhow::Result<()> {
    ensure!(jobs::queues::ALL.contains(&queue), "no queue '{queue}'; queues are {}", jobs::queues::ALL.join(", "));
    Ok(())
}

fn state_text(changed: bool, word: &str) -> String {
    if changed { format!("{word} now") } else { format!("{word} already") }
}

fn print_paused(queue: &str, changed: bool) {
    println!("{queue} is {}. Let it run again: dispatchq queue resume {queue}", state_text(changed, "paused"));
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
