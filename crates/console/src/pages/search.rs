//! Search from the frame of every page. A search with one result leads to its page.

use std::collections::BTreeMap;

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use settings::{Config, LinkTemplate};

use super::{driver::driver_page, roles::STAFF};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, optional_text, read_query, write_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Code, Moment},
    table::{Cell, TablePage, TableRow},
};
use app::App;
use desk::reports::finder::{self, FoundOrder, FoundOthers, WantedIds};

pub(crate) const PATH: &str = "/search";
/// Maximum characters of the text, as of a filter for ids.
const MOST_CHARACTERS: usize = 128;
const HEADINGS: [Words; 6] = [
    tr("search.result"),
    tr("common.id"),
    tr("search.found_by"),
    tr("common.state"),
    tr("common.service_type"),
    tr("common.created"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SearchQuery {
    q: String,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<SearchQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let query: SearchQuery = read_query(query)?;
    let text = optional_text(tr("common.search"), Some(&query.q))?.unwrap_or_default();
    if text.chars().count() > MOST_CHARACTERS {
        return Err(PageError::Invalid(tr("orders.id_at_most_128").into()));
    }
    let wanted = to_wanted(&app.config, &text);
    let (orders, others) = if text.is_empty() {
        (Vec::new(), FoundOthers { driver: false, binding: false })
    } else {
        let orders = finder::find_orders(&app.core.db, &wanted).await?;
        (orders, finder::find_others(&app.core.db, &text).await?)
    };
    let base = app.config.console.path.as_str();
    let rows = list_rows(base, &text, &orders, others);
    if let [row] = rows.as_slice() {
        return Ok(Redirect::to(&row.href).into_response());
    }
    let shell = Shell::for_person(&app.config, &person, PATH, tr("common.search"), None);
    let here = format!("{PATH}{}", write_query(&[("q", &text)]));
    let page = TablePage {
        note: if rows.is_empty() { String::new() } else { fill!("search.note", text, most = finder::MOST) },
        if_empty: (tr("search.nothing"), tr("search.advice")),
        ..TablePage::new(shell.searching(&text), &here, &HEADINGS, rows)
    };
    render(&page)
}

/// Returns what a text stands for. `key=value` is metadata. Another text is also the value of each key of metadata that
/// links to other systems use.
fn to_wanted(config: &Config, text: &str) -> WantedIds {
    let pair = |key: &str, value: &str| BTreeMap::from([(key.trim().to_owned(), value.trim().to_owned())]);
    let metadata = match text.split_once('=') {
        Some((key, value)) => vec![pair(key, value)],
        None => linked_keys(config).iter().map(|key| pair(key, text)).collect(),
    };
    WantedIds { id: text.to_owned(), partners: config.partners.keys().cloned().collect(), metadata }
}

/// Returns the keys of metadata that links to other systems use.
fn linked_keys(config: &Config) -> Vec<String> {
    let links = &config.console.links;
    let templates = [&links.order, &links.customer, &links.driver, &links.booking];
    let parsed = templates.into_iter().flatten().filter_map(|template| LinkTemplate::parse(template).ok());
    let mut keys: Vec<String> =
        parsed.flat_map(|link| link.metadata_keys().map(str::to_owned).collect::<Vec<_>>()).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Returns the rows: the driver and the binding with this id, and the orders.
fn list_rows(base: &str, id: &str, orders: &[FoundOrder], others: FoundOthers) -> Vec<TableRow> {
    let other = |kind: Words, href: String| {
        let cells = vec![
            Cell::text(kind),
            Cell::link(&href, id),
            Cell::text(tr("common.id")),
            Cell::text(""),
            Cell::text(""),
            Cell::text(""),
        ];
        TableRow::plain(cells).open(href)
    };
    let driver = others.driver.then(|| other(tr("common.driver"), driver_page(base, id)));
    let binding =
        others.binding.then(|| other(tr("bindings.binding"), format!("{base}/bindings/{}", encode_component(id))));
    driver.into_iter().chain(binding).chain(orders.iter().map(|order| row_of_order(base, order))).collect()
}

fn row_of_order(base: &str, order: &FoundOrder) -> TableRow {
    let href = format!("{base}/orders/{}", encode_component(order.id.as_str()));
    let how: Vec<String> = order.how.iter().map(|how| Code::new("found_by", how.as_str()).text()).collect();
    let cells = vec![
        Cell::text(tr("common.order")),
        Cell::link(&href, order.id.as_str()),
        Cell::text(how.join(", ")),
        Cell::html(Chip::of_status(order.status)),
        Cell::text(&order.service_type),
        Cell::html(Moment(order.created_at)),
    ];
    TableRow::plain(cells).open(href)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_equals_sign_is_metadata() {
        let mut config = Config::defaults();
        assert!(to_wanted(&config, "4711").metadata.is_empty());
        let wanted = to_wanted(&config, "crm_id = 47=11");
        assert_eq!(wanted.metadata, [BTreeMap::from([("crm_id".to_owned(), "47=11".to_owned())])]);
        config.console.links.order = Some("https://crm.example.com/{metadata.crm_id}".to_owned());
        config.console.links.customer = Some("https://crm.example.com/c/{metadata.crm_id}".to_owned());
        let wanted = to_wanted(&config, "4711");
        assert_eq!(wanted.metadata, [BTreeMap::from([("crm_id".to_owned(), "4711".to_owned())])]);
    }
}
