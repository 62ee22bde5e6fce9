//! `dispatchq check history` and `dispatchq check status`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time},
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
    /// Show until which event the history is proven; exit 1 if a violation is open
    Status {
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::History { max_calls, json } => check_history(api, max_calls, json).await,
            Self::Status { json } => show_status(api, json).await,
        }
    }
}

async fn check_history(api: &ApiClient, max_calls: Option<u32>, json: bool) -> anyhow::Result<ExitCode> {
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

async fn show_status(api: &ApiClient, json: bool) -> anyhow::Result<ExitCode> {
    let status = api.get(&["admin", "proof"], &[]).await?;
    let open = status["open_violations"].as_i64().unwrap_or_default();
    if json {
        output::print_json(&status)?;
    } else {
        let (event, lag) =
            (group_digits(&show_field(&status, "event")), status["lag_seconds"].as_f64().unwrap_or_default());
        println!("Proven until event {event}, {lag:.0} s ago. Open violations: {open}.");
        if status["is_running"] == false {
            println!("The proof does not run: [schedules] has no proof.");
        }
        for violation in list_items(&status, "violations") {
            output::print_escaped(&describe_violation(violation));
        }
    }
    Ok(if open == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the lines of one violation: what was found, at which event, and what was expected.
fn describe_violation(violation: &Value) -> String {
    let state = if violation["gone_at"].is_null() { "VIOLATION" } else { "GONE" };
    let [invariant, subject, detail, event, number, expected] =
        ["invariant", "subject", "detail", "event", "event_seq", "expected"].map(|name| show_field(violation, name));
    let found = show_time(violation, "found_at");
    format!("{state}  {invariant}: {subject}: {detail} (event {number} {event}, found {found}; expected: {expected})")
}

/// Separates thousands of a number: `1,204,331`.
fn group_digits(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
