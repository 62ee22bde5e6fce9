//! `[console.links]`: addresses of other systems that pages of the console link to.
//!
//! A template such as `https://crm.example.com/{metadata.crm_id}` has placeholders, which a page replaces by
//! percent-encoded values. Placeholders are allowed only behind the host, so no value changes the host of a link.

use std::fmt::Write as _;

use foundation::config::secret::parse_web_address;
use garde::Validate;
use model::details::LONGEST_METADATA_KEY;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleLinks {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(be_link)))]
    pub order: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(be_link)))]
    pub customer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(be_link)))]
    pub driver: Option<String>,
    /// Link of each booking at a partner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(inner(custom(be_link)))]
    pub booking: Option<String>,
}

impl ConsoleLinks {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn be_link(template: &str, (): &()) -> garde::Result {
    LinkTemplate::parse(template).map(drop).map_err(garde::Error::new)
}

/// Value that a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkValue {
    /// Id of the linked order, customer, driver or booking.
    Id,
    OrderId,
    CustomerId,
    DriverId,
    Partner,
    PartnerJobId,
    ServiceType,
    AreaId,
    /// Value of this key in the order's metadata.
    Metadata(String),
}

/// Names of all placeholders, except those of metadata.
const PLACEHOLDERS: [(&str, LinkValue); 8] = [
    ("id", LinkValue::Id),
    ("order_id", LinkValue::OrderId),
    ("customer_id", LinkValue::CustomerId),
    ("driver_id", LinkValue::DriverId),
    ("partner", LinkValue::Partner),
    ("partner_job_id", LinkValue::PartnerJobId),
    ("service_type", LinkValue::ServiceType),
    ("area_id", LinkValue::AreaId),
];
const METADATA: &str = "metadata.";

impl LinkValue {
    fn parse(name: &str) -> Option<Self> {
        let key = name.strip_prefix(METADATA).filter(|key| (1..=LONGEST_METADATA_KEY).contains(&key.chars().count()));
        if let Some(key) = key {
            return Some(Self::Metadata(key.to_owned()));
        }
        PLACEHOLDERS.into_iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }
}

/// An address with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTemplate {
    host: String,
    /// Text before the first placeholder.
    start: String,
    /// Each placeholder, with the text behind it.
    rest: Vec<(LinkValue, String)>,
}

impl LinkTemplate {
    /// Parses a template. The error is worded to follow the name of the setting.
    pub fn parse(template: &str) -> Result<Self, String> {
        let address = template.strip_prefix("https://").ok_or("must start with https://")?;
        let host = address.split(['/', '?', '#', '\\']).next().unwrap_or_default();
        if host.contains(['{', '}']) || host.len() == address.len() {
            return Err("must have its host, without a placeholder, before the first single slash".to_owned());
        }
        if host.contains('@') {
            return Err("must have no user and no password, because pages show it".to_owned());
        }
        let mut parts = template.split('{');
        let start = parts.next().unwrap_or_default().to_owned();
        let mut rest = Vec::new();
        for part in parts {
            let (name, text) = part.split_once('}').ok_or("must have a closing brace for each opening one")?;
            let value = LinkValue::parse(name).ok_or_else(|| describe_unknown(name))?;
            rest.push((value, text.to_owned()));
        }
        if rest.is_empty() {
            return Err(format!("must contain a placeholder: {}", list_placeholders()));
        }
        let link = Self { host: host.to_owned(), start, rest };
        link.check_address()?;
        Ok(link)
    }

    fn check_address(&self) -> Result<(), String> {
        if self.start.contains('}') || self.rest.iter().any(|(_, text)| text.contains('}')) {
            return Err("must have an opening brace for each closing one".to_owned());
        }
        // A browser must not read the address as another one.
        let filled = self.fill(|_| Some("0".to_owned())).unwrap_or_default();
        if parse_web_address("link", &filled).is_ok_and(|url| url.as_str() == filled) {
            return Ok(());
        }
        Err("must be a web address as browsers write it: its host in small letters, without blanks and '..'".to_owned())
    }

    /// Returns the host, with its port if the template has one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the keys of the metadata that the address needs.
    pub fn metadata_keys(&self) -> impl Iterator<Item = &str> {
        self.rest.iter().filter_map(|(value, _)| match value {
            LinkValue::Metadata(key) => Some(key.as_str()),
            _ => None,
        })
    }

