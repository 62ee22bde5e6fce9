//! Changes to the contents of an order that a request asks for. They follow RFC 7396 (JSON Merge Patch): a member that is
//! omitted stays, and null removes its value.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::{
    details::{Contact, OrderDetails, OrderPlace},
    field_error::FieldError,
    ids::LatLng,
    input::GivenTime,
    skills::{SkillSchema, SkillSet},
};

/// A member of a patch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Member<T> {
    /// The member is omitted.
    #[default]
    Omitted,
    /// The member is null.
    Removed,
    Set(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Member<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Removed, Self::Set))
    }
}

impl<T> Member<T> {
    fn is_omitted(&self) -> bool {
        matches!(self, Self::Omitted)
    }
}

impl<T: Clone> Member<T> {
    fn apply_to(&self, value: &mut Option<T>) {
        match self {
            Self::Omitted => {}
            Self::Removed => *value = None,
            Self::Set(new) => *value = Some(new.clone()),
        }
    }
}

/// Contents of an order with its pickup location.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderContents {
    pub pickup: LatLng,
    pub details: OrderDetails,
}

impl OrderContents {
    /// Returns the names of the members that differ, as a request names them.
    pub fn changed_fields(&self, after: &Self) -> Vec<&'static str> {
        let (old, new) = (&self.details, &after.details);
        let changes = [
            ("pickup", self.pickup != after.pickup || old.pickup_address != new.pickup_address),
            ("dropoff", old.dropoff != new.dropoff),
            ("notes", old.notes != new.notes),
            ("contact", old.contact != new.contact),
            ("metadata", old.metadata != new.metadata),
            ("requires", old.requires != new.requires),
        ];
        changes.into_iter().filter_map(|(name, is_changed)| is_changed.then_some(name)).collect()
    }

    fn find_problem(&self) -> Option<FieldError> {
        OrderPlace::new(self.pickup, None).find_problem("pickup").or_else(|| self.details.find_problem())
    }
}

/// Changes to the contents of an order. A member that is omitted stays, and null removes its value.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderPatch {
    /// Changes to the pickup. It cannot be removed. The order stays in the area that admitted it.
    #[serde(default)]
    #[schema(value_type = Option<PlacePatch>, nullable = false)]
    pub pickup: Member<PlacePatch>,
    /// Changes to the destination. Null removes it.
    #[serde(default)]
    #[schema(value_type = Option<PlacePatch>)]
    pub dropoff: Member<PlacePatch>,
    /// Notes for the driver and for staff.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1000, pattern = "^[^\\u0000]*$")]
    pub notes: Member<String>,
    /// Changes to the person to call. Null removes all members.
    #[serde(default)]
    #[schema(value_type = Option<ContactPatch>)]
    pub contact: Member<ContactPatch>,
    /// Changes to the producer's own values, by key. A null value removes its key; null removes all keys.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>, example = json!({ "crm_id": "8", "old": null }))]
    pub metadata: Member<BTreeMap<String, Option<String>>>,
    /// All labels that the driver must have, at most 16 different ones. Null removes them. Live offers stay.
    #[serde(default)]
    #[schema(value_type = Option<Vec<SkillSchema>>)]
    pub requires: Member<SkillSet>,
    /// New pickup time of an order whose dispatch has not started: RFC 3339, with its offset from UTC. It cannot be removed.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub pickup_at: Member<GivenTime>,
}

/// Changes to a place.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacePatch {
    #[serde(default)]
    #[schema(value_type = Option<f64>, nullable = false, minimum = -90, maximum = 90)]
    pub latitude: Member<f64>,
    #[serde(default)]
    #[schema(value_type = Option<f64>, nullable = false, minimum = -180, maximum = 180)]
    pub longitude: Member<f64>,
    /// Address as text for people. It stays if only the coordinates change.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 300, pattern = "^[^\\u0000]*$")]
    pub address: Member<String>,
}

/// Changes to the person to call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContactPatch {
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100, pattern = "^[^\\u0000]*$")]
    pub name: Member<String>,
    /// E.164, such as +628123456789.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^\\+[1-9][0-9]{6,14}$")]
    pub phone: Member<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 254, example = "ana@example.com")]
    pub email: Member<String>,
}

