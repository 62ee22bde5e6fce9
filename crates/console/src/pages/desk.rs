//! Desk: the orders that wait for a person, the oldest first.

use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use dispatch::{app::App, db, orders::search, reports::page_changes::ChangeTopic};
use serde::Deserialize;

use super::{DISPATCHERS, STAFF, rows::OrderRow};
use crate::{
    form::read_query,
    language::both,
    page::{PageError, Shell, render},
    session::SignedIn,
};

const PAGE: u32 = 100;
const REFRESH_S: u32 = 5;

/// What an action says when it comes back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Deed {
    pub(crate) did: Option<String>,
}

#[derive(Template)]
#[template(path = "desk.html")]
struct DeskPage {
    shell: Shell,
    rows: Vec<OrderRow>,
    may_act: bool,
    is_full: bool,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let now = db::database_now(&app.db).await?;
    let orders = search::list_to_decide(&app.db, PAGE).await?;
    let shell = Shell::for_person(&app, &person, "/desk", both("Desk", "Meja"), did.as_deref());
    let page = DeskPage {
        shell: shell.live(REFRESH_S).follow(ChangeTopic::Orders).made_at(now),
        is_full: u32::try_from(orders.len()).is_ok_and(|n| n == PAGE),
        rows: orders.into_iter().map(|order| OrderRow::new(order, now)).collect(),
        may_act: person.may(&DISPATCHERS),
    };
    render(&page)
}