    /// Returns the address with these values. Returns `None` if a value is missing, or if it would change the path.
    pub fn fill(&self, find_value: impl Fn(&LinkValue) -> Option<String>) -> Option<String> {
        let mut address = self.start.clone();
        for (placeholder, text) in &self.rest {
            let value = find_value(placeholder)?;
            // Browsers remove these parts of a path, even if they are percent-encoded.
            if matches!(value.as_str(), "" | "." | "..") {
                return None;
            }
            for byte in value.bytes() {
                if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                    address.push(char::from(byte));
                } else {
                    write!(address, "%{byte:02X}").ok()?;
                }
            }
            address.push_str(text);
        }
        Some(address)
    }
}

fn describe_unknown(name: &str) -> String {
    format!("must have no unknown placeholder such as {{{name}}}; known are {}", list_placeholders())
}

fn list_placeholders() -> String {
    let known = PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", ");
    format!("{known} and {{{METADATA}KEY}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, value: &str) -> Option<String> {
        LinkTemplate::parse(template).unwrap().fill(|_| Some(value.to_owned()))
    }

    #[test]
    fn values_are_percent_encoded_in_path_query_and_fragment() {
        for (template, link) in [
            ("https://crm.example.com/{id}", "https://crm.example.com/a%20%26%2F%C3%A9"),
            (
                "https://crm.example.com:8443/o/{metadata.crm id}/view",
                "https://crm.example.com:8443/o/a%20%26%2F%C3%A9/view",
            ),
            (
                "https://crm.example.com/?id={id}&view=all#{id}",
                "https://crm.example.com/?id=a%20%26%2F%C3%A9&view=all#a%20%26%2F%C3%A9",
            ),
        ] {
            assert_eq!(filled(template, "a &/é").as_deref(), Some(link));
        }
        assert_eq!(LinkTemplate::parse("https://h.example:8443/{id}").unwrap().host(), "h.example:8443");
    }

    #[test]
    fn no_value_changes_host_or_path() {
        let template = "https://crm.example.com/orders/{id}/view";
        for value in ["@evil.example/", "//evil.example", "../x", "a\\b", "?y#z", "\u{0}\u{202e}", "%2e%2e"] {
            let link = filled(template, value).unwrap();
            let url: reqwest::Url = link.parse().unwrap();
            assert_eq!((url.host_str(), url.query(), url.fragment()), (Some("crm.example.com"), None, None), "{link}");
            assert_eq!(url.path_segments().unwrap().count(), 3, "{link}");
        }
        for missing in ["", ".", ".."] {
            assert_eq!(filled(template, missing), None, "{missing:?}");
        }
        let two = LinkTemplate::parse("https://crm.example.com/{order_id}/{metadata.crm_id}").unwrap();
        assert_eq!(two.fill(|value| (*value == LinkValue::OrderId).then(|| "ORD-1".to_owned())), None);
    }

    #[test]
    fn bad_template_is_refused_with_its_cause() {
        for (template, problem) in [
            ("http://crm.example.com/{id}", "must start with https://"),
            ("javascript:alert({id})", "must start with https://"),
            ("{id}", "must start with https://"),
            ("https://{id}.example.com/", "before the first single slash"),
            ("https://crm.example.com{id}/", "before the first single slash"),
            ("https://crm.example.com:{id}/x", "before the first single slash"),
            ("https://crm.example.com", "before the first single slash"),
            ("https://anna:pw@crm.example.com/{id}", "no user"),
            ("https:///{id}", "must be a web address"),
            ("https://crm.example.com/a b/{id}", "must be a web address"),
            ("https://crm.example.com/../{id}", "must be a web address"),
            ("https://crm.example.com\\{id}", "must be a web address"),
            ("https://crm.example.com/{crm_id}", "unknown placeholder such as {crm_id}; known are {id}, {order_id}"),
            ("https://crm.example.com/{metadata.}", "unknown placeholder such as {metadata.}"),
            ("https://crm.example.com/{ID}", "unknown placeholder such as {ID}"),
            ("https://crm.example.com/{id", "a closing brace for each opening one"),
            ("https://crm.example.com/id}/{id}", "an opening brace for each closing one"),
            ("https://crm.example.com/orders", "must contain a placeholder"),
        ] {
            let error = LinkTemplate::parse(template).unwrap_err();
            assert!(error.contains(problem), "{template}: {error}");
        }
    }
}