impl OrderPatch {
    /// Returns the first value that no order may have. [`apply_to`](Self::apply_to) also checks the rules that depend on
    /// the order.
    pub fn find_problem(&self) -> Option<FieldError> {
        if self.pickup_at == Member::Removed {
            let cure = "cancel the order, or set a time within the lead to start dispatch now";
            return Some(FieldError::new("pickup_at", format!("pickup_at cannot be removed: {cure}")));
        }
        let nowhere = LatLng::new(0.0, 0.0);
        let dropoff = Some(OrderPlace::new(nowhere, None));
        let any = OrderContents { pickup: nowhere, details: OrderDetails { dropoff, ..OrderDetails::default() } };
        self.apply_to(&any).err()
    }

    /// Returns the contents after the changes, or the first value that violates a rule.
    pub fn apply_to(&self, before: &OrderContents) -> Result<OrderContents, FieldError> {
        let old = &before.details;
        let pickup = OrderPlace::new(before.pickup, old.pickup_address.clone());
        let pickup = apply_place("pickup", &self.pickup, Some(&pickup))?.ok_or_else(|| cannot_remove("pickup"))?;
        let mut details = OrderDetails {
            pickup_address: pickup.address.clone(),
            dropoff: apply_place("dropoff", &self.dropoff, old.dropoff.as_ref())?,
            ..old.clone()
        };
        self.notes.apply_to(&mut details.notes);
        match &self.contact {
            Member::Omitted => {}
            Member::Removed => details.contact = None,
            Member::Set(changes) => {
                let contact = changes.apply_to(details.contact.take().unwrap_or_default());
                details.contact = Some(contact).filter(|contact| !contact.is_empty());
            }
        }
        match &self.metadata {
            Member::Omitted => {}
            Member::Removed => details.metadata.clear(),
            Member::Set(changes) => apply_metadata(changes, &mut details.metadata),
        }
        match &self.requires {
            Member::Omitted => {}
            Member::Removed => details.requires.clear(),
            Member::Set(labels) => details.requires.clone_from(labels),
        }
        let after = OrderContents { pickup: pickup.as_lat_lng(), details };
        // SQL accepts more contacts than the API. A stored contact must not prevent other changes.
        let mut checked = after.clone();
        checked.details.contact = checked.details.contact.filter(|contact| Some(contact) != old.contact.as_ref());
        checked.find_problem().map_or(Ok(after), Err)
    }
}

fn cannot_remove(name: &'static str) -> FieldError {
    FieldError::new(name, format!("{name} cannot be removed"))
}

/// Returns the place after its changes. A new place needs both coordinates.
fn apply_place(
    name: &'static str,
    patch: &Member<PlacePatch>,
    before: Option<&OrderPlace>,
) -> Result<Option<OrderPlace>, FieldError> {
    let changes = match patch {
        Member::Omitted => return Ok(before.cloned()),
        Member::Removed => return Ok(None),
        Member::Set(changes) => changes,
    };
    if [&changes.latitude, &changes.longitude].contains(&&Member::Removed) {
        return Err(FieldError::new(name, format!("latitude and longitude of {name} cannot be removed")));
    }
    if before.is_none() && (changes.latitude.is_omitted() || changes.longitude.is_omitted()) {
        return Err(FieldError::new(name, format!("{name} must have latitude and longitude")));
    }
    let mut after = before.cloned().unwrap_or_else(|| OrderPlace::new(LatLng::new(0.0, 0.0), None));
    if let Member::Set(latitude) = changes.latitude {
        after.latitude = latitude;
    }
    if let Member::Set(longitude) = changes.longitude {
        after.longitude = longitude;
    }
    changes.address.apply_to(&mut after.address);
    Ok(Some(after))
}

impl ContactPatch {
    fn apply_to(&self, mut contact: Contact) -> Contact {
        self.name.apply_to(&mut contact.name);
        self.phone.apply_to(&mut contact.phone);
        self.email.apply_to(&mut contact.email);
        contact
    }
}

