//! `dispatchq order create`.

use std::collections::BTreeMap;

use jobs::OrderId;
use serde_json::{Value, json};

use super::print_order_view;
use crate::cli::{output, remote::ApiClient};
use model::{
    ids::{AreaId, ServiceType},
    input::GivenTime,
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
    /// Address of the pickup
    #[arg(long, value_name = "TEXT")]
    address: Option<String>,
    /// Latitude of the destination in degrees
    #[arg(long, value_name = "LAT", allow_negative_numbers = true, requires = "dropoff_lng")]
    dropoff_lat: Option<f64>,
    /// Longitude of the destination in degrees
    #[arg(long, value_name = "LNG", allow_negative_numbers = true, requires = "dropoff_lat")]
    dropoff_lng: Option<f64>,
    /// Address of the destination
    #[arg(long, value_name = "TEXT", requires = "dropoff_lat")]
    dropoff_address: Option<String>,
    /// Notes for the driver and for staff
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    /// Name of the person to call
    #[arg(long, value_name = "NAME")]
    contact_name: Option<String>,
    /// Phone number of the person to call, such as +628123456789
    #[arg(long, value_name = "NUMBER")]
    contact_phone: Option<String>,
    /// E-mail address of the person to call
    #[arg(long, value_name = "ADDRESS")]
    contact_email: Option<String>,
    /// A value of your own; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_metadata)]
    metadata: Vec<(String, String)>,
    /// Label that the driver must have, such as wheelchair; may be repeated
    #[arg(long, value_name = "LABEL")]
    requires: Vec<String>,
    /// Time of the pickup with its offset, such as 2026-01-09T16:30:00+07:00 [default: as soon as possible]
    #[arg(long, value_name = "TIME")]
    pickup_at: Option<GivenTime>,
    #[arg(long)]
    json: bool,
}

/// Parses a value of the producer. For clap.
pub(super) fn parse_metadata(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE, such as crm_id=7")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl OrderCreateArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let mut contact =
            json!({ "name": self.contact_name, "phone": self.contact_phone, "email": self.contact_email });
        retain_values(&mut contact);
        let contact = contact.as_object().filter(|members| !members.is_empty());
        let mut new = json!({
            "order_id": self.id,
            "service_type": self.service_type,
            "pickup": place_json(self.lat, self.lng, self.address),
            "payment_status": self.payment_status,
            "amount_minor": self.amount_minor,
            "currency": self.currency,
            "area_id": self.area,
            "language": self.language,
            "channel": self.channel,
            "loyalty_level": self.loyalty_level,
            "dropoff": self.dropoff_lat.zip(self.dropoff_lng).map(|(lat, lng)| place_json(lat, lng, self.dropoff_address)),
            "notes": self.notes,
            "contact": contact,
            "pickup_at": self.pickup_at,
            "metadata": (!self.metadata.is_empty()).then(|| self.metadata.into_iter().collect::<BTreeMap<_, _>>()),
            "requires": (!self.requires.is_empty()).then_some(self.requires),
        });
        retain_values(&mut new);
        let created = api.post(&["orders"], &new).await?;
        if self.json {
            return output::print_json(&created);
        }
        print_order_view(&created, []);
        Ok(())
    }
}

fn place_json(latitude: f64, longitude: f64, address: Option<String>) -> Value {
    let mut place = json!({ "latitude": latitude, "longitude": longitude, "address": address });
    retain_values(&mut place);
    place
}

/// Removes the members that are null.
fn retain_values(json: &mut Value) {
    if let Some(members) = json.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
}
