//! `dispatchq cleanup run`.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, sum_fields},
    },
};
use model::input::parse_reason;

/// Counts of a report, and what they count.
const COUNTS: [(&str, &str); 9] = [
    ("orders", "closed orders"),
    ("details", "orders' contacts, notes, addresses and metadata"),
    ("messages", "offer messages"),
    ("rankings", "rankings of drivers"),
    ("idempotency_keys", "idempotency keys"),
    ("records", "records of runs, snapshots, repairs and dead letters"),
    ("dead_jobs", "dead jobs"),
    ("transactions", "final transactions"),
    ("bindings", "deleted bindings"),
];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Remove expired data now (workers do this on the schedule in [schedules])
    Run {
        /// Print what would be removed, and change nothing
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
        let request = json!({ "dry_run": dry_run, "reason": reason });
        let answers =
            api.post_slices(&["admin", "cleanup"], request, |answers| describe_progress(answers, dry_run)).await?;
        let report = merge_reports(&answers);
        let failed = list_items(&report, "failed");
        let outcome = if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        if json {
            output::print_json(&report)?;
            return Ok(outcome);
        }
        println!("{}", if dry_run { "Would be removed:" } else { "Removed:" });
        for (count, what) in COUNTS {
            println!("{:>10} {what}", show_field(&report, count));
        }
        for failed in failed.iter().filter_map(Value::as_str) {
            output::print_escaped(&format!("Failed: {failed}"));
        }
        Ok(outcome)
    }
}

fn describe_progress(answers: &[Value], dry_run: bool) -> String {
    let rows: u64 = COUNTS.iter().map(|(count, _)| sum_fields(answers, count)).sum();
    format!("{rows} rows {} so far; continuing", if dry_run { "counted" } else { "removed" })
}

/// Returns one report for the whole cleanup.
fn merge_reports(answers: &[Value]) -> Value {
    let mut report: Map<String, Value> =
        COUNTS.iter().map(|(count, _)| ((*count).to_owned(), sum_fields(answers, count).into())).collect();
    let mut failed: Vec<&Value> = answers.iter().flat_map(|answer| list_items(answer, "failed")).collect();
    failed.dedup();
    report.insert("failed".to_owned(), json!(failed));
    Value::Object(report)
}