fn apply_metadata(changes: &BTreeMap<String, Option<String>>, metadata: &mut BTreeMap<String, String>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(metadata.insert(key.clone(), value.clone())),
            None => drop(metadata.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn contents() -> OrderContents {
        OrderContents {
            pickup: LatLng::new(-6.2, 106.8),
            details: OrderDetails {
                pickup_address: Some("Gate 2".to_owned()),
                dropoff: None,
                notes: Some("ring twice".to_owned()),
                contact: Some(Contact { name: Some("Ana".to_owned()), ..Contact::default() }),
                metadata: [("crm_id".to_owned(), "7".to_owned()), ("old".to_owned(), "x".to_owned())].into(),
                requires: ["van".to_owned()].into(),
            },
        }
    }

    #[track_caller]
    fn apply(patch: Value) -> Result<OrderContents, String> {
        let patch: OrderPatch = serde_json::from_value(patch).map_err(|error| error.to_string())?;
        patch.apply_to(&contents()).map_err(|error| format!("{}: {}", error.field, error.message))
    }

    #[track_caller]
    fn changed(patch: Value) -> Vec<&'static str> {
        contents().changed_fields(&apply(patch).unwrap())
    }

    #[test]
    fn omitted_members_stay() {
        assert_eq!(apply(json!({})).unwrap(), contents());
        assert_eq!(apply(json!({ "pickup": {}, "contact": {}, "metadata": {} })).unwrap(), contents());
        let moved = apply(json!({ "pickup": { "latitude": -6.3, "longitude": 106.9 } })).unwrap();
        assert_eq!((moved.pickup, moved.details.clone()), (LatLng::new(-6.3, 106.9), contents().details));
        assert_eq!(changed(json!({ "pickup": { "address": "Gate 3" } })), ["pickup"]);
        assert_eq!(changed(json!({ "notes": "ring twice", "metadata": { "crm_id": "7" } })), [""; 0]);
    }

    #[test]
    fn null_removes_a_value() {
        let after =
            apply(json!({ "pickup": { "address": null }, "notes": null, "contact": { "name": null } })).unwrap();
        assert_eq!((after.details.pickup_address, after.details.notes, after.details.contact), (None, None, None));
        let after = apply(json!({ "metadata": { "old": null, "missing": null, "crm_id": "8" } })).unwrap();
        assert_eq!(after.details.metadata, [("crm_id".to_owned(), "8".to_owned())].into());
        assert!(apply(json!({ "metadata": null, "contact": null })).unwrap().details.metadata.is_empty());
        assert_eq!(changed(json!({ "requires": ["van", "lift"] })), ["requires"]);
        assert!(apply(json!({ "requires": null })).unwrap().details.requires.is_empty());
        assert_eq!(changed(json!({ "dropoff": null, "contact": null })), ["contact"]);
    }

    #[test]
    fn place_needs_both_coordinates() {
        let place = json!({ "latitude": 1, "longitude": 2, "address": "Tower 9" });
        let after = apply(json!({ "dropoff": place })).unwrap().details.dropoff;
        assert_eq!(after, Some(OrderPlace::new(LatLng::new(1.0, 2.0), Some("Tower 9".to_owned()))));
        for (patch, message) in [
            (json!({ "dropoff": { "latitude": 1 } }), "dropoff: dropoff must have latitude and longitude"),
            (json!({ "dropoff": { "latitude": 91, "longitude": 1 } }), "dropoff: dropoff 91, 1 is no place on earth"),
            (json!({ "pickup": null }), "pickup: pickup cannot be removed"),
            (json!({ "pickup": { "latitude": null } }), "pickup: latitude and longitude of pickup cannot be removed"),
        ] {
            assert_eq!(apply(patch.clone()), Err(message.to_owned()), "{patch}");
        }
    }

    #[test]
    fn values_keep_the_rules_of_a_creation() {
        for (patch, field) in [
            (json!({ "notes": "" }), "notes"),
            (json!({ "pickup": { "address": "a\nb" } }), "pickup/address"),
            (json!({ "contact": { "phone": "0812" } }), "contact/phone"),
            (json!({ "metadata": { "k": "v".repeat(501) } }), "metadata"),
        ] {
            let patch: OrderPatch = serde_json::from_value(patch).unwrap();
            assert_eq!(patch.find_problem().map(|error| error.field), Some(field));
        }
        let address: OrderPatch = serde_json::from_value(json!({ "dropoff": { "address": "Tower 9" } })).unwrap();
        assert_eq!(address.find_problem(), None, "only the order shows whether it has a destination");
        assert!(apply(json!({ "service_type": "RIDE" })).unwrap_err().contains("service_type"));
        assert!(apply(json!({ "dropoff": { "city": "Jakarta" } })).unwrap_err().contains("city"));
    }
}
