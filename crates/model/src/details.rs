//! Contents of an order that people need: the destination, addresses, notes, a contact, the producer's own values, and the
//! labels that its driver must have. Dispatch reads only the labels. Design: docs/design/contents-and-privacy.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    field_error::FieldError,
    ids::LatLng,
    input::{Alphabet, PHONE_RULE, TextRule},
    location::OrderLocation,
    skills::{SkillSet, find_skills_problem},
};

pub const ADDRESS: TextRule = TextRule { alphabet: Alphabet::Line, least: 1, most: 300 };
pub const NOTES: TextRule = TextRule { alphabet: Alphabet::Line, least: 1, most: 1_000 };
pub const CONTACT_NAME: TextRule = TextRule { alphabet: Alphabet::Line, least: 1, most: 100 };

pub const MOST_METADATA: usize = 50;
/// Maximum length of a metadata key, in characters.
pub const LONGEST_METADATA_KEY: usize = 40;
/// Maximum length of a metadata value, in characters.
pub const LONGEST_METADATA_VALUE: usize = 500;
/// Maximum size of all keys and values, in bytes of UTF-8.
pub const MOST_METADATA_BYTES: usize = 4_096;
/// Maximum length of an e-mail address, in characters. Source: RFC 5321, section 4.5.3.1.3.
const LONGEST_EMAIL: usize = 254;

/// Coordinates with an optional address.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[schema(as = Place)]
pub struct OrderPlace {
    #[schema(minimum = -90, maximum = 90)]
    pub latitude: f64,
    #[schema(minimum = -180, maximum = 180)]
    pub longitude: f64,
    /// Address as text for people. Dispatch uses only the coordinates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 300, pattern = "^[^\\u0000]*$")]
    pub address: Option<String>,
}

impl OrderPlace {
    pub fn new(place: LatLng, address: Option<String>) -> Self {
        Self { latitude: place.lat, longitude: place.lng, address }
    }

    pub fn as_lat_lng(&self) -> LatLng {
        LatLng::new(self.latitude, self.longitude)
    }

    /// Returns the error for invalid coordinates, with the name of the place's field. [`OrderDetails::find_problem`]
    /// checks the address.
    pub fn find_problem(&self, field: &'static str) -> Option<FieldError> {
        let Self { latitude, longitude, .. } = self;
        let problem = || FieldError::new(field, format!("{field} {latitude}, {longitude} is no place on earth"));
        (!self.as_lat_lng().is_on_earth()).then(problem)
    }
}

impl From<OrderLocation> for OrderPlace {
    fn from(place: OrderLocation) -> Self {
        Self::new(place.as_lat_lng(), None)
    }
}

/// Person to call about an order. Only its driver, a confirmed partner and staff of the desk may read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct Contact {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 100, pattern = "^[^\\u0000]*$")]
    pub name: Option<String>,
    /// E.164, such as +628123456789.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^\\+[1-9][0-9]{6,14}$")]
    pub phone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 254, example = "ana@example.com")]
    pub email: Option<String>,
}

impl Contact {
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }

    fn find_problem(&self) -> Option<FieldError> {
        if let Some(problem) = self.name.as_deref().and_then(|name| CONTACT_NAME.find_problem(name)) {
            return Some(FieldError::new("contact/name", format!("contact.name {problem}")));
        }
        if let Some(phone) = &self.phone
            && !is_phone(phone)
        {
            let problem = format!("contact.phone {PHONE_RULE}, and exist in its country's numbering plan");
            return Some(FieldError::new("contact/phone", problem));
        }
        let is_wrong =
            |email: &String| email.chars().count() > LONGEST_EMAIL || !email_address::EmailAddress::is_valid(email);
        self.email.as_ref().filter(|email| is_wrong(email)).map(|_| {
            let problem = format!(
                "contact.email must be an e-mail address of at most {LONGEST_EMAIL} characters, such as ana@example.com"
            );
            FieldError::new("contact/email", problem)
        })
    }
}

/// Returns whether this is an E.164 number that its country's numbering plan allows.
fn is_phone(phone: &str) -> bool {
    let digits = phone.strip_prefix('+').unwrap_or_default();
    let has_form = (7..=15).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0');
    has_form && phonenumber::parse(None, phone).is_ok_and(|number| phonenumber::is_valid(&number))
}

/// Contents of an order. Stored in `order_details`; an order without contents has no row there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrderDetails {
    pub pickup_address: Option<String>,
    pub dropoff: Option<OrderPlace>,
    pub notes: Option<String>,
    pub contact: Option<Contact>,
    /// The producer's own values.
    pub metadata: BTreeMap<String, String>,
    /// Labels that the driver must have.
    pub requires: SkillSet,
}

impl OrderDetails {
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }

    /// Returns the JSON that `dispatchq_create_order` takes: the members of a creation.
    pub fn to_json(&self) -> Value {
        let pickup = self.pickup_address.as_ref().map(|address| json!({ "address": address }));
        let contact = self.contact.as_ref().filter(|contact| !contact.is_empty());
        json!({
            "pickup": pickup, "dropoff": self.dropoff, "notes": self.notes, "contact": contact,
            "metadata": self.metadata, "requires": self.requires,
        })
    }

    /// Returns the first value that violates a rule.
    pub fn find_problem(&self) -> Option<FieldError> {
        let text = |field, name: &str, rule: TextRule, value: Option<&String>| {
            let problem = rule.find_problem(value?)?;
            Some(FieldError::new(field, format!("{name} {problem}")))
        };
        let dropoff = self.dropoff.as_ref();
        let dropoff_address = dropoff.and_then(|place| place.address.as_ref());
        text("pickup/address", "pickup.address", ADDRESS, self.pickup_address.as_ref())
            .or_else(|| dropoff?.find_problem("dropoff"))
            .or_else(|| text("dropoff/address", "dropoff.address", ADDRESS, dropoff_address))
            .or_else(|| text("notes", "notes", NOTES, self.notes.as_ref()))
            .or_else(|| self.contact.as_ref()?.find_problem())
            .or_else(|| Some(FieldError::new("metadata", find_metadata_problem(&self.metadata)?)))
            .or_else(|| Some(FieldError::new("requires", format!("requires {}", find_skills_problem(&self.requires)?))))
    }
}

