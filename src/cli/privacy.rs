//! `dispatchq privacy erase|list|replay`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, anyhow, ensure};
use clap::ArgGroup;
use jobs::OrderId;
use model::{
    input::{self, parse_reason},
    json_words::plain_error,
};
use serde_json::{Value, json};

use super::{
    consent::ask_person,
    output,
    remote::{
        ApiClient, CallError,
        fields::{list_items, show_field, show_time},
    },
};
use desk::privacy::ErasureRecord;
use foundation::strict_json;

const PATH: [&str; 2] = ["admin", "erasures"];
/// Error code for an erasure that concerns orders in use.
const STILL_IN_USE: &str = "STILL_IN_USE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Erase the data of a person; this cannot be undone
    #[command(after_help = "Examples:\n  dispatchq privacy erase --customer C-7 --reason \"request 12\" --dry-run\n  \
                            dispatchq privacy erase --driver D-1 --reason \"left the fleet\" --yes")]
    Erase(EraseArgs),
    /// List erasures; store the output of --json separately from the backups
    List {
        #[arg(long)]
        json: bool,
    },
    /// Repeat erasures after a restore
    #[command(
        after_help = "Example:\n  dispatchq privacy list --json > erasures.json    (daily, stored elsewhere)\n  \
                            dispatchq privacy replay erasures.json --yes     (after a restore)"
    )]
    Replay {
        /// Output of `privacy list --json` [default: the table of this database]
        file: Option<PathBuf>,
        /// Print what would be erased, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("subject").required(true).args(["customer", "driver", "order"]))]
pub(super) struct EraseArgs {
    /// All orders of this customer; any customer id of an order is accepted
    #[arg(long, value_name = "ID")]
    customer: Option<String>,
    /// Row, keys and history entries of this driver
    #[arg(long, value_name = "ID")]
    driver: Option<String>,
    /// Id of one order
    #[arg(long, value_name = "ID")]
    order: Option<OrderId>,
    /// Reason, kept in the record with the actor
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: String,
    /// Print what would be erased, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::Erase(erase) => erase.run(api).await,
            Self::List { json } => {
                let listed = api.get(&PATH, &[]).await?;
                if json {
                    output::print_json(&listed["erasures"])?;
                    return Ok(ExitCode::SUCCESS);
                }
                let rows = list_items(&listed, "erasures").iter().map(|e| {
                    let [subject, id, orders, actor, reason] =
                        ["subject", "subject_id", "orders", "actor", "reason"].map(|name| show_field(e, name));
                    [show_time(e, "erased_at"), subject, id, orders, actor, reason]
                });
                output::print_rows(&["AT", "WHAT", "ID", "ORDERS", "BY", "REASON"], rows, "No erasures.");
                Ok(ExitCode::SUCCESS)
            }
            Self::Replay { file, dry_run, yes } => repeat_erasures(api, file, dry_run, yes).await,
        }
    }
}

impl EraseArgs {
    async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let (subject, id) = match (&self.customer, &self.driver, &self.order) {
            (Some(customer), ..) => ("customer", customer.as_str()),
            (_, Some(driver), _) => ("driver", driver.as_str()),
            (.., order) => ("order", order.as_ref().map_or("", OrderId::as_str)),
        };
        let request =
            |dry_run: bool| json!({ "subject": subject, "id": id, "reason": self.reason, "dry_run": dry_run });
        let preview = api.post(&PATH, &request(true)).await?;
        let (what, orders) = (format!("{subject} {id}"), list_items(&preview["known"], "orders").len());
        if self.dry_run {
            if self.json {
                output::print_json(&json!({ "dry_run": true, "known": preview["known"] }))?;
            } else {
                output::print_escaped(&format!("{orders} orders of {what} would be erased."));
                print_in_use(list_items(&preview["known"], "in_use"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        ask_to_confirm(self.yes, &format!("permanently erase what is known of {what}, {orders} orders"))?;
        let erased = match api.post_slices(&PATH, request(false), describe_progress("erased")).await {
            Err(error) if error.is_refusal(STILL_IN_USE) => {
                print_still_in_use(&error);
                return Ok(ExitCode::FAILURE);
            }
            erased => erased?,
        };
        let erased = erased.last().unwrap_or(&Value::Null);
        if self.json {
            output::print_json(&json!({ "erased": erased["erased"] }))?;
        } else {
            let orders = show_field(erased, "erased");
            output::print_escaped(&format!("What was known of {what} is erased: {orders} orders."));
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn repeat_erasures(api: &ApiClient, file: Option<PathBuf>, dry_run: bool, yes: bool) -> anyhow::Result<ExitCode> {
    let erasures = match file {
        Some(file) => read_erasures(&file)?,
        None => api.get(&PATH, &[]).await?["erasures"].as_array().cloned().unwrap_or_default(),
    };
    if !dry_run {
        ask_to_confirm(yes, &format!("repeat {} erasures", erasures.len()))?;
    }
    let (would, mut left) = (if dry_run { "would be" } else { "are" }, 0);
    for erasure in &erasures {
        let what = format!("{} {}", show_field(erasure, "subject"), show_field(erasure, "subject_id"));
        let body = json!({ "erasure": erasure, "dry_run": dry_run });
        let path = [&PATH[..], &["repeat"]].concat();
        match api.post_slices(&path, body, describe_progress("orders")).await {
            Err(error) if error.is_refusal(STILL_IN_USE) => {
                left += 1;
                print_still_in_use(&error);
            }
            repeated => {
                let orders = show_field(repeated?.last().unwrap_or(&Value::Null), "orders");
                output::print_escaped(&format!("{what}: {orders} orders {would} erased."));
            }
        }
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a file with the output of `privacy list --json`.
fn read_erasures(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let read: Result<Vec<ErasureRecord>, _> = strict_json::read_unique(input::skip_text_mark(&text).as_bytes())
        .map_err(|error| anyhow!(plain_error(&error.to_string())));
    let erasures = read.with_context(|| format!("{} is not the output of privacy list --json", file.display()))?;
    Ok(erasures.iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
}

/// Returns a progress note of an erasure, whose answers count the orders so far in this member.
fn describe_progress(count: &'static str) -> impl Fn(&[Value]) -> String {
    move |answers| {
        let orders = answers.last().map_or_else(|| "0".to_owned(), |answer| show_field(answer, count));
        format!("{orders} orders erased so far; continuing")
    }
}

/// Prints which orders in use prevent the erasure.
fn print_in_use(orders: &[Value]) {
    let orders: Vec<_> = orders.iter().filter_map(Value::as_str).collect();
    if let Some(first) = orders.first() {
        output::print_note(&format!("Nothing is erased while these orders are in use: {}", orders.join(", ")));
        print_cure(first);
    }
}

/// Prints why nothing was erased, and the command that explains the first of the orders in use.
fn print_still_in_use(error: &CallError) {
    output::print_note(&error.to_string());
    let orders = match error {
        CallError::Refused { body, .. } => list_items(body, "in_use"),
        CallError::Unanswered(_) => &[],
    };
    print_cure(orders.first().and_then(Value::as_str).unwrap_or("ID"));
}

fn print_cure(order: &str) {
    output::print_note(&format!(
        "End these orders and acknowledge their alerts first: dispatchq order explain {order}"
    ));
}

/// Asks for confirmation, unless `yes` is set.
fn ask_to_confirm(yes: bool, what: &str) -> anyhow::Result<()> {
    ensure!(ask_person(yes, &format!("{what}?"))?, "nothing was erased");
    Ok(())
}
