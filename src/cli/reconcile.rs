//! `dispatchq reconcile run`.

use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use super::output;
use app::App;
use desk::dead_letters::mirror;
use maintenance::recovery::{reconciler, repair};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Compare Redis with Postgres now, and put back what is missing (workers do this by themselves)
    Run {
        /// Only say what is missing
        #[arg(long)]
        dry_run: bool,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        let Self::Run { dry_run, json } = self;
        if dry_run {
            let missing = repair::list_missing(&app.core).await?;
            let ids: Vec<_> = missing.iter().map(|job| job.id.to_string()).collect();
            if json {
                output::print_json(&json!({ "missing": ids }))?;
            } else {
                output::print_rows(
                    &["MISSING JOB", "QUEUE"],
                    missing.iter().map(|j| [j.id.as_str(), j.queue]),
                    "Nothing is missing.",
                );
            }
            return Ok(ExitCode::SUCCESS);
        }
        let report = reconciler::reconcile_in_full(&app.maintenance)
            .await?
            .context("another process is reconciling right now; try again in a moment")?;
        if let Err(error) = mirror::mirror_once(&app.core).await {
            output::print_note(&format!("warning: the dead letters could not be compared: {error:#}"));
        }
        if json {
            output::print_json(&report)?;
        } else {
            println!(
                "{} rows looked at: {} timers put back, {} moved, {} orders held for review, {} ended.",
                report.looked_at, report.inserted, report.moved, report.held, report.compensated
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
