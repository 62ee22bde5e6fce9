//! `dispatchq outbox list|show|replay`. Of the outbox and not of alerts: any message may die, events for the producer too.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use jobs::OrderId;

use super::{
    order::operator,
    output::{self, or_dash, time},
};
use crate::{
    app::App,
    notifications::redeliver::{self, Filter, Row},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Messages, newest first
    List {
        #[arg(long)]
        state: Option<State>,
        #[command(flatten)]
        only: Only,
        #[arg(long, default_value_t = 50)]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// One message and its delivery log
    Show {
        id: i64,
        #[arg(long)]
        json: bool,
    },
    /// Send dead messages again, under the ids they had
    #[command(after_help = "Examples:\n  dispatchq outbox replay 7 8\n  dispatchq outbox replay --channel slack")]
    Replay {
        /// Ids of messages
        #[arg(required_unless_present_any = ["channel", "kind", "order", "all"])]
        ids: Vec<i64>,
        #[command(flatten)]
        only: Only,
        /// Every dead message
        #[arg(long, conflicts_with_all = ["ids", "channel", "kind", "order"])]
        all: bool,
        /// At most so many, the newest
        #[arg(long, default_value_t = 1000)]
        limit: u32,
        /// Only say which
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Only {
    /// Only over this channel
    #[arg(long)]
    channel: Option<String>,
    /// Only of this kind, for example MANUAL_REFUND_REQUIRED
    #[arg(long)]
    kind: Option<String>,
    /// Only about this order
    #[arg(long, value_name = "ID")]
    order: Option<OrderId>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum State {
    /// On its way, perhaps for hours
    Pending,
    Delivered,
    /// No longer worth sending
    Expired,
    /// Given up
    Dead,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Expired => "expired",
            Self::Dead => "dead",
        }
    }
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { state, only, limit, json } => {
                let rows = redeliver::list(&app.db, &filter(state, only, None, limit)).await?;
                if json { output::json(&rows)? } else { table(rows) }
            }
            Self::Show { id, json } => show(&app, id, json).await?,
            Self::Replay { ids, only, all: _, limit, dry_run } => {
                let ids = (!ids.is_empty()).then_some(ids);
                let rows = redeliver::list(&app.db, &filter(Some(State::Dead), only, ids, limit)).await?;
                if dry_run {
                    table(rows);
                } else {
                    ensure!(!rows.is_empty(), "no such message is dead; see: dispatchq outbox list --state dead");
                    let mut replayed = 0;
                    for row in &rows {
                        replayed += u32::from(redeliver::replay(&app, row, &operator()).await?);
                    }
                    println!("{replayed} messages are sent again.");
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn filter(state: Option<State>, only: Only, ids: Option<Vec<i64>>, limit: u32) -> Filter {
    let state = state.map(|s| s.as_str().to_owned());
    Filter { ids, state, channel: only.channel, kind: only.kind, order: only.order, limit }
}

fn table(rows: Vec<Row>) {
    let headings = ["ID", "ORDER", "KIND", "CHANNEL", "STATE", "TRIES", "CREATED", "DELIVERED", "ERROR"];
    let rows = rows.into_iter().map(|m| {
        [
            m.id.to_string(),
            m.order_id,
            m.kind,
            m.channel,
            m.state,
            m.attempts.to_string(),
            time(m.created_at),
            or_dash(m.delivered_at.map(time)),
            or_dash(m.last_error),
        ]
    });
    output::table(&headings, rows, "No such messages.");
}

async fn show(app: &App, id: i64, json: bool) -> anyhow::Result<()> {
    let filter = Filter { ids: Some(vec![id]), limit: 1, ..Filter::default() };
    let row = redeliver::list(&app.db, &filter).await?.pop();
    let row = row.with_context(|| format!("no message {id}; see: dispatchq outbox list"))?;
    let log = redeliver::log(&app.db, id).await?;
    if json {
        return output::json(&serde_json::json!({ "message": row, "log": log }));
    }
    println!("{:<12} {}\n{:<12} {}", "message", row.id, "receiver's id", row.message_id);
    table(vec![row]);
    println!();
    let lines = log.into_iter().map(|e| [time(e.at), e.what, or_dash(e.actor), or_dash(e.error)]);
    output::table(&["AT", "WHAT", "ACTOR", "ERROR"], lines, "Never tried.");
    Ok(())
}
