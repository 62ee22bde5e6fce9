//! Page of one outbox message: its body, and its tries.

use axum::{
    extract::{Path, Query, State, rejection::QueryRejection},
    response::Response,
};

use super::{outbox::row_of_message, roles::OPERATORS, rows::Deed};
use crate::{
    catalogue::{Words, fill, tr},
    form::read_query,
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, draw_json},
    table::{Cell, TablePage, TableRow},
};
use app::App;
use desk::dead_letters::redeliver::{self, DeliveryLogEntry, OutboxFilter};

const HEADINGS: [Words; 4] = [tr("common.time"), tr("outbox.what"), tr("common.state"), tr("common.details")];

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let missing = || PageError::NotFound(tr("outbox.no_message_id"));
    let id: i64 = id.parse().map_err(|_| missing())?;
    let filter = OutboxFilter { ids: Some(vec![id]), limit: 1, ..OutboxFilter::default() };
    let found = redeliver::list_messages(&app.core.db, &filter).await?;
    let message = found.into_iter().next().ok_or_else(missing)?;
    let body = redeliver::load_payload(&app.core.db, id).await?.ok_or_else(missing)?;
    let log = redeliver::load_delivery_log(&app.core.db, id).await?;
    let base = app.config.console.path.as_str();
    let row = row_of_message(base, message);
    let actions = row.actions;
    let facts: Vec<String> = row.cells.into_iter().map(|cell| cell.html).collect();
    let figure = format!(
        "<p>{}</p><h2>{}</h2>{}<h2>{}</h2>",
        facts.join(" · "),
        tr("outbox.body"),
        draw_json(&body),
        tr("outbox.tries")
    );
    let title = fill!("outbox.title", id);
    let shell = Shell::for_person(&app.config, &person, "/outbox", title, did.as_deref());
    let page = TablePage {
        figure,
        actions,
        if_empty: (tr("outbox.no_tries"), tr("outbox.tries_appear_here")),
        ..TablePage::new(shell, &format!("/outbox/{id}"), &HEADINGS, log.into_iter().map(row_of_try).collect())
    };
    render(&page)
}

fn row_of_try(entry: DeliveryLogEntry) -> TableRow {
    let is_try = entry.what == "TRY";
    let state = match &entry.error {
        Some(_) => Chip::new("bad", tr("outbox.failed")),
        None if is_try => Chip::new("good", tr("outbox.delivered")),
        None => Chip::new("wait", tr("outbox.pending")),
    };
    TableRow::plain(vec![
        Cell::html(Moment(entry.at)),
        Cell::text(if is_try { tr("outbox.try") } else { tr("outbox.sent_again") }),
        Cell::html(state),
        Cell::text(entry.error.or(entry.actor).unwrap_or_default()),
    ])
}
