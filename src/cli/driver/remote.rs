//! `dispatchq driver list|disable|enable` over the API.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{Command, HEADINGS, NO_DRIVERS};
use crate::cli::{
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
        given_reason, needs_database,
    },
};
use dispatch::plain_text;

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { limit, json } => {
                let names = PageNames::of("drivers");
                let ListedItems { items, .. } = api.list(&["drivers"], &[], names, usize::try_from(limit)?).await?;
                if json {
                    output::print_json(&items)?;
                } else {
                    output::print_rows(&HEADINGS, items.iter().map(format_driver), NO_DRIVERS);
                }
            }
            Self::Disable { id, reason } => {
                let driver = set_disabled(api, &id, "disable", reason).await?;
                println!("{id} is disabled.");
                if let Some(order) = driver["active_order"].as_str() {
                    let order = plain_text::escape_controls(order);
                    eprintln!("{id} still has {order}; take it back: dispatchq order release {order}");
                }
            }
            Self::Enable { id, reason } => {
                set_disabled(api, &id, "enable", reason).await?;
                println!("{id} is enabled.");
            }
            Self::Import { .. } => return Err(needs_database("driver import")),
            Self::Remove { .. } => return Err(needs_database("driver remove")),
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn set_disabled(api: &ApiClient, id: &str, step: &str, reason: Option<String>) -> anyhow::Result<Value> {
    Ok(api.post(&["drivers", id, step], &json!({ "reason": given_reason(reason)? })).await?)
}

fn format_driver(driver: &Value) -> [String; 6] {
    let degrees = |name: &str| driver[name].as_f64().map_or_else(|| "-".to_owned(), |at| format!("{at:.5}"));
    let available = match (driver["disabled_at"].is_null(), driver["available"] == true) {
        (false, _) => "disabled",
        (true, true) => "yes",
        (true, false) => "no",
    };
    [
        show_field(driver, "id"),
        show_field(driver, "service_types"),
        format!("{}, {}", degrees("lat"), degrees("lng")),
        available.to_owned(),
        show_field(driver, "active_order"),
        show_time(driver, "idle_since"),
    ]
}
