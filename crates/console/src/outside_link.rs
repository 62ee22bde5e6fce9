//! Links to pages of other systems, from the templates of `[console.links]`.

use std::fmt;

use settings::{LinkTemplate, LinkValue};

use crate::{
    catalogue::{fill, tr},
    shown::escape,
};
use model::{ids::DriverId, view::OrderView};

/// A link to another system.
#[derive(Debug, Clone)]
pub(crate) struct OutsideLink {
    host: String,
    address: String,
}

impl OutsideLink {
    /// Returns the link of a template with these values. Returns `None` without a template or if a value is missing.
    fn new(template: Option<&str>, find_value: impl Fn(&LinkValue) -> Option<String>) -> Option<Self> {
        // The configuration check has parsed the template.
        let template = LinkTemplate::parse(template?).ok()?;
        Some(Self { host: template.host().to_owned(), address: template.fill(find_value)? })
    }

    /// Returns the link of something on the page of an order. `id` is its own id, and `job` its job id at the partner.
    pub(crate) fn of_order(
        template: Option<&str>,
        order: &OrderView,
        id: Option<&str>,
        job: Option<&str>,
    ) -> Option<Self> {
        Self::new(template, |value| {
            match value {
                LinkValue::Id => id,
                LinkValue::OrderId => Some(order.order_id.as_str()),
                LinkValue::CustomerId => order.customer_id.as_deref(),
                LinkValue::DriverId => order.driver_id.as_deref(),
                LinkValue::Partner => order.partner.as_deref(),
                LinkValue::PartnerJobId => job,
                LinkValue::ServiceType => Some(order.service_type.as_str()),
                LinkValue::AreaId => order.area_id.as_deref(),
                LinkValue::Metadata(key) => order.metadata.get(key).map(String::as_str),
            }
            .map(str::to_owned)
        })
    }

    /// Returns the link of a driver, on the driver's page.
    pub(crate) fn of_driver(template: Option<&str>, driver: &DriverId) -> Option<Self> {
        let is_known = |value: &LinkValue| matches!(value, LinkValue::Id | LinkValue::DriverId);
        Self::new(template, |value| is_known(value).then(|| driver.to_string()))
    }
}

/// Writes HTML.
impl fmt::Display for OutsideLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = fill!("order.open_elsewhere", host = self.host);
        write_link(f, &self.address, &text, tr("common.opens_new_tab").get())
    }
}

/// Writes HTML of a link that opens a page of another system in a new tab. The page learns nothing about this one.
pub(crate) fn write_link(f: &mut fmt::Formatter<'_>, address: &str, text: &str, title: &str) -> fmt::Result {
    write!(
        f,
        "<a class=\"id ticket\" href=\"{}\" target=\"_blank\" rel=\"noopener noreferrer\" title=\"{}\">{}<span aria-hidden=\"true\"> ↗</span></a>",
        escape(address),
        escape(title),
        escape(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_escaped_and_opens_apart() {
        let template = Some("https://hr.example.com/?n={id}&view=all");
        let link = OutsideLink::of_driver(template, &"D-1".into()).unwrap().to_string();
        assert!(link.contains("href=\"https://hr.example.com/?n=D-1&amp;view=all\""), "{link}");
        assert!(link.contains("rel=\"noopener noreferrer\"") && link.contains("hr.example.com"), "{link}");
        assert!(OutsideLink::of_driver(Some("https://hr.example.com/{order_id}"), &"D-1".into()).is_none());
        assert!(OutsideLink::of_driver(None, &"D-1".into()).is_none());
    }
}
