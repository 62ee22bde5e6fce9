//! `dispatchq cleanup run`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field},
    },
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Remove expired data now (workers do this on the schedule in [schedules])
    Run {
        /// Print what would be removed, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let Self::Run { dry_run, json } = self;
        let report = api.post(&["admin", "cleanup"], &json!({ "dry_run": dry_run })).await?;
        let failed = list_items(&report, "failed");
        let outcome = if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        if json {
            output::print_json(&report)?;
            return Ok(outcome);
        }
        println!("{}", if dry_run { "Would be removed:" } else { "Removed:" });
        for (count, what) in [
            ("orders", "closed orders"),
            ("messages", "offer messages"),
            ("rankings", "rankings of drivers"),
            ("idempotency_keys", "idempotency keys"),
            ("records", "records of runs, snapshots, repairs and dead letters"),
            ("dead_jobs", "dead jobs"),
            ("transactions", "final transactions"),
            ("bindings", "deleted bindings"),
        ] {
            println!("{:>10} {what}", show_field(&report, count));
        }
        for failed in failed.iter().filter_map(Value::as_str) {
            output::print_escaped(&format!("Failed: {failed}"));
        }
        Ok(outcome)
    }
}
