//! `dispatchq outbox list|show|replay`. The command covers all outbox messages, not only alerts: events for producers
//! can die too.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use jobs::{BindingId, OrderId};
use serde_json::{Value, json};

use super::{
    consent::ConsentArgs,
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{list_items, show_field, show_time},
    },
};

/// Maximum number of messages that `--dry-run` prints.
const MOST_SHOWN: usize = 50;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List outbox messages, newest first
    List {
        #[arg(long)]
        state: Option<MessageStateArg>,
        #[command(flatten)]
        only: MessageFilterArgs,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// Show a message and its delivery log
    Show {
        id: i64,
        #[arg(long)]
        json: bool,
    },
    /// Send dead messages again with their previous ids
    #[command(after_help = "Examples:\n  dispatchq outbox replay 7 8\n  \
                            dispatchq outbox replay --channel slack --dry-run\n  \
                            dispatchq outbox replay --channel slack --reason \"Slack is back\" --yes")]
    Replay {
        /// Ids of the messages
        #[arg(required_unless_present_any = ["channel", "kind", "order", "binding", "all"])]
        ids: Vec<i64>,
        #[command(flatten)]
        only: MessageFilterArgs,
        /// All dead messages
        #[arg(long, conflicts_with_all = ["ids", "channel", "kind", "order", "binding"])]
        all: bool,
        /// Send at most this many, newest first [default: all]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: Option<u32>,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct MessageFilterArgs {
    /// Only messages for this channel
    #[arg(long)]
    channel: Option<String>,
    /// Only messages of this kind, for example MANUAL_REFUND_REQUIRED
    #[arg(long)]
    kind: Option<String>,
    /// Only messages about this order
    #[arg(long, value_name = "ID")]
    order: Option<OrderId>,
    /// Only messages about this binding
    #[arg(long, value_name = "ID", conflicts_with = "order")]
    binding: Option<BindingId>,
}

impl MessageFilterArgs {
    fn is_empty(&self) -> bool {
        self.channel.is_none() && self.kind.is_none() && self.order.is_none() && self.binding.is_none()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum MessageStateArg {
    /// Not delivered yet; retries may take hours
    Pending,
    Delivered,
    /// Expired before delivery
    Expired,
    /// Dead: no retries left
    Dead,
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { state, only, limit, json } => {
                let found = list_messages(api, state, only, usize::try_from(limit)?).await?;
                if json { output::print_json(&found)? } else { print_messages(&found) }
            }
            Self::Show { id, json } => {
                let shown = api.get(&["admin", "outbox", &id.to_string()], &[]).await?;
                if json { output::print_json(&shown)? } else { print_message(&shown) }
            }
            Self::Replay { ids, only, all: _, limit, consent } => {
                let most = limit.map_or(Ok(usize::MAX), usize::try_from)?;
                replay_messages(api, ids, only, most, &consent).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list_messages(
    api: &ApiClient,
    state: Option<MessageStateArg>,
    only: MessageFilterArgs,
    most: usize,
) -> anyhow::Result<Vec<Value>> {
    let MessageFilterArgs { channel, kind, order, binding } = only;
    let state = state.as_ref().and_then(ValueEnum::to_possible_value);
    let mut query = Vec::new();
    query.extend(state.map(|state| ("state", state.get_name().to_owned())));
    query.extend(channel.map(|channel| ("channel", channel)));
    query.extend(kind.map(|kind| ("kind", kind)));
    query.extend(order.map(|order| ("order_id", order.to_string())));
    query.extend(binding.map(|binding| ("binding_id", binding.to_string())));
    let ListedItems { items, .. } = api.list(&["admin", "outbox"], &query, PageNames::of("messages"), most).await?;
    Ok(items)
}

async fn replay_messages(
    api: &ApiClient,
    ids: Vec<i64>,
    only: MessageFilterArgs,
    most: usize,
    consent: &ConsentArgs,
) -> anyhow::Result<()> {
    let reason = if consent.dry_run { None } else { api.reason_of_change(consent.reason.clone())? };
    let named = !ids.is_empty();
    let selected: Vec<String> = if named && only.is_empty() && !consent.dry_run {
        ids.iter().take(most).map(ToString::to_string).collect()
    } else {
        let mut dead = list_messages(api, Some(MessageStateArg::Dead), only, most).await?;
        dead.retain(|message| !named || message["id"].as_i64().is_some_and(|id| ids.contains(&id)));
        if consent.dry_run {
            print_messages(&dead[..dead.len().min(MOST_SHOWN)]);
            println!("{} messages would be sent again; the newest {MOST_SHOWN} at most are shown.", dead.len());
            return Ok(());
        }
        dead.iter().map(|message| show_field(message, "id")).collect()
    };
    ensure!(!selected.is_empty(), "no such message is dead; see: dispatchq outbox list --state dead");
    if !named && !consent.ask_consent(&format!("send {} messages again?", selected.len()))? {
        bail!("no message was sent again");
    }
    let mut replayed = 0;
    for id in &selected {
        match api.post(&["admin", "outbox", id, "replay"], &json!({ "reason": reason })).await {
            Ok(_) => replayed += 1,
            // The message was delivered after it was listed, or its row no longer exists.
            Err(error) if error.is_refusal("MESSAGE_NOT_DEAD") || error.is_refusal("MESSAGE_NOT_FOUND") => {}
            failed => {
                let total = selected.len();
                failed.with_context(|| {
                    format!("{replayed} of {total} messages were sent again before the error; run the command again for the rest")
                })?;
            }
        }
    }
    ensure!(replayed > 0, "no such message is dead; see: dispatchq outbox list --state dead");
    println!("{replayed} messages are sent again.");
    Ok(())
}

const HEADINGS: [&str; 9] = ["ID", "ABOUT", "KIND", "CHANNEL", "STATE", "TRIES", "CREATED", "DELIVERED", "ERROR"];

fn print_messages(messages: &[Value]) {
    let rows = messages.iter().map(|m| {
        let about = match m["binding_id"].as_str() {
            Some(binding) => format!("binding {binding}"),
            None => show_field(m, "order_id"),
        };
        [
            show_field(m, "id"),
            about,
            show_field(m, "kind"),
            show_field(m, "channel"),
            show_field(m, "state"),
            show_field(m, "attempts"),
            show_time(m, "created_at"),
            show_time(m, "delivered_at"),
            show_field(m, "last_error"),
        ]
    });
    output::print_rows(&HEADINGS, rows, "No such messages.");
}

fn print_message(shown: &Value) {
    let message = &shown["message"];
    output::print_escaped(&format!("{:<12} {}", "message", show_field(message, "id")));
    output::print_escaped(&format!("{:<12} {}", "receiver's id", show_field(message, "message_id")));
    print_messages(std::slice::from_ref(message));
    println!();
    let log = list_items(shown, "log").iter();
    let lines =
        log.map(|e| [show_time(e, "at"), show_field(e, "what"), show_field(e, "actor"), show_field(e, "error")]);
    output::print_rows(&["AT", "WHAT", "ACTOR", "ERROR"], lines, "Never tried.");
}
