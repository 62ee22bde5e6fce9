//! Tickets of ticket systems on pages.

use std::fmt;

use crate::{catalogue::tr, outside_link::write_link, shown::escape};
use notify::tickets::AlertTicket;

/// The id of a ticket. It links to the ticket system if the system's address is configured.
pub(crate) struct TicketLink(AlertTicket);

impl TicketLink {
    pub(crate) fn link_all(tickets: Vec<AlertTicket>) -> Vec<Self> {
        tickets.into_iter().map(Self).collect()
    }
}

/// Writes HTML. The address is the configured one with the ticket's id.
impl fmt::Display for TicketLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AlertTicket { channel, ticket, url } = &self.0;
        match url {
            Some(url) => write_link(f, url, ticket.as_str(), &format!("{channel}, {}", tr("common.opens_new_tab"))),
            None => write!(f, "<span class=\"id\" title=\"{}\">{}</span>", escape(channel), escape(ticket)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_with_address_is_an_escaped_link() {
        let ticket = |url: Option<&str>| {
            let url = url.map(str::to_owned);
            AlertTicket { channel: "desk".to_owned(), ticket: "<4711>".into(), url }
        };
        let links = TicketLink::link_all(vec![ticket(Some("https://t.example.com/?a=1&b=2")), ticket(None)]);
        let [linked, plain] = [0, 1].map(|i| links[i].to_string());
        assert!(linked.contains("href=\"https://t.example.com/?a=1&amp;b=2\""), "{linked}");
        assert!(linked.contains("rel=\"noopener noreferrer\"") && linked.contains(">&lt;4711&gt;<"), "{linked}");
        assert_eq!(plain, "<span class=\"id\" title=\"desk\">&lt;4711&gt;</span>");
    }
}
