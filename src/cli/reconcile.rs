//! `dispatchq reconcile run`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field},
    },
};
use model::input::parse_reason;

const PATH: [&str; 2] = ["admin", "reconciliation"];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Compare Redis with Postgres now, and enqueue missing jobs again (workers do this regularly)
    Run {
        /// Print what is missing, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let Self::Run { dry_run, reason, json } = self;
        if dry_run {
            let found = api.get(&PATH, &[]).await?;
            let missing = list_items(&found, "missing");
            if json {
                let ids: Vec<_> = missing.iter().map(|job| &job["id"]).collect();
                output::print_json(&json!({ "missing": ids }))?;
            } else {
                let rows = missing.iter().map(|job| [show_field(job, "id"), show_field(job, "queue")]);
                output::print_rows(&["MISSING JOB", "QUEUE"], rows, "Nothing is missing.");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let request = json!({ "reason": reason });
        let answers = api.post_slices(&PATH, request, |_| "Timers are being compared; waiting".to_owned()).await?;
        let reconciled = answers.last().unwrap_or(&Value::Null);
        if let Some(warning) = reconciled["warning"].as_str() {
            output::print_note(&format!("warning: the dead letters could not be compared: {warning}"));
        }
        let report = &reconciled["report"];
        if json {
            output::print_json(report)?;
        } else {
            let [looked_at, inserted, moved, held, ended] =
                ["looked_at", "inserted", "moved", "held", "compensated"].map(|name| show_field(report, name));
            println!(
                "{looked_at} rows checked: {inserted} timers enqueued again, {moved} moved, {held} orders held for review, {ended} ended."
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
