//! `dispatchq alert list|ack`.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use jobs::{BindingId, OrderId};
use serde_json::{Value, json};

use super::{
    consent::ConsentArgs,
    output::{self, format_time, or_dash},
    remote::{ApiClient, ListedItems, PageNames},
};
use model::input::parse_reason;
use notify::alerts::RaisedAlert;

const PAGE: PageNames = PageNames::before("alerts", 500);
const HEADINGS: [&str; 7] = ["ID", "ABOUT", "KIND", "RAISED", "ESCALATED", "ESCALATES NEXT", "ACKNOWLEDGED"];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List alerts, newest first
    List {
        /// Only alerts that are not acknowledged
        #[arg(long)]
        open: bool,
        /// Only alerts of this kind, for example MANUAL_REFUND_REQUIRED
        #[arg(long)]
        kind: Option<String>,
        #[arg(long, value_name = "ID")]
        order: Option<OrderId>,
        #[arg(long, value_name = "ID", conflicts_with = "order")]
        binding: Option<BindingId>,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// Acknowledge an alert, which stops its escalation
    #[command(after_help = "Examples:\n  dispatchq alert ack 7 --reason \"refunded by bank transfer\"\n  \
                            dispatchq alert ack --order ORD-1 --reason \"nothing to do\" --yes")]
    Ack {
        /// Id of the alert
        #[arg(required_unless_present = "order", conflicts_with = "order")]
        id: Option<i64>,
        /// Acknowledge every open alert of this order
        #[arg(long, value_name = "ID")]
        order: Option<OrderId>,
        /// Alias of --reason
        #[arg(long, value_name = "TEXT", value_parser = parse_reason, conflicts_with = "reason", hide = true)]
        note: Option<String>,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { open, kind, order, binding, limit, json } => {
                let mut query = vec![("open", open.to_string())];
                query.extend(kind.map(|kind| ("kind", kind)));
                query.extend(order.map(|order| ("order_id", order.to_string())));
                query.extend(binding.map(|binding| ("binding_id", binding.to_string())));
                let found = list_alerts(api, &query, usize::try_from(limit)?).await?;
                if json {
                    output::print_json(&found)?;
                } else {
                    output::print_rows(&HEADINGS, found.into_iter().map(format_row), "No such alerts.");
                }
            }
            Self::Ack { id, order, note, consent } => {
                let note = note.or_else(|| consent.reason.clone());
                ensure!(note.is_some() || consent.dry_run, "--reason is required: say what was done or will be done");
                let mut ids = Vec::from_iter(id);
                if let Some(order) = &order {
                    let query = [("open", "true".to_owned()), ("order_id", order.to_string())];
                    let open = list_alerts(api, &query, usize::MAX).await?;
                    ensure!(!open.is_empty(), "no such alert; see: dispatchq alert list");
                    ids.extend(open.iter().map(|alert| alert.id));
                    if consent.dry_run {
                        output::print_rows(&HEADINGS, open.into_iter().map(format_row), "No such alerts.");
                        return Ok(ExitCode::SUCCESS);
                    }
                    if !consent.ask_consent(&format!("acknowledge {} alerts of {order}?", ids.len()))? {
                        bail!("no alert was acknowledged");
                    }
                } else {
                    ensure!(
                        !consent.dry_run,
                        "--dry-run requires --order; list single alerts with: dispatchq alert list"
                    );
                }
                for id in ids {
                    let acked = api.post(&["alerts", &id.to_string(), "ack"], &json!({ "note": note })).await?;
                    print_acknowledged(serde_json::from_value(acked)?);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list_alerts(api: &ApiClient, query: &[(&str, String)], most: usize) -> anyhow::Result<Vec<RaisedAlert>> {
    let ListedItems { items, .. } = api.list(&["alerts"], query, PAGE, most).await?;
    Ok(serde_json::from_value(Value::Array(items))?)
}

fn print_acknowledged(alert: RaisedAlert) {
    let subject = alert.subject().to_owned();
    let by = alert.acked_by.unwrap_or_default();
    output::print_escaped(&format!("Alert {} ({} of {subject}) is acknowledged by {by}.", alert.id, alert.kind));
}

fn format_row(alert: RaisedAlert) -> [String; 7] {
    let acked = alert.acked_at.map(|at| {
        let by = alert.acked_by.as_deref().unwrap_or_default();
        let note = alert.ack_note.as_deref().unwrap_or_default();
        format!("{} by {by}: {note}", format_time(at))
    });
    [
        alert.id.to_string(),
        alert.subject().to_owned(),
        alert.kind,
        format_time(alert.raised_at),
        alert.escalations.to_string(),
        match alert.gave_up_at {
            Some(_) => "never: its job is dead".to_owned(),
            None => or_dash(alert.next_escalation_at.map(format_time)),
        },
        or_dash(acked),
    ]
}
