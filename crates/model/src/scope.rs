//! Scope of staff: the orders that a key or a user may read.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    ids::{AreaId, PartnerName, ServiceType},
    order::Order,
};

/// Maximum entries of a list.
const MOST_ENTRIES: usize = 100;

/// Orders that a member of staff may read. An absent list means all. An order must be in each list, so an order without
/// an area is outside of a scope with areas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scope {
    #[serde(deserialize_with = "read_list", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false, min_items = 1, max_items = 100)]
    pub areas: Option<Vec<AreaId>>,
    #[serde(deserialize_with = "read_list", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false, min_items = 1, max_items = 100)]
    pub service_types: Option<Vec<ServiceType>>,
    /// Partners of the latest attempt of an order.
    #[serde(deserialize_with = "read_list", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false, min_items = 1, max_items = 100)]
    pub partners: Option<Vec<PartnerName>>,
    /// Names of the producers that own the orders.
    #[serde(deserialize_with = "read_list", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_items = 1, max_items = 100)]
    pub producers: Option<Vec<String>>,
}

/// Reads a list, and refuses null: only an absent list means all.
fn read_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(list: D) -> Result<Option<Vec<T>>, D::Error> {
    Vec::deserialize(list).map(Some)
}

impl Scope {
    /// Returns whether the order is in each list.
    pub fn contains(&self, order: &Order) -> bool {
        allows(self.areas.as_deref(), order.area_id.as_deref())
            && allows(self.service_types.as_deref(), Some(order.service_type.as_str()))
            && allows(self.partners.as_deref(), order.partner.as_deref())
            && allows(self.producers.as_deref(), order.owner.as_deref())
    }

    /// Returns a list that has no entry or too many, with its problem.
    pub fn find_problem(&self) -> Option<(&'static str, String)> {
        let lengths = [
            ("areas", self.areas.as_ref().map(Vec::len)),
            ("service_types", self.service_types.as_ref().map(Vec::len)),
            ("partners", self.partners.as_ref().map(Vec::len)),
            ("producers", self.producers.as_ref().map(Vec::len)),
        ];
        let (list, _) =
            lengths.into_iter().find(|(_, length)| length.is_some_and(|n| !(1..=MOST_ENTRIES).contains(&n)))?;
        Some((list, format!("must have 1 to {MOST_ENTRIES} entries; leave the list out for all")))
    }

    /// Returns whether the scope has no list, so that it contains every order.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

fn allows<T: AsRef<str>>(list: Option<&[T]>, value: Option<&str>) -> bool {
    list.is_none_or(|list| value.is_some_and(|value| list.iter().any(|entry| entry.as_ref() == value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::order::fixture::created_snapshot;

    fn scope(text: &str) -> Scope {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn order_must_be_in_every_list() {
        let order = Order { area_id: Some("A".into()), service_type: "RIDE".into(), ..created_snapshot().order };
        for (text, is_in) in [
            ("{}", true),
            (r#"{"areas": ["A", "B"]}"#, true),
            (r#"{"areas": ["B"]}"#, false),
            (r#"{"areas": ["A"], "service_types": ["RIDE"]}"#, true),
            (r#"{"areas": ["A"], "service_types": ["TAXI"]}"#, false),
        ] {
            assert_eq!(scope(text).contains(&order), is_in, "{text}");
        }
    }

    #[test]
    fn order_without_value_is_outside_of_list() {
        let order = created_snapshot().order;
        for text in [r#"{"areas": ["A"]}"#, r#"{"partners": ["bbd"]}"#, r#"{"producers": ["shop"]}"#] {
            assert!(!scope(text).contains(&order), "{text}");
        }
    }

    #[test]
    fn empty_list_is_refused() {
        assert_eq!(scope(r#"{"areas": []}"#).find_problem().map(|(list, _)| list), Some("areas"));
        assert_eq!(scope(r#"{"areas": ["A"]}"#).find_problem(), None);
    }
}
