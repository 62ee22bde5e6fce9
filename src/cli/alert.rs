//! `dispatchq alert list|ack`.

use std::process::ExitCode;

use anyhow::ensure;
use jobs::OrderId;

use super::{
    order::operator,
    output::{self, or_dash, time},
};
use crate::{
    app::App,
    notifications::alerts::{self, Alert, Filter, Which},
    plain_text,
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Alerts, newest first
    List {
        /// Only those nobody has acknowledged
        #[arg(long)]
        open: bool,
        /// For example MANUAL_REFUND_REQUIRED
        #[arg(long)]
        kind: Option<String>,
        #[arg(long, value_name = "ID")]
        order: Option<OrderId>,
        #[arg(long, default_value_t = 50)]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// Say that an alert is taken care of: it escalates no more
    #[command(after_help = "Examples:\n  dispatchq alert ack 7 --note \"refunded by bank transfer\"\n  \
                            dispatchq alert ack --order ORD-1 --note \"nothing to do\"")]
    Ack {
        /// Id of the alert
        #[arg(required_unless_present = "order", conflicts_with = "order")]
        id: Option<i64>,
        /// Every alert of this order
        #[arg(long, value_name = "ID")]
        order: Option<OrderId>,
        /// What was done, or will be
        #[arg(long, value_parser = plain_text::parse)]
        note: String,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { open, kind, order, limit, json } => {
                let filter = Filter { open, kind, order, before: None, limit };
                let list = alerts::list(&app.db, &filter).await?;
                if json {
                    output::json(&list)?;
                } else {
                    let headings = ["ID", "ORDER", "KIND", "RAISED", "ESCALATED", "ESCALATES NEXT", "ACKNOWLEDGED"];
                    output::table(&headings, list.into_iter().map(row), "No such alerts.");
                }
            }
            Self::Ack { id, order, note } => {
                ensure!(!note.trim().is_empty(), "--note must say what was done, or will be");
                let which = match (id, order) {
                    (Some(id), _) => Which::One(id),
                    (None, Some(order)) => Which::Order(order),
                    (None, None) => unreachable!("one of them is required"),
                };
                let acked = alerts::acknowledge(&app.db, &which, &operator(), &note).await?;
                ensure!(!acked.is_empty(), "no such alert; see: dispatchq alert list");
                for alert in acked {
                    let by = alert.acked_by.unwrap_or_default();
                    output::line(&format!(
                        "Alert {} ({} of {}) is acknowledged by {by}.",
                        alert.id, alert.kind, alert.order_id
                    ));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row(alert: Alert) -> [String; 7] {
    let acked = alert.acked_at.map(|at| {
        let (by, note) = (alert.acked_by.unwrap_or_default(), alert.ack_note.unwrap_or_default());
        format!("{} by {by}: {note}", time(at))
    });
    [
        alert.id.to_string(),
        alert.order_id,
        alert.kind,
        time(alert.raised_at),
        alert.escalations.to_string(),
        or_dash(alert.next_escalation_at.map(time)),
        or_dash(acked),
    ]
}
