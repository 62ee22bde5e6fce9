//! `dispatchq dead list`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::DeadFilterArgs;
use crate::cli::{
    output::{self, quote_word, shorten_text},
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time_ms},
    },
};
use desk::dead_letters::walk::DeadListPlace;

/// Maximum characters of an error in the table.
const ERROR_WIDTH: usize = 120;
const HEADINGS: [&str; 6] = ["JOB", "QUEUE", "DIED", "FAILED", "LOST", "ERROR"];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dispatchq dead list\n  \
    dispatchq dead list --queue notify-queue --error \"status 503\" --older-than 1h")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    filter: DeadFilterArgs,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Cursor from the previous page
    #[arg(long)]
    cursor: Option<DeadListPlace>,
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let mut query = self.filter.to_query();
        query.extend(self.cursor.as_ref().map(|place| ("cursor", place.to_string())));
        let names = PageNames::of("jobs");
        let ListedItems { items, page, .. } =
            api.list(&["admin", "dead"], &query, names, usize::from(self.limit)).await?;
        let next = page[names.next].as_str();
        if self.json {
            output::print_json(&json!({ "jobs": items, "next": next }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows = items.iter().map(|dead: &Value| {
            [
                show_field(dead, "id"),
                show_field(dead, "queue"),
                show_time_ms(dead, "died_ms"),
                show_field(dead, "failed"),
                show_field(dead, "lost"),
                shorten_text(&show_field(dead, "error"), ERROR_WIDTH),
            ]
        });
        output::print_rows(&HEADINGS, rows, "No dead jobs.");
        if let Some(next_page) = next {
            output::print_text(&output::join_escaped(&[format!("\nMore: {}", self.next_command(next_page))]));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the command that shows the next page.
    fn next_command(&self, next: &str) -> String {
        let mut words = vec!["dispatchq dead list".to_owned()];
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name} {}", quote_word(&value))));
        };
        option("queue", self.filter.queue.map(str::to_owned));
        option("error", self.filter.error.clone());
        option("older-than", self.filter.older_than.map(|d| humantime::format_duration(d).to_string()));
        option("limit", Some(self.limit.to_string()));
        option("cursor", Some(next.to_owned()));
        words.join(" ")
    }
}