/// Contents of an order in events and webhooks, which contain neither its notes nor its contact. Empty after an erasure.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EventContents {
    pub pickup: EventPickup,
    pub dropoff: Option<OrderPlace>,
    pub metadata: BTreeMap<String, String>,
}

/// Pickup of an order in events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, utoipa::ToSchema)]
pub struct EventPickup {
    /// Address as text for people; null if there is none, or if it was erased.
    pub address: Option<String>,
}

fn find_metadata_problem(metadata: &BTreeMap<String, String>) -> Option<String> {
    if metadata.len() > MOST_METADATA {
        return Some(format!("metadata must have at most {MOST_METADATA} keys"));
    }
    let key_rule = TextRule { alphabet: Alphabet::Line, least: 1, most: LONGEST_METADATA_KEY };
    let value_rule = TextRule { alphabet: Alphabet::Line, least: 0, most: LONGEST_METADATA_VALUE };
    for (key, value) in metadata {
        if let Some(problem) = key_rule.find_problem(key) {
            return Some(format!("each key of metadata {problem}"));
        }
        if let Some(problem) = value_rule.find_problem(value) {
            return Some(format!("metadata.{key} {problem}"));
        }
    }
    let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    (bytes > MOST_METADATA_BYTES)
        .then(|| format!("metadata must have at most {MOST_METADATA_BYTES} bytes in all, not {bytes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(details: OrderDetails) -> Option<String> {
        details.find_problem().map(|error| format!("{}: {}", error.field, error.message))
    }

    fn contact(name: Option<&str>, phone: Option<&str>, email: Option<&str>) -> OrderDetails {
        let [name, phone, email] = [name, phone, email].map(|text| text.map(str::to_owned));
        OrderDetails { contact: Some(Contact { name, phone, email }), ..OrderDetails::default() }
    }

    fn metadata(pairs: impl IntoIterator<Item = (String, String)>) -> OrderDetails {
        OrderDetails { metadata: pairs.into_iter().collect(), ..OrderDetails::default() }
    }

    #[test]
    fn place_needs_coordinates_on_earth() {
        let dropoff = |latitude, longitude, address: Option<&str>| OrderDetails {
            dropoff: Some(OrderPlace { latitude, longitude, address: address.map(str::to_owned) }),
            ..OrderDetails::default()
        };
        assert_eq!(problem(dropoff(-6.2, 106.8, Some("Jalan Sudirman 1"))), None);
        assert!(problem(dropoff(91.0, 0.0, None)).unwrap().starts_with("dropoff: dropoff 91, 0 is no place"));
        for bad in ["", " ", "a\nb", &"x".repeat(301)] {
            assert!(
                problem(dropoff(0.0, 0.0, Some(bad))).unwrap().starts_with("dropoff/address: dropoff.address"),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn phone_must_exist_in_its_numbering_plan() {
        for good in ["+628123456789", "+4930123456", "+12125550123"] {
            assert_eq!(problem(contact(None, Some(good), None)), None, "{good}");
        }
        for bad in [
            "08123456789",
            "+62 812 3456 789",
            "+0123456789",
            "+62",
            "+9991234567",
            "+1212555012",
            "+628123456789;ext=1",
        ] {
            let told = problem(contact(None, Some(bad), None)).unwrap_or_default();
            assert!(told.contains("contact.phone must be an E.164 number"), "{bad}: {told}");
        }
    }

    #[test]
    fn contact_has_a_name_and_an_address() {
        assert_eq!(problem(contact(Some("Ana"), None, Some("ana+taxi@example.com"))), None);
        for bad in ["", "ana", "ana@", "@example.com", "a b@example.com", "a@example.com\n"] {
            assert!(problem(contact(None, None, Some(bad))).unwrap().contains("contact.email must be"), "{bad:?}");
        }
        assert!(problem(contact(Some(&"x".repeat(101)), None, None)).unwrap().contains("contact.name must"));
    }

    #[test]
    fn metadata_is_bounded_in_keys_and_bytes() {
        let pair = |n: usize, value: &str| (format!("key{n}"), value.to_owned());
        assert_eq!(problem(metadata((0..50).map(|n| pair(n, "")))), None);
        assert!(problem(metadata((0..51).map(|n| pair(n, "")))).unwrap().contains("at most 50 keys"));
        assert!(problem(metadata([("k".repeat(41), String::new())])).unwrap().contains("each key of metadata"));
        assert!(problem(metadata([(String::new(), String::new())])).unwrap().contains("each key of metadata"));
        assert!(
            problem(metadata([pair(1, &"v".repeat(501))])).unwrap().contains("metadata.key1 must have at most 500")
        );
        assert!(problem(metadata([pair(1, "a\u{1b}[2J")])).unwrap().contains("control character"));
        assert!(problem(metadata((0..10).map(|n| pair(n, &"v".repeat(450))))).unwrap().contains("4096 bytes"));
    }
}
