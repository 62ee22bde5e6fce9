//! Form of an order's contents: its fields, the values that a person filled in, and the text of each field's rule.

use std::collections::BTreeMap;

use chrono::SecondsFormat;
use model::{
    details::{
        ADDRESS, CONTACT_NAME, LONGEST_METADATA_KEY, LONGEST_METADATA_VALUE, MOST_METADATA, MOST_METADATA_BYTES, NOTES,
    },
    ids::LatLng,
    input::GivenTime,
    order::{Order, OrderStatus},
    order_patch::OrderContents,
    skills::{MOST_SKILLS, SkillSet},
};
use serde_json::{Map, Value, json};

use crate::{
    catalogue::{Words, fill, tr},
    page_error::PageError,
    refusal::Refusal,
    shown::{group_digits, sentence},
};

/// Maximum size of the form. It fits the longest values, with three bytes for each encoded byte.
pub(super) const MOST_BYTES: usize = 64 * 1024;
/// Minimum number of rows for metadata, and number of rows that the button adds.
const ROWS: usize = 3;

/// A field of the form.
pub(super) struct FormField {
    pub(super) name: &'static str,
    pub(super) label: Words,
    /// "text", "tel", "notes" or "choice".
    pub(super) kind: &'static str,
    pub(super) value: String,
    pub(super) required: bool,
    /// Values of a choice.
    pub(super) options: Vec<String>,
    /// Why the value is invalid.
    pub(super) problem: Option<String>,
    /// Stored value, if another person has changed it.
    pub(super) stored: Option<String>,
}

/// Fields under one heading.
pub(super) struct FormSection {
    pub(super) heading: Words,
    pub(super) hint: Option<Words>,
    pub(super) fields: Vec<FormField>,
}

/// Names and values of the form, as a person filled them in. Has no `Debug`, because it may have a contact.
#[derive(Clone, Default)]
pub(super) struct FilledForm(Vec<(String, String)>);

impl FilledForm {
    pub(super) fn new(values: Vec<(String, String)>) -> Self {
        Self(values)
    }

