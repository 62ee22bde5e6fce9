//! Options for the contents of an order, which `order create` and `order update` share.

use serde_json::{Map, Value, json};

use model::input::GivenTime;

#[derive(Debug, clap::Args)]
pub(super) struct ContentsArgs {
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
    /// Label that the driver must have, such as wheelchair; may be repeated. An update replaces all labels
    #[arg(long, value_name = "LABEL")]
    requires: Vec<String>,
    /// Time of the pickup with its offset, such as 2026-01-09T16:30:00+07:00
    #[arg(long, value_name = "TIME")]
    pickup_at: Option<GivenTime>,
}

impl ContentsArgs {
    /// Sets the members of a request for the options that were given.
    pub(super) fn set_members(&self, request: &mut Value) {
        let texts = [
            (&["pickup", "address"][..], &self.address),
            (&["dropoff", "address"], &self.dropoff_address),
            (&["notes"], &self.notes),
            (&["contact", "name"], &self.contact_name),
            (&["contact", "phone"], &self.contact_phone),
            (&["contact", "email"], &self.contact_email),
        ];
        let texts = texts.into_iter().filter_map(|(path, text)| Some((path, json!(text.as_ref()?))));
        let degrees = [("latitude", self.dropoff_lat), ("longitude", self.dropoff_lng)];
        for (path, text) in texts {
            set_member(request, path, text);
        }
        for (name, degrees) in degrees.into_iter().filter_map(|(name, degrees)| Some((name, degrees?))) {
            set_member(request, &["dropoff", name], json!(degrees));
        }
        for (key, value) in &self.metadata {
            set_member(request, &["metadata", key], json!(value));
        }
        if !self.requires.is_empty() {
            set_member(request, &["requires"], json!(self.requires));
        }
        if let Some(pickup_at) = self.pickup_at {
            set_member(request, &["pickup_at"], json!(pickup_at));
        }
    }
}

/// Parses a value of the producer. For clap.
pub(super) fn parse_metadata(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE, such as crm_id=7")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Sets a member of nested objects. Missing objects are created, and a value that is no object is replaced.
pub(super) fn set_member(json: &mut Value, path: &[impl AsRef<str>], value: Value) {
    let [name, rest @ ..] = path else {
        *json = value;
        return;
    };
    if !json.is_object() {
        *json = Value::Object(Map::new());
    }
    set_member(&mut json[name.as_ref()], rest, value);
}
