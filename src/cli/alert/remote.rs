//! `dispatchq alert` over the API.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::{Command, HEADINGS, format_row, print_acknowledged};
use crate::cli::{
    output,
    remote::{ApiClient, ListedItems, PageNames},
};
use notify::alerts::RaisedAlert;

const PAGE: PageNames = PageNames { items: "alerts", cursor: "before", next: "next" };

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
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
                    ensure!(!consent.dry_run, "--dry-run goes with --order; see one alert with: dispatchq alert list");
                }
                let note = note.or(consent.reason).context("--reason must say what was done, or will be")?;
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