    /// Returns the form with stored contents. It has no contact, because each view of a contact is recorded.
    pub(super) fn of_contents(contents: &OrderContents) -> Self {
        let OrderContents { pickup, details } = contents;
        let coordinates = |place: LatLng| format!("{}, {}", place.lat, place.lng);
        let dropoff = details.dropoff.as_ref();
        let mut values = vec![("pickup", coordinates(*pickup))];
        let texts = [
            ("pickup_address", details.pickup_address.clone()),
            ("dropoff", dropoff.map(|place| coordinates(place.as_lat_lng()))),
            ("dropoff_address", dropoff.and_then(|place| place.address.clone())),
            ("notes", details.notes.clone()),
            ("requires", Some(join_labels(&details.requires))),
        ];
        values.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text?))));
        for (key, value) in &details.metadata {
            values.extend([("metadata_key", key.clone()), ("metadata_value", value.clone())]);
        }
        Self(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Adds the pickup time of an order whose dispatch has not started. Other orders cannot be moved.
    pub(super) fn with_pickup_time(mut self, order: &Order) -> Self {
        let movable = order.pickup_at.filter(|_| order.status == OrderStatus::Scheduled);
        self.0.extend(movable.map(|at| ("pickup_at".to_owned(), at.to_rfc3339_opts(SecondsFormat::AutoSi, true))));
        self
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// Returns the value of a field; empty if the form does not have it.
    pub(super) fn value(&self, name: &'static str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a field on one line; `None` if it is blank.
    fn line(&self, name: &'static str) -> Option<String> {
        // Browsers send line ends of a text area as two characters.
        let line = self.value(name).split(['\r', '\n']).map(str::trim).filter(|part| !part.is_empty());
        let line = line.collect::<Vec<_>>().join(" ");
        (!line.is_empty()).then_some(line)
    }

    /// Returns the rows of metadata, with `more` empty ones.
    pub(super) fn rows(&self, more: usize) -> Vec<(String, String)> {
        let mut rows: Vec<(String, String)> = self
            .all("metadata_key")
            .zip(self.all("metadata_value"))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let wanted = (rows.len() + more).clamp(ROWS, MOST_METADATA);
        rows.resize(wanted.max(rows.len()), Default::default());
        rows
    }

    /// Returns the body of the API's request for these values. Blank values are `null`.
    pub(super) fn to_body(&self) -> Result<Map<String, Value>, PageError> {
        let pickup = self.place("pickup", "pickup_address")?;
        let dropoff = self.place("dropoff", "dropoff_address")?;
        let contact = json!({
            "name": self.line("contact_name"),
            "phone": self.line("contact_phone").map(|phone| without_separators(&phone)),
            "email": self.line("contact_email"),
        });
        let has_contact = contact.as_object().is_some_and(|members| members.values().any(|value| !value.is_null()));
        let metadata = self.metadata(&BTreeMap::new())?;
        let body = json!({
            "service_type": self.line("service_type"),
            "customer_id": self.line("customer_id"),
            "pickup_at": self.line("pickup_at"),
            "pickup": pickup,
            "dropoff": dropoff,
            "notes": self.line("notes"),
            "requires": self.labels(),
            "contact": has_contact.then_some(contact),
            "metadata": (!metadata.is_empty()).then_some(metadata),
        });
        Ok(match body {
            Value::Object(members) => members,
            _ => Map::new(),
        })
    }

    /// Returns the changes that turn the `shown` form with these contents into this form, as a JSON Merge Patch. Values
    /// that the person did not touch stay byte by byte. A blank field of the contact keeps its value, and `-` removes it.
    pub(super) fn to_patch(&self, before: &OrderContents, shown: &Self) -> Result<Value, PageError> {
        let is_changed = |names: &[&'static str]| names.iter().any(|name| self.value(name) != shown.value(name));
        let mut contact = Map::new();
        for (member, field) in [("name", "contact_name"), ("phone", "contact_phone"), ("email", "contact_email")] {
            match self.line(field) {
                None => {}
                Some(dash) if dash == "-" => drop(contact.insert(member.to_owned(), Value::Null)),
                Some(text) => {
                    let text = if member == "phone" { without_separators(&text) } else { text };
                    contact.insert(member.to_owned(), Value::String(text));
                }
            }
        }
        let mut metadata: BTreeMap<String, Option<String>> =
            before.details.metadata.keys().map(|key| (key.clone(), None)).collect();
        let filled = self.metadata(&before.details.metadata)?;
        metadata.extend(filled.into_iter().map(|(key, value)| (key, Some(value))));
        let mut patch = json!({ "contact": contact, "metadata": metadata });
        for place in [["pickup", "pickup_address"], ["dropoff", "dropoff_address"]] {
            if is_changed(&place) {
                patch[place[0]] = json!(self.place(place[0], place[1])?);
            }
        }
        if is_changed(&["notes"]) {
            patch["notes"] = json!(self.line("notes"));
        }
        if is_changed(&["requires"]) {
            patch["requires"] = json!(self.labels());
        }
        if self.has("pickup_at") && is_changed(&["pickup_at"]) {
            patch["pickup_at"] = json!(self.pickup_time()?);
        }
        Ok(patch)
    }

    fn pickup_time(&self) -> Result<String, PageError> {
        let given = self.line("pickup_at").filter(|text| text.parse::<GivenTime>().is_ok());
        given.ok_or_else(|| PageError::InvalidField("pickup_at", tr("order_form.pickup_at_rule").into()))
    }

    fn labels(&self) -> Vec<&str> {
        self.value("requires").split([',', ' ']).filter(|label| !label.is_empty()).collect()
    }

    /// Returns a place; `None` if both fields are blank.
    fn place(&self, coordinates: &'static str, address: &'static str) -> Result<Option<Value>, PageError> {
        let address = self.line(address);
        let refuse = |words: Words| Err(PageError::InvalidField(coordinates, words.into()));
        let Some(text) = self.line(coordinates) else {
            return match address {
                Some(_) => refuse(tr("order_form.address_needs_coordinates")),
                None => Ok(None),
            };
        };
        match parse_coordinates(&text) {
            Some((latitude, longitude)) => {
                Ok(Some(json!({ "latitude": latitude, "longitude": longitude, "address": address })))
            }
            None => refuse(tr("order_form.coordinates_rule")),
        }
    }

    /// Returns the filled rows. A key or value of `stored` stays as it is; blanks around others are removed.
    fn metadata(&self, stored: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, PageError> {
        let mut metadata = BTreeMap::new();
        for (key, value) in self.rows(0) {
            let old = stored.get(&key);
            let value = if old == Some(&value) { value } else { value.trim().to_owned() };
            let key = if old.is_some() { key } else { key.trim().to_owned() };
            if key.is_empty() && value.is_empty() {
                continue;
            }
            if metadata.contains_key(&key) {
                return Err(PageError::InvalidField("metadata", fill!("order_form.key_given_twice", key)));
            }
            metadata.insert(key, value);
        }
        Ok(metadata)
    }
}

/// Parses a latitude and a longitude, separated by a comma or a blank, as maps show them.
fn parse_coordinates(text: &str) -> Option<(f64, f64)> {
    let mut numbers = text.split([',', ' ']).filter(|part| !part.is_empty());
    let mut number = || numbers.next()?.parse::<f64>().ok().filter(|number| number.is_finite());
    let (latitude, longitude) = (number()?, number()?);
    numbers.next().is_none().then_some((latitude, longitude))
}

/// Returns labels as the form and the page of an order show them.
pub(super) fn join_labels(labels: &SkillSet) -> String {
    labels.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Removes the characters that people write between the digits of a phone number.
fn without_separators(phone: &str) -> String {
    phone.chars().filter(|c| !matches!(c, ' ' | '-' | '(' | ')' | '.')).collect()
}

/// Form as it is shown: the values, and the refusal of an earlier try.
#[derive(Clone, Copy)]
pub(super) struct ShownForm<'a> {
    pub(super) filled: &'a FilledForm,
    pub(super) refused: Option<&'a Refusal>,
    /// Stored values, if another person has changed them since the form was loaded.
    pub(super) stored: Option<&'a FilledForm>,
}

impl ShownForm<'_> {
    fn field(&self, name: &'static str, label: Words, kind: &'static str) -> FormField {
        let value = self.filled.value(name);
        let stored = self.stored.map(|stored| stored.value(name)).filter(|stored| *stored != value);
        FormField {
            name,
            label,
            kind,
            value: value.to_owned(),
            required: false,
            options: Vec::new(),
            problem: find_problem(self.refused, name),
            stored: stored.map(str::to_owned),
        }
    }

    fn place(&self, heading: Words, [coordinates, address]: [&'static str; 2], required: bool) -> FormSection {
        let coordinates = self.field(coordinates, tr("order_form.coordinates"), "text");
        let address = self.field(address, tr("order_form.address"), "text");
        FormSection { heading, hint: None, fields: vec![FormField { required, ..coordinates }, address] }
    }

    /// Returns the section with the values that only a new order can set.
    pub(super) fn order_section(&self, service_types: Vec<String>) -> FormSection {
        let services = self.field("service_type", tr("common.service_type"), "choice");
        let services = FormField { options: service_types, required: true, ..services };
        let customer = self.field("customer_id", tr("order_form.customer"), "text");
        let time = self.field("pickup_at", tr("order_form.pickup_at"), "text");
        FormSection { heading: tr("common.order"), hint: None, fields: vec![services, customer, time] }
    }

    /// Returns the section with the pickup time that can be moved; `None` if the form has no such field.
    pub(super) fn move_section(&self) -> Option<FormSection> {
        self.filled.has("pickup_at").then(|| {
            let time = self.field("pickup_at", tr("order_form.moved_pickup_at"), "text");
            let fields = vec![FormField { required: true, ..time }];
            FormSection { heading: tr("order.pickup_time"), hint: None, fields }
        })
    }

    /// Returns the sections with the contents of an order, without its metadata. `contact` explains the fields of the
    /// contact.
    pub(super) fn contents_sections(&self, contact: Option<Words>) -> Vec<FormSection> {
        let fields = vec![
            self.field("contact_name", tr("common.name"), "text"),
            self.field("contact_phone", tr("order_form.phone"), "tel"),
            // Not "email", because a browser would refuse the dash that removes the value.
            self.field("contact_email", tr("contact.email"), "text"),
        ]
        .into_iter()
        .map(|field| FormField { stored: None, ..field })
        .collect();
        let requires = vec![self.field("requires", tr("order_form.labels"), "text")];
        let notes = vec![self.field("notes", tr("order_form.notes"), "notes")];
        vec![
            self.place(tr("common.pickup"), ["pickup", "pickup_address"], true),
            self.place(tr("order.dropoff"), ["dropoff", "dropoff_address"], false),
            FormSection { heading: tr("order_form.person_to_call"), hint: contact, fields },
            FormSection { heading: tr("order.requires"), hint: None, fields: requires },
            FormSection { heading: tr("order.notes"), hint: None, fields: notes },
        ]
    }

    /// Returns the metadata with `more` empty rows.
    pub(super) fn metadata(&self, more: usize) -> MetadataPart {
        let list = |form: &FilledForm| {
            let pairs = form.rows(0).into_iter().filter(|(key, _)| !key.is_empty());
            pairs.map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
        };
        MetadataPart {
            rows: self.filled.rows(more),
            problem: find_problem(self.refused, "metadata"),
            stored: self.stored.map(list).filter(|stored| *stored != list(self.filled)),
        }
    }

    /// Returns the title and the text of the refusal for the notice above the form. The text names the field.
    pub(super) fn notice(&self, sections: &[FormSection]) -> Option<(String, String)> {
        let refused = self.refused?;
        let field = refused.field.and_then(|field| label_of(sections, field));
        let text = field.map(|field| fill!("order_form.at_field", field, text = refused.text));
        Some((refused.title.into(), text.unwrap_or_else(|| refused.text.clone())))
    }
}

/// Rows of metadata.
pub(super) struct MetadataPart {
    pub(super) rows: Vec<(String, String)>,
    pub(super) problem: Option<String>,
    /// Stored values, if another person has changed them.
    pub(super) stored: Option<String>,
}

/// Returns the text of the refusal if it is about this field.
fn find_problem(refused: Option<&Refusal>, field: &str) -> Option<String> {
    refused.filter(|refused| refused.field == Some(field)).map(|refused| refused.text.clone())
}

/// Returns the refusal of a value by the service. `member` is the member of the API's body, and `text` the service's
/// message, which is in English.
pub(super) fn refuse_value(member: &str, text: &str) -> PageError {
    let line = |most: usize| fill!("order_form.line_rule", most = group_digits(most as u64));
    let (field, text) = match member {
        "service_type" => ("service_type", tr("areas.service_type_not_exist").into()),
        "pickup_at" => ("pickup_at", tr("order_form.pickup_at_rule").into()),
        "customer_id" => ("customer_id", tr("order_form.customer_rule").into()),
        "pickup" | "pickup/latitude" | "pickup/longitude" => ("pickup", tr("order_form.coordinates_rule").into()),
        "dropoff" | "dropoff/latitude" | "dropoff/longitude" => ("dropoff", tr("order_form.coordinates_rule").into()),
        "pickup/address" => ("pickup_address", line(ADDRESS.most)),
        "dropoff/address" => ("dropoff_address", line(ADDRESS.most)),
        "notes" => ("notes", line(NOTES.most)),
        "contact/name" => ("contact_name", line(CONTACT_NAME.most)),
        "contact/phone" => ("contact_phone", tr("order_form.phone_rule").into()),
        "contact/email" => ("contact_email", tr("order_form.email_rule").into()),
        "metadata" => ("metadata", metadata_rule()),
        "requires" => ("requires", fill!("order_form.labels_rule", most = MOST_SKILLS)),
        _ => return PageError::Invalid(sentence(text)),
    };
    PageError::InvalidField(field, text)
}

fn metadata_rule() -> String {
    let (keys, key, value) = (MOST_METADATA, LONGEST_METADATA_KEY, LONGEST_METADATA_VALUE);
    fill!("order_form.metadata_rule", keys, key, value, bytes = group_digits(MOST_METADATA_BYTES as u64))
}

/// Returns the label of a field for the notice above the form.
fn label_of(sections: &[FormSection], field: &str) -> Option<String> {
    if field == "metadata" {
        return Some(tr("order_form.metadata").into());
    }
    let section = sections.iter().find(|section| section.fields.iter().any(|own| own.name == field))?;
    let own = section.fields.iter().find(|own| own.name == field)?;
    Some(format!("{}, {}", section.heading, own.label))
}

#[cfg(test)]
mod tests {
    use model::{details::OrderDetails, order_patch::OrderPatch};

    use super::*;

    fn form(values: &[(&str, &str)]) -> FilledForm {
        FilledForm::new(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn refused_field(values: &[(&str, &str)]) -> &'static str {
        match form(values).to_body() {
            Err(PageError::InvalidField(field, _)) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn filled_form_becomes_the_body_of_a_creation() {
        let body = form(&[
            ("service_type", "RIDE"),
            ("customer_id", " CUS-1 "),
            ("pickup", "-6.2088, 106.8456"),
            ("pickup_address", "Jalan Sudirman 1"),
            ("dropoff", "-6.1754 106.8272"),
            ("notes", "Ring twice.\r\nBlue gate."),
            ("contact_phone", "+62 812-3456 789"),
            ("requires", "van, wheelchair"),
            ("metadata_key", ""),
            ("metadata_value", ""),
            ("metadata_key", "crm_id"),
            ("metadata_value", "7"),
        ]);
        let expected = json!({
            "service_type": "RIDE", "customer_id": "CUS-1", "pickup_at": null, "notes": "Ring twice. Blue gate.",
            "requires": ["van", "wheelchair"], "pickup": { "latitude": -6.2088, "longitude": 106.8456, "address": "Jalan Sudirman 1" },
            "dropoff": { "latitude": -6.1754, "longitude": 106.8272, "address": null },
            "contact": { "name": null, "phone": "+628123456789", "email": null },
            "metadata": { "crm_id": "7" },
        });
        assert_eq!(Value::Object(body.to_body().unwrap()), expected);
        let empty = form(&[("pickup", "0,0")]).to_body().unwrap();
        assert_eq!(
            (&empty["dropoff"], &empty["contact"], &empty["metadata"]),
            (&json!(null), &json!(null), &json!(null))
        );
    }

    #[test]
    fn patch_turns_contents_into_the_form() {
        let details = OrderDetails {
            notes: Some("old ".to_owned()),
            metadata: [("crm_id", "7"), ("crm_id ", " 8"), ("old", "x")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..OrderDetails::default()
        };
        let before = OrderContents { pickup: LatLng::new(-6.2, 106.8), details };
        let same = FilledForm::of_contents(&before);
        let patch: OrderPatch = serde_json::from_value(same.to_patch(&before, &same).unwrap()).unwrap();
        assert_eq!(patch.apply_to(&before).unwrap(), before);
        let changed = form(&[
            ("pickup", "-6.3, 106.9"),
            ("dropoff", "1,2"),
            ("contact_phone", "+62 812"),
            ("contact_email", "-"),
            ("requires", "van"),
            ("metadata_key", "crm_id"),
            ("metadata_value", "8"),
        ]);
        let expected = json!({
            "pickup": { "latitude": -6.3, "longitude": 106.9, "address": null },
            "dropoff": { "latitude": 1.0, "longitude": 2.0, "address": null },
            "notes": null, "requires": ["van"], "contact": { "phone": "+62812", "email": null },
            "metadata": { "crm_id": "8", "crm_id ": null, "old": null },
        });
        assert_eq!(changed.to_patch(&before, &same).unwrap(), expected);
    }

    #[test]
    fn pickup_time_moves_only_if_changed() {
        let before = OrderContents { pickup: LatLng::new(-6.2, 106.8), details: OrderDetails::default() };
        let (noon, one) = ("2026-01-09T12:00:00Z", "2026-01-09T13:00:00+00:00");
        let shown = form(&[("pickup", "-6.2, 106.8"), ("pickup_at", noon)]);
        let moved = |time: &str| form(&[("pickup", "-6.2, 106.8"), ("pickup_at", time)]).to_patch(&before, &shown);
        assert!(moved(noon).unwrap().get("pickup_at").is_none());
        assert_eq!(moved(one).unwrap()["pickup_at"], one);
        for bad in ["", "13:00", "2026-01-09T13:00:00"] {
            assert!(matches!(moved(bad), Err(PageError::InvalidField("pickup_at", _))), "{bad}");
        }
    }

    #[test]
    fn unreadable_values_name_their_field() {
        for bad in ["-6.2", "here", "1,2,3", "NaN, 1", "106.8;-6.2"] {
            assert_eq!(refused_field(&[("pickup", bad)]), "pickup", "{bad}");
        }
        assert_eq!(refused_field(&[("pickup", "0,0"), ("dropoff_address", "Monas")]), "dropoff");
        let twice = [("metadata_key", "a"), ("metadata_value", "1"), ("metadata_key", "a "), ("metadata_value", "2")];
        assert_eq!(refused_field(&twice), "metadata");
    }

    #[test]
    fn form_has_empty_rows_up_to_the_limit() {
        let filled = form(&[("metadata_key", "a"), ("metadata_value", "1")]);
        assert_eq!(filled.rows(0).len(), ROWS);
        assert_eq!(filled.rows(ROWS).len(), ROWS + 1);
        let full = FilledForm::new(
            (0..60)
                .flat_map(|n| {
                    [("metadata_key".to_owned(), n.to_string()), ("metadata_value".to_owned(), String::new())]
                })
                .collect(),
        );
        assert_eq!(full.rows(ROWS).len(), 60, "no value is lost");
    }

    #[test]
    fn service_refusal_names_the_field_of_its_member() {
        for (member, field) in
            [("contact/phone", "contact_phone"), ("pickup/address", "pickup_address"), ("metadata", "metadata")]
        {
            let PageError::InvalidField(named, text) = refuse_value(member, "English") else { panic!("{member}") };
            assert!(named == field && text != "English", "{member}: {named} {text}");
        }
        assert!(matches!(refuse_value("unheard", "it is bad"), PageError::Invalid(text) if text == "It is bad."));
    }
}
