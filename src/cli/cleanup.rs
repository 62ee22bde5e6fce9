//! `dispatchq cleanup run`.

use std::process::ExitCode;

use super::output;
use app::App;
use maintenance::periodic::cleanup::{self, CleanupMode};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Remove what has served its time now (workers do this by [schedules])
    Run {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        let Self::Run { dry_run, json } = self;
        let report =
            cleanup::run_all(&app.maintenance, if dry_run { CleanupMode::DryRun } else { CleanupMode::Remove }).await?;
        let outcome = if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        if json {
            output::print_json(&report)?;
            return Ok(outcome);
        }
        println!("{}", if dry_run { "Would be removed:" } else { "Removed:" });
        for (count, what) in [
            (report.orders, "closed orders"),
            (report.messages, "offer messages"),
            (report.rankings, "rankings of drivers"),
            (report.idempotency_keys, "idempotency keys"),
            (report.records, "records of runs, snapshots, repairs and dead letters"),
            (report.dead_jobs, "dead jobs"),
            (report.transactions, "final transactions"),
            (report.bindings, "deleted bindings"),
        ] {
            println!("{count:>10} {what}");
        }
        for failed in &report.failed {
            output::print_escaped(&format!("Failed: {failed}"));
        }
        Ok(outcome)
    }
}
