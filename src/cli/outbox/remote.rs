//! `dispatchq outbox` over the API.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::{Command, HEADINGS, MessageFilterArgs, MessageStateArg};
use crate::cli::{
    consent::ConsentArgs,
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{list_items, show_field, show_time},
        given_reason,
    },
};

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
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
    ensure!(binding.is_none(), "--binding needs the database: the API lists messages of a binding among all others");
    let state = state.as_ref().and_then(ValueEnum::to_possible_value);
    let mut query = Vec::new();
    query.extend(state.map(|state| ("state", state.get_name().to_owned())));
    query.extend(channel.map(|channel| ("channel", channel)));
    query.extend(kind.map(|kind| ("kind", kind)));
    query.extend(order.map(|order| ("order_id", order.to_string())));
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
    let named = !ids.is_empty();
    let selected: Vec<String> = if named && !consent.dry_run {
        ids.iter().take(most).map(ToString::to_string).collect()
    } else {
        let mut dead = list_messages(api, Some(MessageStateArg::Dead), only, most).await?;
        dead.retain(|message| !named || message["id"].as_i64().is_some_and(|id| ids.contains(&id)));
        if consent.dry_run {
            print_messages(&dead);
            println!("{} messages would be sent again.", dead.len());
            return Ok(());
        }
        dead.iter().map(|message| show_field(message, "id")).collect()
    };
    ensure!(!selected.is_empty(), "no such message is dead; see: dispatchq outbox list --state dead");
    if !named && !consent.ask_consent(&format!("send {} messages again?", selected.len()))? {
        bail!("no message was sent again");
    }
    let reason = given_reason(consent.reason.clone())?;
    let mut replayed = 0;
    for id in &selected {
        match api.post(&["admin", "outbox", id, "replay"], &json!({ "reason": reason })).await {
            Ok(_) => replayed += 1,
            // It was delivered meanwhile, or died again and is another one's to judge.
            Err(error) if error.is_refusal("MESSAGE_NOT_DEAD") || error.is_refusal("MESSAGE_NOT_FOUND") => {}
            failed => {
                let total = selected.len();
                failed.with_context(|| {
                    format!("{replayed} of {total} messages are sent again; what is done stays done: run it again")
                })?;
            }
        }
    }
    ensure!(replayed > 0, "no such message is dead; see: dispatchq outbox list --state dead");
    println!("{replayed} messages are sent again.");
    Ok(())
}

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
