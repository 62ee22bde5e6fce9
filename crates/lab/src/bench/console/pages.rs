//! Visited pages: all links of an admin's menu, the first page of each kind that their rows lead to, and lists with several
//! filters.

use std::collections::BTreeSet;

use super::{
    ConsoleOptions,
    browser::Browser,
    fill::{self, EXPLAINED, filled_id},
    markup,
};

/// Lists with filters: a name, and a path below the console's. Some lists find nothing and therefore have most rows to
/// search: no filled order was cancelled by its user. Other pages follow that no row leads to.
const FILTERED: [(&str, &str); 25] = [
    ("Orders: with a driver", "/orders?status=DRIVER_ASSIGNED"),
    ("Orders: PENDING", "/orders?status=PENDING"),
    ("Orders: under review", "/orders?held=true"),
    ("Orders: completed today", "/orders?status=COMPLETED"),
    ("Orders: cancelled today, none", "/orders?status=CANCELLED_BY_USER"),
    ("Orders: of an area", "/orders?area=A-7"),
    ("Orders: of a service type", "/orders?service_type=RENT"),
    ("Orders: of an area that has none", "/orders?area=NOWHERE"),
    ("Orders: of a driver", "/orders?driver=D7"),
    ("Orders: of a customer", "/orders?customer=CUS-7"),
    ("Orders: a driver's id", "/orders?q=D7"),
    ("Orders: an unknown id", "/orders?q=UNKNOWN-1"),
    ("Refunds: begun", "/refunds?state=started"),
    ("Alerts: all", "/alerts?show=all"),
    ("Dead letters: of an error", "/dead?error=refused"),
    ("Desk: drivers nearby", "/desk?order=M000000010"),
    ("New order", "/new-order"),
    ("Order: change contents", "/orders/N000000001/contents"),
    ("Scheduled: an area", "/scheduled?area=A-7"),
    ("Search: metadata", "/search?q=branch=B-7"),
    ("Search: an unknown id", "/search?q=UNKNOWN-1"),
    ("Map: 40 km", "/map?at=-6.1,106.9&km=40"),
    ("Charts: a week", "/charts?span=7d"),
    ("Charts: a week of a queue", "/charts?of=dispatch-queue&span=7d"),
    ("Area: another threshold", "/areas/A-7?hours=24&threshold=50"),
];
/// Number of orders whose pages are visited in turn.
const ORDERS: u32 = 50;

/// A page, and the addresses that are visited in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConsolePage {
    pub(super) name: String,
    /// Addresses; at least one.
    pub(super) paths: Vec<String>,
}

impl ConsolePage {
    fn new(name: &str, path: String) -> Self {
        Self { name: name.to_owned(), paths: vec![path] }
    }

    /// Returns the address of the visit with this number.
    pub(super) fn path_of_visit(&self, visit: u32) -> &str {
        &self.paths[visit as usize % self.paths.len()]
    }
}

/// Finds the pages of the console by following links.
pub(super) async fn find_pages(browser: &Browser, options: &ConsoleOptions) -> Result<Vec<ConsolePage>, String> {
    let home = browser.home();
    let orders = format!("{home}/orders");
    let first = browser.open_page(home).await?;
    let mut pages = Vec::new();
    let mut details = Vec::new();
    let mut known = BTreeSet::from([orders.clone(), home.to_owned()]);
    for link in markup::menu_links(&first.html) {
        let page = browser.open_page(&link.path).await?;
        if let Some(path) = detail_of(&page.html, &mut known) {
            details.push(ConsolePage::new(&format!("{}: the first", link.label), path));
        }
        pages.push(ConsolePage::new(&link.label, link.path));
    }
    pages.extend(FILTERED.map(|(name, path)| ConsolePage::new(name, format!("{home}{path}"))));
    let order_page = |name: &str, ids: Vec<String>| ConsolePage {
        name: name.to_owned(),
        paths: ids.into_iter().map(|id| format!("{orders}/{id}")).collect(),
    };
    let varied = fill::varied_count(options.open.get());
    let closed = options.closed.get().min(EXPLAINED);
    let samples = [
        (
            "Order: waits for a driver",
            spread(options.open.get() - varied).map(|n| filled_id('N', n)).collect::<Vec<_>>(),
        ),
        ("Order: with a driver or a person", spread(varied).map(|n| filled_id('M', n)).collect()),
        ("Order: closed", spread(closed).map(|n| filled_id('C', n)).collect()),
    ];
    pages.extend(samples.into_iter().filter(|(_, ids)| !ids.is_empty()).map(|(name, ids)| order_page(name, ids)));
    pages.extend(details);
    Ok(pages)
}

/// Returns the first link in the rows that leads to a page of a new kind.
fn detail_of(html: &str, known: &mut BTreeSet<String>) -> Option<String> {
    markup::row_links(html).into_iter().find(|path| {
        let kind = path.rsplit_once('/').map(|(kind, _)| kind.to_owned());
        !path.contains('?') && kind.is_some_and(|kind| known.insert(kind))
    })
}

/// Returns numbers spread evenly over `1..=count`, [`ORDERS`] at most.
fn spread(count: u32) -> impl Iterator<Item = u32> {
    (1..=count).step_by((count / ORDERS).max(1) as usize).take(ORDERS as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_link_of_each_kind_is_visited() {
        let mut known = BTreeSet::from(["/console/orders".to_owned()]);
        let row = |path: &str| format!("<tr data-href=\"{path}\"><td></td></tr>");
        assert_eq!(detail_of(&row("/console/orders/O-1"), &mut known), None, "orders are sampled");
        assert_eq!(detail_of(&row("/console/orders?status=PENDING"), &mut known), None, "a list");
        assert_eq!(detail_of("<p>nothing here</p>", &mut known), None);
        assert_eq!(detail_of(&row("/console/bindings/B-1"), &mut known).as_deref(), Some("/console/bindings/B-1"));
        assert_eq!(detail_of(&row("/console/bindings/B-2"), &mut known), None, "known by now");
        let link = "<td><a class=\"id\" href=\"/console/drivers/D1\">D1</a></td>";
        assert_eq!(detail_of(link, &mut known).as_deref(), Some("/console/drivers/D1"));
    }
}
