//! `dispatchq order update`.

use jobs::OrderId;
use serde_json::{Map, Value, json};

use super::{create::parse_metadata, print_order_view};
use crate::cli::{output, remote::ApiClient};
use model::input::GivenTime;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct OrderUpdateArgs {
    id: OrderId,
    /// Latitude of the pickup in degrees
    #[arg(long, allow_negative_numbers = true, requires = "lng")]
    lat: Option<f64>,
    /// Longitude of the pickup in degrees
    #[arg(long, allow_negative_numbers = true, requires = "lat")]
    lng: Option<f64>,
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
    #[arg(long, value_name = "TEXT")]
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
    /// Label that the driver must have; may be repeated. Replaces all labels of the order
    #[arg(long, value_name = "LABEL")]
    requires: Vec<String>,
    /// Time of the pickup of a scheduled order with its offset, such as 2026-01-09T16:30:00+07:00
    #[arg(long, value_name = "TIME")]
    pickup_at: Option<GivenTime>,
    /// Value to remove: address, dropoff, dropoff.address, notes, contact, contact.name, contact.phone, contact.email,
    /// metadata, metadata.KEY or requires; may be repeated
    #[arg(long, value_name = "NAME", value_parser = parse_removal)]
    remove: Vec<Vec<String>>,
    /// Change the order only if its contents still have this version (`ETag` of the API)
    #[arg(long, value_name = "VERSION")]
    if_version: Option<i64>,
    #[arg(long)]
    json: bool,
}

/// Parses the name of a value to remove. Returns its path in the body. For clap.
fn parse_removal(name: &str) -> Result<Vec<String>, String> {
    let path: &[&str] = match name {
        "address" => &["pickup", "address"],
        "dropoff" | "notes" | "contact" | "metadata" | "requires" => &[name],
        "dropoff.address" => &["dropoff", "address"],
        "contact.name" => &["contact", "name"],
        "contact.phone" => &["contact", "phone"],
        "contact.email" => &["contact", "email"],
        _ => match name.split_once('.') {
            Some(("metadata", key)) if !key.is_empty() => &["metadata", key],
            _ => return Err("is not a value that can be removed; see --help".to_owned()),
        },
    };
    Ok(path.iter().map(|&part| part.to_owned()).collect())
}

impl OrderUpdateArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let updated = api.patch_version(&["orders", self.id.as_str()], &self.to_patch(), self.if_version).await?;
        if self.json {
            return output::print_json(&updated);
        }
        print_order_view(&updated, []);
        Ok(())
    }

    /// Returns the body of the request: the values that are set, and null for each value to remove.
    fn to_patch(&self) -> Value {
        let texts = [
            (["pickup", "address"], &self.address),
            (["dropoff", "address"], &self.dropoff_address),
            (["contact", "name"], &self.contact_name),
            (["contact", "phone"], &self.contact_phone),
            (["contact", "email"], &self.contact_email),
        ];
        let degrees = [
            (["pickup", "latitude"], self.lat),
            (["pickup", "longitude"], self.lng),
            (["dropoff", "latitude"], self.dropoff_lat),
            (["dropoff", "longitude"], self.dropoff_lng),
        ];
        let mut patch = json!({});
        for path in &self.remove {
            set_member(&mut patch, path, Value::Null);
        }
        for (path, text) in texts {
            if let Some(text) = text {
                set_member(&mut patch, &path, json!(text));
            }
        }
        for (path, degrees) in degrees {
            if let Some(degrees) = degrees {
                set_member(&mut patch, &path, json!(degrees));
            }
        }
        if let Some(notes) = &self.notes {
            set_member(&mut patch, &["notes"], json!(notes));
        }
        if !self.requires.is_empty() {
            set_member(&mut patch, &["requires"], json!(self.requires));
        }
        if let Some(pickup_at) = self.pickup_at {
            set_member(&mut patch, &["pickup_at"], json!(pickup_at));
        }
        for (key, value) in &self.metadata {
            set_member(&mut patch, &["metadata", key], json!(value));
        }
        patch
    }
}

/// Sets a member of nested objects. Missing objects are created, and a value that is no object is replaced.
fn set_member(json: &mut Value, path: &[impl AsRef<str>], value: Value) {
    let [name, rest @ ..] = path else {
        *json = value;
        return;
    };
    if !json.is_object() {
        *json = Value::Object(Map::new());
    }
    set_member(&mut json[name.as_ref()], rest, value);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: OrderUpdateArgs,
    }

    fn patch(line: &str) -> Value {
        Line::try_parse_from(std::iter::once("update").chain(line.split(' '))).unwrap().args.to_patch()
    }

    #[test]
    fn options_make_a_merge_patch() {
        assert_eq!(patch("ORD-1"), json!({}));
        assert_eq!(
            patch("ORD-1 --lat -6.2 --lng 106.8 --address Gate --notes x --metadata a=1 --remove metadata.b"),
            json!({ "pickup": { "latitude": -6.2, "longitude": 106.8, "address": "Gate" }, "notes": "x",
                    "metadata": { "a": "1", "b": null } })
        );
        assert_eq!(
            patch("ORD-1 --remove address --remove dropoff --remove contact.phone"),
            json!({ "pickup": { "address": null }, "dropoff": null, "contact": { "phone": null } })
        );
        assert_eq!(
            patch("ORD-1 --pickup-at 2026-01-09T16:30:00+07:00"),
            json!({ "pickup_at": "2026-01-09T09:30:00Z" })
        );
        assert!(Line::try_parse_from(["update", "ORD-1", "--remove", "pickup"]).is_err());
        assert!(Line::try_parse_from(["update", "ORD-1", "--lat", "1"]).is_err());
    }
}
