//! `dispatchq binding list|show|create|start|pause|resume|stop|delete|otp|transactions|explain`.

mod bulk;
mod create;
mod explain;
mod otp;
mod transactions;

use std::process::ExitCode;

use model::binding::{AccountId, BindingId, BindingState, BindingVerb, ServerId};
use serde_json::Value;

use super::{
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
    },
    words::parse_word,
};

const HEADINGS: [&str; 9] =
    ["BINDING", "SERVER", "ACCOUNT", "STATE", "PHASE", "CYCLES", "NEXT", "FAILURES", "UNRESOLVED"];
const NO_BINDINGS: &str = "No such bindings. Create one: dispatchq binding create --help";

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Command {
    /// List bindings and their state
    List(ListArgs),
    /// Show a binding
    Show {
        id: BindingId,
        #[arg(long)]
        json: bool,
    },
    /// Create a binding in state STOPPED
    #[command(after_help = "Example:\n  \
        dispatchq binding create B-7 --server S1 --account A-1 --set max_failures=5 --set 'interval_ms=[500,1000]'")]
    Create(create::CreateArgs),
    /// Start bindings: cycles run one after another
    #[command(after_help = "Examples:\n  dispatchq binding start B-7 B-8\n  \
        dispatchq binding start --server S1 --state STOPPED --dry-run")]
    Start(bulk::BulkArgs),
    /// Pause bindings: no cycle starts until they are resumed, and the open transaction continues
    #[command(after_help = "Example:\n  dispatchq binding pause --server S1 --yes")]
    Pause(bulk::BulkArgs),
    /// Resume paused bindings
    Resume(bulk::BulkArgs),
    /// Stop bindings after their open call
    #[command(after_help = "Example:\n  dispatchq binding stop --all --dry-run")]
    Stop(bulk::BulkArgs),
    /// Delete a binding that is STOPPED and IDLE; retention removes its transactions later
    Delete { id: BindingId },
    /// Submit an OTP, as one line on standard input, so that process lists do not show it
    #[command(after_help = "Example:\n  dispatchq binding otp B-7 --trx B-7.42 < otp.txt")]
    Otp(otp::OtpArgs),
    /// List transactions of a binding, newest first; --cycle shows one transaction and its calls
    #[command(after_help = "Examples:\n  dispatchq binding transactions B-7 --status GAGAL\n  \
        dispatchq binding transactions B-7 --cycle 42")]
    Transactions(transactions::TransactionsArgs),
    /// Explain a binding: why it is in its state, what is due next, its claim and slots, what to do
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
    /// List bindings after this id
    #[arg(long, value_name = "ID")]
    after: Option<BindingId>,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[arg(long)]
    json: bool,
}

/// Filter of bindings.
#[derive(Debug, Clone, Default, clap::Args)]
struct FilterArgs {
    /// Only bindings on this server
    #[arg(long, value_name = "ID")]
    server: Option<ServerId>,
    /// Only bindings of this account
    #[arg(long, value_name = "ID")]
    account: Option<AccountId>,
    /// Only bindings in this state: STOPPED, RUNNING, PAUSED or STOPPING
    #[arg(long, value_parser = parse_state)]
    state: Option<BindingState>,
}

impl Command {
    pub(in crate::cli) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(args) => print_listing(api, args).await?,
            Self::Show { id, json } => {
                print_binding(&api.get(&["bindings", id.as_str()], &[]).await?, json)?;
            }
            Self::Start(args) => return args.run(api, BindingVerb::Start).await,
            Self::Pause(args) => return args.run(api, BindingVerb::Pause).await,
            Self::Resume(args) => return args.run(api, BindingVerb::Resume).await,
            Self::Stop(args) => return args.run(api, BindingVerb::Stop).await,
            Self::Create(args) => args.run(api).await?,
            Self::Delete { id } => {
                let deleted = api.delete(&["bindings", id.as_str()], &[]).await?;
                print_deleted(&id, deleted["changed"] == true);
            }
            Self::Otp(args) => args.run(api).await?,
            Self::Transactions(args) => args.run(api).await?,
            Self::Explain { id, json } => {
                explain::print_explanation(&api.get(&["bindings", id.as_str(), "explain"], &[]).await?, json)?;
            }
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

async fn print_listing(api: &ApiClient, args: ListArgs) -> anyhow::Result<()> {
    let FilterArgs { server, account, state } = args.filter;
    let mut query = Vec::new();
    query.extend(server.map(|server| ("server_id", server.to_string())));
    query.extend(account.map(|account| ("account_id", account.to_string())));
    query.extend(state.map(|state| ("state", state.to_string())));
    query.extend(args.after.map(|after| ("cursor", after.to_string())));
    let names = PageNames::of("bindings");
    let most = usize::try_from(args.limit)?;
    let ListedItems { items, unreadable, page } = api.list(&["bindings"], &query, names, most).await?;
    unreadable.iter().for_each(|row| tell_unreadable(&show_field(row, "id"), &show_field(row, "error")));
    if args.json {
        return output::print_json(&items);
    }
    output::print_rows(&HEADINGS, items.iter().map(format_binding), NO_BINDINGS);
    if let Some(last) = page[names.next].as_str() {
        output::print_note(&format!("More of them: --after {last}"));
    }
    Ok(())
}

fn format_binding(b: &Value) -> [String; 9] {
    let state = match b["reason"].as_str() {
        Some(why) => format!("{} ({why})", show_field(b, "state")),
        None => show_field(b, "state"),
    };
    [
        show_field(b, "id"),
        show_field(b, "server_id"),
        show_field(b, "account_id"),
        state,
        show_field(b, "phase"),
        show_field(b, "cycle"),
        show_time(b, "next_at"),
        show_field(b, "failures"),
        show_field(b, "unresolved"),
    ]
}

/// Prints a note about a row that another version wrote.
fn tell_unreadable(id: &str, error: &str) {
    output::print_note(&format!("{id} cannot be read by this version: {error}"));
}

/// Prints a binding in the format of the API.
fn print_binding(b: &Value, as_json: bool) -> anyhow::Result<()> {
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
