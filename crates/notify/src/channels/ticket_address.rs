//! Web addresses of tickets: a configured address with the ticket's id inserted. A link therefore never points to a
//! host from a response or a row.

use std::fmt::Write as _;

use model::ids::TicketId;

use foundation::config::{
    error::{ConfigError, ensure_fits},
    secret::{ensure_encrypted, parse_web_address},
};

/// Placeholder for the ticket's id.
const PLACEHOLDER: &str = "{ticket}";
const NAME: &str = "ticket_url";

/// An address such as `https://tickets.example.com/tickets/{ticket}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketAddress {
    before: String,
    after: String,
}

impl TicketAddress {
    /// Parses an address that contains the placeholder once, after the host.
    pub fn parse(template: &str) -> Result<Self, ConfigError> {
        let (before, after) = template
            .split_once(PLACEHOLDER)
            .filter(|(_, after)| !after.contains(PLACEHOLDER))
            .ok_or_else(|| ConfigError::new(format!("{NAME} must contain {PLACEHOLDER} once, for the ticket's id")))?;
        let start = parse_web_address(NAME, before)?;
        // "https://h" alone parses as "https://h/", so the id would become part of the host.
        let has_path = before.splitn(4, '/').count() == 4;
        ensure_fits(has_path, format_args!("{NAME} must have {PLACEHOLDER} behind its host and a slash"))?;
        ensure_encrypted(NAME, &start)?;
        let is_public = start.username().is_empty() && start.password().is_none();
        ensure_fits(is_public, format_args!("{NAME} must have no user and no password: pages show it"))?;
        let whole = parse_web_address(NAME, &format!("{start}0{after}"))?;
        ensure_fits(whole.origin() == start.origin(), format_args!("{NAME} is not valid"))?;
        Ok(Self { before: start.into(), after: after.to_owned() })
    }

    pub fn link_to(&self, ticket: &TicketId) -> String {
        let mut link = self.before.clone();
        for byte in ticket.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                link.push(char::from(byte));
            } else {
                let _ = write!(link, "%{byte:02X}");
            }
        }
        link + &self.after
    }
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::*;

    #[test]
    fn ticket_link_contains_the_ticket_id() {
        let path = TicketAddress::parse("https://tickets.example.com/tickets/{ticket}").unwrap();
        assert_eq!(path.link_to(&"4711".into()), "https://tickets.example.com/tickets/4711");
        let query = TicketAddress::parse("https://tickets.example.com/open?id={ticket}&view=all#top").unwrap();
        assert_eq!(query.link_to(&"OPS-7".into()), "https://tickets.example.com/open?id=OPS-7&view=all#top");
        TicketAddress::parse("http://127.0.0.1:8080/{ticket}").unwrap();
    }

    #[test]
    fn ticket_id_cannot_change_host() {
        let address = TicketAddress::parse("https://tickets.example.com/{ticket}/view").unwrap();
        for id in ["@evil.example/", "//evil.example", "../../x?y#z", "a b\"><script>", "é%2f", "\\evil"] {
            let link = address.link_to(&id.into());
            let url: Url = link.parse().unwrap();
            assert_eq!(url.host_str(), Some("tickets.example.com"), "{link}");
            assert_eq!((url.query(), url.fragment()), (None, None), "{link}");
            let rest = link.strip_prefix("https://tickets.example.com/").unwrap();
            assert!(rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~%/".contains(&b)), "{link}");
            assert_eq!(rest.matches('/').count(), 1, "{link}");
        }
    }

    #[test]
    fn unsafe_ticket_address_is_refused() {
        for (template, problem) in [
            ("https://tickets.example.com/tickets", "once"),
            ("https://tickets.example.com/{ticket}/{ticket}", "once"),
            ("https://{ticket}.example.com/", "not valid"),
            ("https://tickets{ticket}", "behind its host"),
            ("https://tickets.example.com{ticket}/", "behind its host"),
            ("http://tickets.example.com/{ticket}", "must be https"),
            ("javascript:{ticket}", "http or https"),
            ("https://anna:pw@tickets.example.com/{ticket}", "no user"),
            ("{ticket}", "not valid"),
        ] {
            let error = TicketAddress::parse(template).unwrap_err().to_string();
            assert!(error.contains(problem), "{template}: {error}");
        }
    }
}
