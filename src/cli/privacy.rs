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
/// Error code of an erasure that would take orders that are in use.
const STILL_IN_USE: &str = "STILL_IN_USE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Erase what is known about a person; it cannot be undone
    #[command(after_help = "Examples:\n  dispatchq privacy erase --customer C-7 --reason \"request 12\" --dry-run\n  \
                            dispatchq privacy erase --driver D-1 --reason \"left the fleet\" --yes")]
    Erase(EraseArgs),
    /// Who was erased, to be kept apart from the backups (--json)
    List {
        #[arg(long)]
        json: bool,
    },
    /// Repeat the erasures on a restored backup
    #[command(after_help = "Example:\n  dispatchq privacy list --json > erasures.json    (daily, kept apart)\n  \
                            dispatchq privacy replay erasures.json --yes     (after a restore)")]
    Replay {
        /// What `privacy list --json` printed [default: the table of this database]
        file: Option<PathBuf>,
        /// Only say what would be erased
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("subject").required(true).args(["customer", "driver", "order"]))]
pub(super) struct EraseArgs {
    /// All orders of this customer. Any id that an order has is accepted
    #[arg(long, value_name = "ID")]
    customer: Option<String>,
    /// This driver: the row, the keys, and the id in the history
    #[arg(long, value_name = "ID")]
    driver: Option<String>,
    /// This order
    #[arg(long, value_name = "ID")]
    order: Option<OrderId>,
    /// Why; kept with who did it
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: String,
    /// Only say what would be erased
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
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
                output::print_rows(&["AT", "WHAT", "ID", "ORDERS", "BY", "REASON"], rows, "No one was erased.");
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
                output::print_escaped(&format!("Of {what} {orders} orders would be erased."));
                print_in_use(list_items(&preview["known"], "in_use"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        ask_to_confirm(self.yes, &format!("erase what is known of {what}, {orders} orders, for good"))?;
        let erased = match api.post(&PATH, &request(false)).await {
            Err(error) if error.is_refusal(STILL_IN_USE) => {
                print_still_in_use(&error, list_items(&preview["known"], "in_use"));
                return Ok(ExitCode::FAILURE);
            }
            erased => erased?,
        };
        if self.json {
            output::print_json(&json!({ "erased": erased["erased"] }))?;
        } else {
            let orders = show_field(&erased, "erased");
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
        ask_to_confirm(yes, &format!("carry out {} erasures again", erasures.len()))?;
    }
    let (would, mut left) = (if dry_run { "would be" } else { "are" }, 0);
    for erasure in &erasures {
        let what = format!("{} {}", show_field(erasure, "subject"), show_field(erasure, "subject_id"));
        let body = json!({ "erasure": erasure, "dry_run": dry_run });
        match api.post(&[&PATH[..], &["repeat"]].concat(), &body).await {
            Err(error) if error.is_refusal(STILL_IN_USE) => {
                left += 1;
                print_still_in_use(&error, &[]);
            }
            repeated => {
                let orders = show_field(&repeated?, "orders");
                output::print_escaped(&format!("{what}: {orders} orders {would} erased."));
            }
        }
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads what `privacy list --json` printed.
fn read_erasures(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let read: Result<Vec<ErasureRecord>, _> = strict_json::read_unique(input::skip_text_mark(&text).as_bytes())
        .map_err(|error| anyhow!(plain_error(&error.to_string())));
    let erasures = read.with_context(|| format!("{}: not what privacy list --json prints", file.display()))?;
    Ok(erasures.iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
}

/// Says which orders stand in the way.
fn print_in_use(orders: &[Value]) {
    let orders: Vec<_> = orders.iter().filter_map(Value::as_str).collect();
    if let Some(first) = orders.first() {
        output::print_note(&format!("In use, so nothing is erased: {}", orders.join(", ")));
        print_cure(first);
    }
}

/// Prints why nothing was erased. `known`: the orders in use when that was looked up.
fn print_still_in_use(error: &CallError, known: &[Value]) {
    output::print_note(&error.to_string());
    print_cure(known.first().and_then(Value::as_str).unwrap_or("ORDER"));
}

fn print_cure(order: &str) {
    output::print_note(&format!(
        "End these orders and acknowledge their alerts first: dispatchq order explain {order}"
    ));
}

/// Asks a person; without one, `--yes` must have been said.
fn ask_to_confirm(yes: bool, what: &str) -> anyhow::Result<()> {
    ensure!(ask_person(yes, &format!("{what}?"))?, "nothing was erased");
    Ok(())
}
