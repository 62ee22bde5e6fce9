//! `dispatchq check history`.

use std::process::ExitCode;

use serde_json::json;

use super::output;
use dispatch::{
    app::App,
    audit::{self, invariants::INVARIANTS},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Ask every invariant of the history; exit 1 if one is broken
    History {
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        let Self::History { json } = self;
        let violations = audit::check_history(&app).await?;
        if json {
            output::print_json(&json!({ "violations": violations }))?;
        } else if violations.is_empty() {
            for invariant in INVARIANTS {
                println!("ok  {:<36} {}", invariant.name, invariant.meaning);
            }
            println!("ok  {:<36} every transition is in the table of docs/STATES.md", "legal_transitions");
            println!("ok  {:<36} Redis holds every timer the orders need", "no_timer_missing");
            println!("ok  {:<36} every dead job says why", "no_dead_job_without_reason");
        } else {
            for violation in &violations {
                output::print_escaped(&format!("VIOLATION  {violation}"));
            }
        }
        Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
