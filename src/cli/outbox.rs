//! `dispatchq outbox list|show|replay`. Of the outbox and not of alerts: any message may die, events for the producer too.

mod remote;

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use jobs::{BindingId, OrderId};

use super::{
    consent::ConsentArgs,
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use app::App;
use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter, OutboxMessage},
};
use model::messages::OutboxState;

/// Rows read at a time.
const PAGE: u32 = 500;
/// Rows that `--dry-run` shows.
const MOST_SHOWN: u32 = 50;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Messages, newest first
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
    /// One message and its delivery log
    Show {
        id: i64,
        #[arg(long)]
        json: bool,
    },
    /// Send dead messages again, under the ids they had
    #[command(after_help = "Examples:\n  dispatchq outbox replay 7 8\n  \
                            dispatchq outbox replay --channel slack --dry-run\n  \
                            dispatchq outbox replay --channel slack --reason \"Slack is back\" --yes")]
    Replay {
        /// Ids of messages
        #[arg(required_unless_present_any = ["channel", "kind", "order", "binding", "all"])]
        ids: Vec<i64>,
        #[command(flatten)]
        only: MessageFilterArgs,
        /// Every dead message
        #[arg(long, conflicts_with_all = ["ids", "channel", "kind", "order", "binding"])]
        all: bool,
        /// At most so many, the newest; all if it is not given
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: Option<u32>,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct MessageFilterArgs {
    /// Only over this channel
    #[arg(long)]
    channel: Option<String>,
    /// Only of this kind, for example MANUAL_REFUND_REQUIRED
    #[arg(long)]
    kind: Option<String>,
    /// Only about this order
    #[arg(long, value_name = "ID")]
    order: Option<OrderId>,
    /// Only about this binding
    #[arg(long, value_name = "ID", conflicts_with = "order")]
    binding: Option<BindingId>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum MessageStateArg {
    /// On its way, perhaps for hours
    Pending,
    Delivered,
    /// No longer worth sending
    Expired,
    /// Given up
    Dead,
}

impl From<MessageStateArg> for OutboxState {
    fn from(state: MessageStateArg) -> Self {
        match state {
            MessageStateArg::Pending => Self::Pending,
            MessageStateArg::Delivered => Self::Delivered,
            MessageStateArg::Expired => Self::Expired,
            MessageStateArg::Dead => Self::Dead,
        }
    }
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { state, only, limit, json } => {
                let rows = redeliver::list_messages(&app.core.db, &make_filter(state, only, None, limit)).await?;
                if json { output::print_json(&rows)? } else { print_table(rows) }
            }
            Self::Show { id, json } => print_message(&app, id, json).await?,
            Self::Replay { ids, only, all: _, limit, consent } => {
                let ids = (!ids.is_empty()).then_some(ids);
                let dead = make_filter(Some(MessageStateArg::Dead), only, ids, PAGE);
                replay_messages(&app, dead, limit.unwrap_or(u32::MAX), &consent).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn make_filter(
    state: Option<MessageStateArg>,
    only: MessageFilterArgs,
    ids: Option<Vec<i64>>,
    limit: u32,
) -> OutboxFilter {
    let state = state.map(OutboxState::from);
    let MessageFilterArgs { channel, kind, order, binding } = only;
    OutboxFilter { ids, state, channel, kind, order, binding, before: None, limit }
}

/// Sends these dead messages again, page by page, `most` of them at most. A message that dies again meanwhile lies behind
/// the page that is next, so this comes to an end.
async fn replay_messages(app: &App, mut dead: OutboxFilter, most: u32, consent: &ConsentArgs) -> anyhow::Result<()> {
    let selected = redeliver::count_messages(&app.core.db, &dead).await?.min(i64::from(most));
    if consent.dry_run {
        dead.limit = MOST_SHOWN.min(most);
        print_table(redeliver::list_messages(&app.core.db, &dead).await?);
        println!("{selected} messages would be sent again; the newest {MOST_SHOWN} at most are shown.");
        return Ok(());
    }
    ensure!(selected > 0, "no such message is dead; see: dispatchq outbox list --state dead");
    if dead.ids.is_none() && !consent.ask_consent(&format!("send {selected} messages again?"))? {
        bail!("no message was sent again");
    }
    let by = DecisionAuthor { who: cli_operator(), why: consent.reason.clone() };
    let (mut replayed, mut left) = (0, most);
    loop {
        dead.limit = PAGE.min(left);
        let rows = redeliver::list_messages(&app.core.db, &dead).await?;
        let Some(last) = rows.last() else { break };
        dead.before = Some(last.id);
        left -= u32::try_from(rows.len()).unwrap_or(left).min(left);
        for row in &rows {
            let sent = redeliver::replay_message(&app.desk, row, &by).await;
            let done =
                format!("{replayed} of {selected} messages are sent again; what is done stays done: run it again");
            replayed += i64::from(sent.context(done)?);
        }
    }
    println!("{replayed} messages are sent again.");
    Ok(())
}

const HEADINGS: [&str; 9] = ["ID", "ABOUT", "KIND", "CHANNEL", "STATE", "TRIES", "CREATED", "DELIVERED", "ERROR"];

fn print_table(rows: Vec<OutboxMessage>) {
    let rows = rows.into_iter().map(|m| {
        [
            m.id.to_string(),
            m.subject.to_string(),
            m.kind,
            m.channel,
            m.state.to_string(),
            m.attempts.to_string(),
            format_time(m.created_at),
            or_dash(m.delivered_at.map(format_time)),
            or_dash(m.last_error),
        ]
    });
    output::print_rows(&HEADINGS, rows, "No such messages.");
}

async fn print_message(app: &App, id: i64, json: bool) -> anyhow::Result<()> {
    let filter = OutboxFilter { ids: Some(vec![id]), limit: 1, ..OutboxFilter::default() };
    let row = redeliver::list_messages(&app.core.db, &filter).await?.pop();
    let row = row.with_context(|| format!("no message {id}; see: dispatchq outbox list"))?;
    let log = redeliver::load_delivery_log(&app.core.db, id).await?;
    if json {
        return output::print_json(&serde_json::json!({ "message": row, "log": log }));
    }
    println!("{:<12} {}\n{:<12} {}", "message", row.id, "receiver's id", row.message_id);
    print_table(vec![row]);
    println!();
    let lines = log.into_iter().map(|e| [format_time(e.at), e.what, or_dash(e.actor), or_dash(e.error)]);
    output::print_rows(&["AT", "WHAT", "ACTOR", "ERROR"], lines, "Never tried.");
    Ok(())
}
