//! `dispatchq binding list|show|create|start|pause|resume|stop|delete|otp|transactions|explain`.

mod bulk;
mod create;
mod explain;
mod otp;
mod remote;
mod transactions;

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use model::binding::{AccountId, Binding, BindingCommand, BindingId, BindingState, BindingVerb, ServerId};
use serde_json::Value;

use super::{
    order::cli_operator,
    output::{self, format_time, or_dash},
    remote::fields::{show_field, show_time},
    words::parse_word,
};
use app::App;
use bindings::{
    error::BindingError,
    list::{self, BindingFilter},
    registry::RedisWorkerRegistry,
};

const HEADINGS: [&str; 9] =
    ["BINDING", "SERVER", "ACCOUNT", "STATE", "PHASE", "CYCLES", "NEXT", "FAILURES", "UNRESOLVED"];
const NO_BINDINGS: &str = "No such bindings. Create one: dispatchq binding create --help";

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Command {
    /// Bindings by id, and how each stands
    List(ListArgs),
    /// One binding as it stands
    Show {
        id: BindingId,
        #[arg(long)]
        json: bool,
    },
    /// Create a binding; it is STOPPED
    #[command(after_help = "Example:\n  \
        dispatchq binding create B-7 --server S1 --account A-1 --set max_failures=5 --set 'interval_ms=[500,1000]'")]
    Create(create::CreateArgs),
    /// Have cycle follow cycle
    #[command(after_help = "Examples:\n  dispatchq binding start B-7 B-8\n  \
        dispatchq binding start --server S1 --state STOPPED --dry-run")]
    Start(bulk::BulkArgs),
    /// Let no cycle begin until it is resumed; the open transaction goes on
    #[command(after_help = "Example:\n  dispatchq binding pause --server S1 --yes")]
    Pause(bulk::BulkArgs),
    /// Undo `pause`
    Resume(bulk::BulkArgs),
    /// Stop; an open call ends first
    #[command(after_help = "Example:\n  dispatchq binding stop --all --dry-run")]
    Stop(bulk::BulkArgs),
    /// Delete a binding that is STOPPED and IDLE; its transactions stay until retention removes them
    Delete { id: BindingId },
    /// Hand an OTP in: one line on standard input, so that no list of processes shows it
    #[command(after_help = "Example:\n  dispatchq binding otp B-7 --trx B-7.42 < otp.txt")]
    Otp(otp::OtpArgs),
    /// What was run on a binding, newest first; with --cycle one transaction and its calls
    #[command(after_help = "Examples:\n  dispatchq binding transactions B-7 --status GAGAL\n  \
        dispatchq binding transactions B-7 --cycle 42")]
    Transactions(transactions::TransactionsArgs),
    /// Why a binding is as it is, what is due next, who holds its claim and slots, what to do
    Explain {
        id: BindingId,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Begin after this id
    #[arg(long, value_name = "ID")]
    after: Option<BindingId>,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[arg(long)]
    json: bool,
}

/// Which bindings.
#[derive(Debug, Clone, Default, clap::Args)]
struct FilterArgs {
    /// Only on this server
    #[arg(long, value_name = "ID")]
    server: Option<ServerId>,
    /// Only of this account
    #[arg(long, value_name = "ID")]
    account: Option<AccountId>,
    /// Only in this state: STOPPED, RUNNING, PAUSED or STOPPING
    #[arg(long, value_parser = parse_state)]
    state: Option<BindingState>,
}

impl From<FilterArgs> for BindingFilter {
    fn from(args: FilterArgs) -> Self {
        Self { server_id: args.server, account_id: args.account, state: args.state }
    }
}

impl Command {
    pub(in crate::cli) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(args) => print_list(&app, args).await?,
            Self::Show { id, json } => print_binding(&load_binding(&app, &id).await?, json)?,
            Self::Create(args) => args.run(&app).await?,
            Self::Start(args) => return args.run(&app, BindingVerb::Start).await,
            Self::Pause(args) => return args.run(&app, BindingVerb::Pause).await,
            Self::Resume(args) => return args.run(&app, BindingVerb::Resume).await,
            Self::Stop(args) => return args.run(&app, BindingVerb::Stop).await,
            Self::Delete { id } => {
                let registry = RedisWorkerRegistry::new(app.bindings.clone(), cli_operator());
                let deleted = registry.command(&id, &BindingCommand::Delete).await;
                print_deleted(&id, deleted.map_err(with_cure)?.has_changed());
            }
            Self::Otp(args) => args.run(&app).await?,
            Self::Transactions(args) => args.run(&app).await?,
            Self::Explain { id, json } => explain::run(&app, &id, json).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_deleted(id: &BindingId, has_changed: bool) {
    println!("{id} is deleted{}.", if has_changed { "" } else { " already" });
}

fn parse_state(text: &str) -> Result<BindingState, String> {
    parse_word(text, &BindingState::ALL)
}

/// The error with what to do about it.
pub(in crate::cli) fn with_cure(error: BindingError) -> anyhow::Error {
    match error {
        BindingError::NotFound(id) => anyhow!("no binding {id}; see: dispatchq binding list"),
        BindingError::NoServer(id) => {
            anyhow!("no server {id}; create it: dispatchq server set {id} --provider NAME --url URL")
        }
        BindingError::ServerDisabled(id) => {
            anyhow!("server {id} is disabled; enable it: dispatchq server set {id} --enabled true")
        }
        other => other.into(),
    }
}

async fn load_binding(app: &App, id: &BindingId) -> anyhow::Result<Binding> {
    let loaded = app.bindings.rows.load_binding(id).await?;
    let no_such = || format!("no binding {id}; see: dispatchq binding list");
    let binding = loaded.with_context(no_such)?.binding;
    anyhow::ensure!(binding.deleted_at.is_none(), "binding {id} was deleted");
    Ok(binding)
}

async fn print_list(app: &App, args: ListArgs) -> anyhow::Result<()> {
    let filter = BindingFilter::from(args.filter);
    let page =
        list::list_bindings(&app.core, &filter, args.after.as_ref().map(BindingId::as_str), i64::from(args.limit))
            .await?;
    page.unreadable.iter().for_each(|row| tell_unreadable(&row.id, &row.error));
    if args.json {
        return output::print_json(&page.rows);
    }
    let rows = page.rows.into_iter().map(|b| {
        let state = b.reason.map_or_else(|| b.state.to_string(), |why| format!("{} ({why})", b.state));
        [
            b.id.to_string(),
            b.server_id.to_string(),
            b.account_id.to_string(),
            state,
            b.phase.to_string(),
            b.cycle.to_string(),
            or_dash(b.next_at.map(format_time)),
            b.failures.to_string(),
            b.unresolved.to_string(),
        ]
    });
    output::print_rows(&HEADINGS, rows, NO_BINDINGS);
    if let Some(last) = page.next {
        output::print_note(&format!("More of them: --after {last}"));
    }
    Ok(())
}

/// Beside the list: a row that another version wrote.
fn tell_unreadable(id: &str, error: &str) {
    output::print_note(&format!("{id} cannot be read by this version: {error}"));
}

fn print_binding(b: &Binding, as_json: bool) -> anyhow::Result<()> {
    print_binding_view(&serde_json::to_value(b)?, as_json)
}

/// Prints a binding, as the API writes it.
fn print_binding_view(b: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::print_json(b);
    }
    let mut rows = vec![
        ("binding", show_field(b, "id")),
        ("server", show_field(b, "server_id")),
        ("account", show_field(b, "account_id")),
        ("state", show_field(b, "state")),
        ("reason", show_field(b, "reason")),
        ("phase", show_field(b, "phase")),
        ("cycles", show_field(b, "cycle")),
        ("transaction", show_field(b, "trx_id")),
        ("next", show_time(b, "next_at")),
        ("call until", show_time(b, "call_until")),
        ("OTP until", show_time(b, "otp_deadline")),
        ("failures", show_field(b, "failures")),
        ("unresolved", show_field(b, "unresolved")),
        ("created", show_time(b, "created_at")),
    ];
    let settings = b["config"].as_object().into_iter().flatten();
    rows.extend(settings.map(|(name, value)| (name.as_str(), value.to_string())));
    for (name, value) in rows {
        output::print_escaped(&format!("{name:<22} {value}"));
    }
    Ok(())
}
