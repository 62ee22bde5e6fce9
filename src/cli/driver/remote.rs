//! `dispatchq driver list|offers|accept|complete|disable|enable` over the API.

use std::process::ExitCode;

use anyhow::Context;
use jobs::OrderId;
use serde_json::{Value, json};

use super::{Command, HEADINGS, NO_DRIVERS, steps};
use crate::cli::{
    order, output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
        given_reason, needs_database,
    },
};
use model::ids::DriverId;

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
            Self::Offers { id, wait, json } => {
                let answer = api.get(&["drivers", &id, "offers"], &[("wait_sec", wait.to_string())]).await?;
                steps::print_offers(&answer["offers"], &id, json)?;
            }
            Self::Accept { id, order } => accept_order(api, &id, order.as_ref()).await?,
            Self::Complete { id, order } => complete_order(api, &id, order.as_ref()).await?,
            Self::Disable { id, reason } => {
                let driver = set_disabled(api, &id, "disable", reason).await?;
                output::print_escaped(&format!("{id} is disabled."));
                if let Some(order) = driver["active_order"].as_str() {
                    output::print_note(&format!(
                        "{id} still has {order}; take it back: dispatchq order release {order}"
                    ));
                }
            }
            Self::Enable { id, reason } => {
                set_disabled(api, &id, "enable", reason).await?;
                output::print_escaped(&format!("{id} is enabled."));
            }
            Self::Import { .. } => return Err(needs_database("driver import")),
            Self::Remove { .. } => return Err(needs_database("driver remove")),
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn accept_order(api: &ApiClient, driver: &DriverId, order: Option<&OrderId>) -> anyhow::Result<()> {
    let answer = api.get(&["drivers", driver, "offers"], &[]).await?;
    let mut offers = answer["offers"].as_array().into_iter().flatten();
    let wanted = offers.find(|offer| order.is_none_or(|order| offer["order_id"] == order.as_str()));
    let offer = wanted.with_context(|| steps::no_offer(driver, order))?;
    let id: OrderId = show_field(offer, "order_id").parse()?;
    let body = json!({ "driver_id": driver, "offer_id": offer["offer_id"] });
    order::remote::change_order(api, &id, "accept", &body).await
}

async fn complete_order(api: &ApiClient, driver: &DriverId, order: Option<&OrderId>) -> anyhow::Result<()> {
    let active = api.get(&["drivers", driver], &[]).await?;
    let id = steps::named_order(driver, order, active["active_order"].as_str())?;
    let body = json!({ "driver_id": driver });
    if api.get(&["orders", id.as_str()], &[]).await?["status"] == "DRIVER_ASSIGNED" {
        order::remote::change_order(api, &id, "pickup", &body).await?;
    }
    order::remote::change_order(api, &id, "complete", &body).await
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
