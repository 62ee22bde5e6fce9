//! `dispatchq check history`.

use std::process::ExitCode;

use serde_json::json;

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field},
    },
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Check every invariant of the history; exit 1 if one is violated
    History {
        /// Maximum number of provider calls that may have been open at once [default: the current limit]
        #[arg(long, value_name = "N")]
        max_calls: Option<u32>,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let Self::History { max_calls, json } = self;
        let query: Vec<_> = max_calls.map(|most| ("max_calls", most.to_string())).into_iter().collect();
        let checked = api.get(&["admin", "history-check"], &query).await?;
        let violations = list_items(&checked, "violations");
        if json {
            output::print_json(&json!({ "violations": violations }))?;
        } else if violations.is_empty() {
            for check in list_items(&checked, "checks") {
                println!("ok  {:<36} {}", show_field(check, "name"), show_field(check, "meaning"));
            }
        } else {
            for violation in violations {
                let [invariant, subject, detail] =
                    ["invariant", "subject", "detail"].map(|name| show_field(violation, name));
                output::print_escaped(&format!("VIOLATION  {invariant}: {subject}: {detail}"));
            }
        }
        Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
