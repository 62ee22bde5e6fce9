//! `dispatchq privacy erase|list|replay`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, anyhow, ensure};
use clap::ArgGroup;
use jobs::OrderId;
use model::{
    input::{self, parse_reason},
    json_words::plain_error,
};
use serde_json::json;

use super::{
    consent::ask_person,
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use app::App;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::{db, strict_json};

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
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::Erase(erase) => return erase.run(&app).await,
            Self::List { json: true } => output::print_json(&privacy::list_erasures(&app.core).await?)?,
            Self::List { json: false } => {
                let rows = privacy::list_erasures(&app.core).await?.into_iter().map(|e| {
                    [
                        format_time(e.erased_at),
                        e.subject.as_str().to_owned(),
                        e.subject_id,
                        or_dash(e.orders),
                        e.actor,
                        e.reason,
                    ]
                });
                output::print_rows(&["AT", "WHAT", "ID", "ORDERS", "BY", "REASON"], rows, "No one was erased.");
            }
            Self::Replay { file, dry_run, yes } => return replay_erasures(&app, file, dry_run, yes).await,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl EraseArgs {
    async fn run(self, app: &App) -> anyhow::Result<ExitCode> {
        let (subject, id) = match (&self.customer, &self.driver, &self.order) {
            (Some(customer), ..) => (ErasureSubject::Customer, customer.as_str()),
            (_, Some(driver), _) => (ErasureSubject::Driver, driver.as_str()),
            (.., order) => (ErasureSubject::Order, order.as_ref().map_or("", OrderId::as_str)),
        };
        let known = privacy::find_personal_data(&app.core, subject, id).await?;
        let what = format!("{} {id}", subject.as_str());
        ensure!(!known.is_nothing(), "nothing is known of {what}");
        if self.dry_run {
            if self.json {
                output::print_json(&json!({ "dry_run": true, "known": known }))?;
            } else {
                output::print_escaped(&format!("Of {what} {} orders would be erased.", known.orders.len()));
                print_in_use(&known.in_use);
            }
            return Ok(ExitCode::SUCCESS);
        }
        ask_to_confirm(self.yes, &format!("erase what is known of {what}, {} orders, for good", known.orders.len()))?;
        let erasure =
            ErasureRecord::new(subject, id, &self.reason, &cli_operator(), db::database_now(&app.core.db).await?);
        match privacy::erase_subject(&app.core, &erasure).await? {
            ErasureOutcome::Done { orders } if self.json => output::print_json(&json!({ "erased": orders }))?,
            ErasureOutcome::Done { orders } => {
                output::print_escaped(&format!("What was known of {what} is erased: {orders} orders."));
            }
            ErasureOutcome::InUse(orders) => {
                print_in_use(&orders);
                return Ok(ExitCode::FAILURE);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn replay_erasures(app: &App, file: Option<PathBuf>, dry_run: bool, yes: bool) -> anyhow::Result<ExitCode> {
    let erasures: Vec<ErasureRecord> = match file {
        Some(file) => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let read = strict_json::read_unique(input::skip_text_mark(&text).as_bytes())
                .map_err(|error| anyhow!(plain_error(&error.to_string())));
            read.with_context(|| format!("{}: not what privacy list --json prints", file.display()))?
        }
        None => privacy::list_erasures(&app.core).await?,
    };
    if !dry_run {
        ask_to_confirm(yes, &format!("carry out {} erasures again", erasures.len()))?;
    }
    let mut left = 0;
    for erasure in &erasures {
        let what = format!("{} {}", erasure.subject.as_str(), erasure.subject_id);
        if dry_run {
            let known = privacy::find_data_to_erase(&app.core, erasure).await?;
            output::print_escaped(&format!("{what}: {} orders would be erased.", known.orders.len()));
            continue;
        }
        match privacy::erase_subject(&app.core, erasure).await? {
            ErasureOutcome::Done { orders } => output::print_escaped(&format!("{what}: {orders} orders are erased.")),
            ErasureOutcome::InUse(orders) => {
                left += 1;
                print_in_use(&orders);
            }
        }
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says which orders stand in the way.
fn print_in_use(orders: &[String]) {
    if orders.is_empty() {
        return;
    }
    output::print_note(&format!("In use, so nothing is erased: {}", orders.join(", ")));
    output::print_note(&format!(
        "End these orders and acknowledge their alerts first: dispatchq order explain {}",
        orders[0]
    ));
}

/// Asks a person; without one, `--yes` must have been said.
fn ask_to_confirm(yes: bool, what: &str) -> anyhow::Result<()> {
    ensure!(ask_person(yes, &format!("{what}?"))?, "nothing was erased");
    Ok(())
}
