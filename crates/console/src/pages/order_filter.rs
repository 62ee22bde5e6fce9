//! Filter of the list of orders, as its address and its forms have it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    catalogue::{Words, tr},
    form::{optional_text, parse_time, write_query},
    page_error::PageError,
    refusal::refused_filter,
    shown::{Chip, group_digits},
};
use model::order::OrderStatus;
use orders::search::OrderSearch;

/// Fields of a filter, in the order of their values in an address.
pub(super) const FIELDS: [&str; 9] =
    ["q", "status", "area", "service_type", "driver", "customer", "held", "from", "to"];

/// Filter in the address. An empty value matches everything.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OrderListQuery {
    pub(super) q: String,
    pub(super) status: String,
    pub(super) area: String,
    pub(super) service_type: String,
    pub(super) driver: String,
    pub(super) customer: String,
    pub(super) held: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) cursor: String,
    pub(super) did: Option<String>,
}

impl OrderListQuery {
    /// Returns the fields of the filter with their values.
    fn fields(&self) -> [(&'static str, &str); 9] {
        let Self { q, status, area, service_type, driver, customer, held, from, to, .. } = self;
        let values: [&str; 9] = [q, status, area, service_type, driver, customer, held, from, to];
        std::array::from_fn(|i| (FIELDS[i], values[i]))
    }

    /// Returns the address of the orders after `cursor`.
    pub(super) fn to_query(&self, cursor: &str) -> String {
        write_query(&[self.fields().as_slice(), &[("cursor", cursor)]].concat())
    }

    /// Returns the values of the filter by their fields, without empty ones.
    pub(super) fn to_values(&self) -> BTreeMap<String, String> {
        let filled = self.fields().map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        filled.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Returns whether the filter uses fields that are hidden by default.
    pub(super) fn is_narrow(&self) -> bool {
        [&self.area, &self.driver, &self.customer, &self.held, &self.from, &self.to].iter().any(|text| !text.is_empty())
    }

    /// Returns the number of orders with this status, and their address.
    pub(super) fn link_to(&self, status: OrderStatus, orders: i64) -> (Chip, String, String) {
        let fields = self.fields().map(|(name, value)| (name, if name == "status" { status.as_str() } else { value }));
        let address = write_query(&fields);
        (Chip::of_status(status), group_digits(orders.unsigned_abs()), address)
    }

    /// Replaces the values by those of a refused filter, for the form. `path` is that of the page.
    pub(super) fn with_filled_fields(self, path: &str) -> Self {
        let kept = |name: &str, own: String| refused_filter(path, name).unwrap_or(own);
        Self {
            q: kept("q", self.q),
            status: kept("status", self.status),
            area: kept("area", self.area),
            service_type: kept("service_type", self.service_type),
            driver: kept("driver", self.driver),
            customer: kept("customer", self.customer),
            held: kept("held", self.held),
            from: kept("from", self.from),
            to: kept("to", self.to),
            ..self
        }
    }

    pub(super) fn to_search(&self) -> Result<OrderSearch, PageError> {
        let text = |name: Words, value: &str| optional_text(name, Some(value));
        let any_id = text(tr("orders.search"), &self.q)?;
        if any_id.as_ref().is_some_and(|id| id.len() > 128) {
            return Err(PageError::Invalid(tr("orders.id_at_most_128").into()));
        }
        let status = text(tr("common.state"), &self.status)?.map(|word| parse_status(&word)).transpose()?;
        let held = match self.held.as_str() {
            "" => None,
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                let text = tr("orders.filter_held_true_false");
                return Err(PageError::Invalid(text.into()));
            }
        };
        Ok(OrderSearch {
            status,
            area: text(tr("common.area"), &self.area)?.map(Into::into),
            service_type: text(tr("common.service_type"), &self.service_type)?.map(Into::into),
            driver: text(tr("common.driver"), &self.driver)?.map(Into::into),
            customer: text(tr("common.customer"), &self.customer)?,
            owner: None,
            closed: None,
            held,
            from: parse_time(tr("orders.created_from_utc"), &self.from)?,
            to: parse_time(tr("common.to_utc"), &self.to)?,
            any_id,
            metadata: BTreeMap::new(),
        })
    }
}

fn parse_status(word: &str) -> Result<OrderStatus, PageError> {
    let found = OrderStatus::ALL.into_iter().find(|status| status.as_str() == word);
    let unknown = tr("orders.state_not_exist_orders");
    found.ok_or_else(|| PageError::Invalid(unknown.into()))
}
