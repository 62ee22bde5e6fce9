//! `dispatchq order create`.

use jobs::OrderId;
use serde_json::json;

use super::{contents::ContentsArgs, print_order_view};
use crate::cli::{output, remote::ApiClient};
use model::{
    ids::{AreaId, ServiceType},
    texts::LanguageTag,
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct OrderCreateArgs {
    /// Id of the order [default: a new id]
    #[arg(long)]
    id: Option<OrderId>,
    #[arg(long)]
    service_type: ServiceType,
    #[arg(long, allow_negative_numbers = true)]
    lat: f64,
    #[arg(long, allow_negative_numbers = true)]
    lng: f64,
    #[arg(long, default_value = "UNPAID")]
    payment_status: String,
    /// Amount in the smallest unit of the currency
    #[arg(long)]
    amount_minor: Option<i64>,
    #[arg(long)]
    currency: Option<String>,
    #[arg(long)]
    area: Option<AreaId>,
    /// Language of messages to the customer, such as id, en or vi
    #[arg(long, value_name = "TAG")]
    language: Option<LanguageTag>,
    /// Channel that the customer ordered through, such as MYBB
    #[arg(long)]
    channel: Option<String>,
    /// Loyalty level of the customer: EXPLORER, TRAVELER, VOYAGER or ELITE
    #[arg(long)]
    loyalty_level: Option<String>,
    #[command(flatten)]
    contents: ContentsArgs,
    #[arg(long)]
    json: bool,
}

impl OrderCreateArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
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
        self.contents.set_members(&mut new);
        let created = api.post(&["orders"], &new).await?;
        if self.json {
            return output::print_json(&created);
        }
        print_order_view(&created, []);
        Ok(())
    }
}
