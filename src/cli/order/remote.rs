//! `dispatchq order` over the API.

use std::process::ExitCode;

use jobs::OrderId;
use serde_json::{Value, json};

use super::{
    Command, OrderCreateArgs, OrderListing, RefundCommand, ask_about_payment, explain, print_events, print_left,
    print_order_view, print_take, print_views,
};
use crate::cli::{
    output,
    remote::{
        ApiClient, PageNames,
        fields::{show_field, show_time},
        given_reason,
    },
};

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(args) => args.run_over_api(api).await?,
            Self::Show { id, json } => print_view(&api.get(&["orders", id.as_str()], &[]).await?, json)?,
            Self::List { status, held, open, limit, json } => {
                print_listing(api, &OrderListing { status, held, open, limit }, json).await?;
            }
            Self::Timeline { id, json } => {
                let timeline = api.get(&["orders", id.as_str(), "timeline"], &[]).await?;
                print_events(&timeline["events"], json)?;
            }
            Self::Explain { id, json } => {
                explain::print_explanation(&api.get(&["orders", id.as_str(), "explain"], &[]).await?, json)?;
            }
            Self::Refund(RefundCommand::Start { id, note }) => {
                change_order(api, &id, "refund", &json!({ "action": "start", "note": note })).await?;
            }
            Self::Refund(RefundCommand::Done { id, note }) => {
                change_order(api, &id, "refund", &json!({ "action": "done", "note": note })).await?;
            }
            Self::Cancel { id, reason, yes } => {
                // Where the order cannot be read, the refusal of the cancel says why.
                if !yes && let Ok(order) = api.get(&["orders", id.as_str()], &[]).await {
                    ask_about_payment(&order, yes)?;
                }
                change_order(api, &id, "cancel", &json!({ "reason": reason })).await?;
            }
            Self::Assign { id, driver, reason } => {
                change_order(api, &id, "assign", &json!({ "driver_id": driver, "reason": given_reason(reason)? }))
                    .await?;
            }
            Self::Release { id, reason } => {
                change_order(api, &id, "release", &json!({ "reason": given_reason(reason)? })).await?;
            }
            Self::Redispatch { id, reason } => {
                change_order(api, &id, "redispatch", &json!({ "reason": given_reason(reason)? })).await?;
            }
            Self::Hold { id, reason } => change_order(api, &id, "hold", &json!({ "reason": reason })).await?,
            Self::Resume { id, reason } => change_order(api, &id, "resume", &json!({ "reason": reason })).await?,
            Self::Take { id, reason } => {
                let take = api.post(&["orders", id.as_str(), "take"], &json!({ "reason": reason })).await?;
                print_take(&show_field(&take, "taken_by"), &id, &show_time(&take, "ends_at"));
            }
            Self::Leave { id, reason } => {
                api.post(&["orders", id.as_str(), "leave"], &json!({ "reason": reason })).await?;
                print_left(&id);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl OrderCreateArgs {
    async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<()> {
        let mut new = json!({
            "order_id": self.id,
            "service_type": self.service_type,
            "pickup": { "latitude": self.lat, "longitude": self.lng },
            "payment_status": self.payment_status,
            "amount_minor": self.amount_minor,
            "currency": self.currency,
            "area_id": self.area,
            "language": self.language,
            "channel": self.channel,
            "loyalty_level": self.loyalty_level,
        });
        if let Some(members) = new.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        print_view(&api.post(&["orders"], &new).await?, self.json)
    }
}

/// Has an order changed, and says how it stands now.
pub(in crate::cli) async fn change_order(
    api: &ApiClient,
    id: &OrderId,
    step: &str,
    body: &Value,
) -> anyhow::Result<()> {
    let order = api.post(&["orders", id.as_str(), step], body).await?;
    output::print_escaped(&format!("{id} is {}.", show_field(&order, "status")));
    Ok(())
}

fn print_view(view: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(view);
    }
    let is_held = view["held_for_review"] == true;
    let held = is_held.then(|| ("under review", "yes; why: dispatchq order explain".to_owned()));
    print_order_view(view, held);
    Ok(())
}

/// Prints orders, the newest first: of the last 31 days, or open ones of any age.
async fn print_listing(api: &ApiClient, wanted: &OrderListing, json: bool) -> anyhow::Result<()> {
    let mut query = vec![("closed", (!wanted.open).to_string())];
    query.extend(wanted.status.map(|status| ("status", status.to_string())));
    query.extend(wanted.held.then(|| ("held", "true".to_owned())));
    let most = usize::try_from(wanted.limit)?;
    let listed = api.list(&["orders"], &query, PageNames::of("orders"), most).await?;
    print_views(&Value::Array(listed.items), json)
}
