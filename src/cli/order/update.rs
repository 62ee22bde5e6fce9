//! `dispatchq order update`.

use jobs::OrderId;
use serde_json::{Value, json};

use super::{
    contents::{ContentsArgs, set_member},
    print_order_view,
};
use crate::cli::{output, remote::ApiClient};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct OrderUpdateArgs {
    id: OrderId,
    /// Latitude of the pickup in degrees
    #[arg(long, allow_negative_numbers = true, requires = "lng")]
    lat: Option<f64>,
    /// Longitude of the pickup in degrees
    #[arg(long, allow_negative_numbers = true, requires = "lat")]
    lng: Option<f64>,
    #[command(flatten)]
    contents: ContentsArgs,
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
        let mut patch = json!({});
        for path in &self.remove {
            set_member(&mut patch, path, Value::Null);
        }
        for (name, degrees) in [("latitude", self.lat), ("longitude", self.lng)] {
            if let Some(degrees) = degrees {
                set_member(&mut patch, &["pickup", name], json!(degrees));
            }
        }
        self.contents.set_members(&mut patch);
        patch
    }
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
