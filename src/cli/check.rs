//! `dispatchq check history`.

use std::process::ExitCode;

use serde_json::json;

use super::output;
use app::App;
use maintenance::audit::{self, binding_invariants::BINDING_INVARIANTS, invariants::INVARIANTS};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Ask every invariant of the history; exit 1 if one is broken
    History {
        /// Calls of providers that may have been open at once [default: the limit that holds now]
        #[arg(long, value_name = "N")]
        max_calls: Option<u32>,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        let Self::History { max_calls, json } = self;
        let violations = match max_calls {
            Some(max_calls) => audit::check_history_within(&app.maintenance, max_calls).await?,
            None => audit::check_history(&app.maintenance).await?,
        };
        if json {
            output::print_json(&json!({ "violations": violations }))?;
        } else if violations.is_empty() {
            for invariant in INVARIANTS.into_iter().chain(BINDING_INVARIANTS) {
                println!("ok  {:<36} {}", invariant.name, invariant.meaning);
            }
            println!("ok  {:<36} every transition is in the table of docs/STATES.md", "legal_transitions");
            println!("ok  {:<36} Redis holds every timer that orders and bindings need", "no_timer_missing");
            println!("ok  {:<36} every dead job says why", "no_dead_job_without_reason");
            println!("ok  {:<36} who waits in an area waits there in Redis, too", "waiting_sets_equal_rows");
        } else {
            for violation in &violations {
                output::print_escaped(&format!("VIOLATION  {violation}"));
            }
        }
        Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
