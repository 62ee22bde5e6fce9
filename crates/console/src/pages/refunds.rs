//! Page of refunds that are due, oldest first, with the steps of support.

use std::{collections::HashMap, future::ready};

use askama::Template;
use axum::{
    body::Body,
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    http::header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, SecondsFormat, Utc};
use futures_util::{StreamExt, stream};
use model::messages::money::format_plain_amount;
use serde::Deserialize;
use settings::Config;

use super::{
    roles::{REFUNDERS, STAFF},
    rows::parse_order,
};
use crate::{
    catalogue::tr,
    form::{given_text, optional_text, read_form, read_query, write_query},
    page::{Shell, go_back, render, safe_path},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Countdown, describe_age, describe_amount},
    table::{Action, Field},
    ticket_link::TicketLink,
};
use api::scope::retain_visible;
use app::App;
use desk::reports::{glance, page_changes::ChangeTopic};
use foundation::db;
use model::{
    decide::money,
    order::{Order, RefundProgress, Snapshot},
    scope::Scope,
};
use notify::tickets::{self, AlertTicket};
use orders::{
    search::{self, TimedPlace},
    seen::Basis,
};

const PAGE: u32 = 50;
const REFRESH_S: u32 = 15;
/// Rows of an export that are read at once.
const EXPORT_PAGE: u32 = 1_000;
const CSV_HEADINGS: &str =
    "order_id,state,order_status,payment_status,amount,currency,customer_id,service_type,area_id,closed_at,tickets\r\n";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RefundFilter {
    state: String,
    cursor: String,
    did: Option<String>,
}

impl RefundFilter {
    fn progress(&self) -> Result<Option<RefundProgress>, PageError> {
        if self.state.is_empty() {
            return Ok(None);
        }
        let known = RefundProgress::ALL.into_iter().find(|progress| progress.as_str() == self.state);
        known.map(Some).ok_or_else(|| {
            let text = tr("refunds.choose_owed_started_completed");
            PageError::Invalid(text.into())
        })
    }
}

struct RefundRow {
    id: String,
    progress: Chip,
    /// Next step of support; `None` once the refund is completed.
    step: Option<Action>,
    status: Chip,
    amount: String,
    customer: String,
    service_type: String,
    waits: String,
    sla: Option<Countdown>,
    /// Tickets for this refund.
    tickets: Vec<TicketLink>,
}

impl RefundRow {
    fn new(config: &Config, order: Order, tickets: Vec<AlertTicket>, now: DateTime<Utc>) -> Self {
        let progress = order.refund_progress().unwrap_or(RefundProgress::Owed);
        let is_open = progress != RefundProgress::Completed;
        let sla = order.closed_at.filter(|_| is_open);
        let sla = sla.map(|closed_at| config.notifications.sla_end(closed_at));
        Self {
            step: is_open.then(|| next_step(order.id.as_str(), progress == RefundProgress::Started)),
            id: order.id.to_string(),
            progress: match progress {
                RefundProgress::Owed => Chip::new("warn", tr("refunds.owed")),
                RefundProgress::Started => Chip::new("wait", tr("common.started")),
                RefundProgress::Completed => Chip::new("good", tr("refunds.completed")),
            },
            status: Chip::of_status(order.status),
            amount: describe_amount(order.amount_minor, order.currency.as_deref()),
            customer: order.customer_id.unwrap_or_else(|| "–".to_owned()),
            service_type: order.service_type.into_string(),
            waits: describe_age(order.closed_at.filter(|_| is_open), now),
            sla: sla.map(|to| Countdown { to, now }),
            tickets: TicketLink::link_all(tickets),
        }
    }
}

/// Returns the form that starts a refund, or records its completion.
fn next_step(order: &str, is_started: bool) -> Action {
    let back = Field::hidden("back", "/refunds");
    let path = |word: &str| format!("/orders/{order}/{word}");
    if is_started {
        let note = Field::required("note", tr("refunds.how_money_paid_back"));
        return Action::new(tr("common.complete_refund"), path("refund-done"), vec![back, note]);
    }
    let note = Field::text("note", tr("common.note"), "");
    Action::new(tr("common.start_refund"), path("refund-start"), vec![back, note])
}

#[derive(Template)]
#[template(path = "refunds.html")]
struct RefundsPage {
    shell: Shell,
    filter: RefundFilter,
    here: String,
    rows: Vec<RefundRow>,
    /// Sums of refunds that are owed or started, by currency.
    sums: Vec<String>,
    next: Option<String>,
    may_act: bool,
}

impl RefundsPage {
    /// Returns whether the table has a column for tickets. Without a ticket system it has none.
    fn has_tickets(&self) -> bool {
        self.rows.iter().any(|row| !row.tickets.is_empty())
    }
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<RefundFilter>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.showing(app);
    let filter: RefundFilter = read_query(query)?;
    let only = filter.progress()?;
    let after = match filter.cursor.as_str() {
        "" => None,
        cursor => Some(cursor.parse::<TimedPlace>().map_err(|error| PageError::Invalid(error.to_string()))?),
    };
    let mut orders = search::list_refunds(&app.core.db, only, after.as_ref(), PAGE).await?;
    retain_visible(&app, person.scope(), &mut orders, |order| Some(order.id.as_str())).await?;
    let now = db::database_now(&app.core.db).await?;
    let owed = glance::count_refunds(&app.core.db).await?;
    let mut tickets = list_tickets(&app, &orders).await?;
    let is_full = u32::try_from(orders.len()).is_ok_and(|n| n == PAGE);
    let next = orders.last().filter(|_| is_full).map(|order| {
        let place = search::refund_place(order).to_string();
        write_query(&[("state", &filter.state), ("cursor", &place)])
    });
    let shell = Shell::for_person(&app.config, &person, "/refunds", tr("common.refunds"), filter.did.as_deref());
    let rows = orders.into_iter().map(|order| {
        let tickets = tickets.remove(order.id.as_str()).unwrap_or_default();
        RefundRow::new(&app.config, order, tickets, now)
    });
    let page = RefundsPage {
        shell: shell
            .live(if filter.cursor.is_empty() { REFRESH_S } else { 0 })
            .follow(ChangeTopic::Orders)
            .made_at(now),
        here: write_query(&[("state", &filter.state), ("cursor", &filter.cursor)]),
        rows: rows.collect(),
        sums: owed.sums.iter().map(|(currency, sum)| describe_amount(Some(*sum), Some(currency))).collect(),
        next,
        may_act: person.may(&REFUNDERS),
        filter,
    };
    render(&page)
}

/// Returns the tickets for the refunds of these orders, by order.
async fn list_tickets(app: &App, orders: &[Order]) -> Result<HashMap<String, Vec<AlertTicket>>, sqlx::Error> {
    let ids: Vec<&str> = orders.iter().map(|order| order.id.as_str()).collect();
    tickets::list_refund_tickets(&app.core.db, &app.notify.channels, &ids).await
}

/// Exports the refunds that match the filter as CSV for a spreadsheet, in the order of the page. Rows are read and sent
/// page by page, so the memory does not depend on their number. If a later page cannot be read, the connection is
/// closed before the end of the file, so the download fails.
pub(crate) async fn export_csv(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<RefundFilter>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.showing(app);
    let only = read_query(query)?.progress()?;
    let scope = person.scope().cloned();
    let (rows, next) = read_csv_rows(&app, scope.as_ref(), only, None).await?;
    let first = stream::once(ready(Ok(CSV_HEADINGS.to_owned() + &rows)));
    let others = stream::try_unfold(next, move |next| {
        let (app, scope) = (app.clone(), scope.clone());
        async move {
            let Some(place) = next else { return Ok(None) };
            read_csv_rows(&app, scope.as_ref(), only, Some(&place))
                .await
                .map(Some)
                .inspect_err(|error| tracing::warn!(error = %error, "An export of refunds was not sent completely."))
        }
    });
    let name = "attachment; filename=\"refunds.csv\"";
    let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8"), (CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(first.chain(others))).into_response())
}

/// Returns the lines of one page of refunds, and the position after it. Returns `None` as position after the last page.
async fn read_csv_rows(
    app: &App,
    scope: Option<&Scope>,
    only: Option<RefundProgress>,
    after: Option<&TimedPlace>,
) -> Result<(String, Option<TimedPlace>), sqlx::Error> {
    let mut orders = search::list_refunds(&app.core.db, only, after, EXPORT_PAGE).await?;
    retain_visible(app, scope, &mut orders, |order| Some(order.id.as_str())).await?;
    let tickets = list_tickets(app, &orders).await?;
    let is_full = u32::try_from(orders.len()).is_ok_and(|n| n == EXPORT_PAGE);
    let next = orders.last().filter(|_| is_full).map(search::refund_place);
    let lines = orders.iter().map(|order| {
        let tickets = tickets.get(order.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        csv_line(order, tickets)
    });
    Ok((lines.collect(), next))
}

fn csv_line(order: &Order, tickets: &[AlertTicket]) -> String {
    let state = order.refund_progress().unwrap_or(RefundProgress::Owed);
    let closed = order.closed_at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)).unwrap_or_default();
    let amount = order.amount_minor.map(|minor| match order.currency.as_deref() {
        Some(currency) => format_plain_amount(minor, currency),
        None => minor.to_string(),
    });
    let tickets: Vec<&str> =
        tickets.iter().map(|ticket| ticket.url.as_deref().unwrap_or(ticket.ticket.as_str())).collect();
    let cells = [
        order.id.as_str(),
        state.as_str(),
        order.status.as_str(),
        order.payment_status.as_str(),
        &amount.unwrap_or_default(),
        order.currency.as_deref().unwrap_or_default(),
        order.customer_id.as_deref().unwrap_or_default(),
        order.service_type.as_str(),
        order.area_id.as_deref().unwrap_or_default(),
        &closed,
        &tickets.join(" "),
    ];
    cells.map(quote_cell).join(",") + "\r\n"
}

/// Characters at which a spreadsheet may split a line into cells, depending on its settings.
const SEPARATORS: [char; 6] = [',', ';', '|', '\t', '\r', '\n'];

/// Returns a cell quoted according to RFC 4180. A part that a spreadsheet would evaluate as a formula gets an
/// apostrophe in front. This includes parts after a separator other than the comma, because a spreadsheet that splits
/// there ignores the quotes around the cell.
fn quote_cell(cell: &str) -> String {
    let mut safe = String::with_capacity(cell.len() + 2);
    let mut starts_part = true;
    for c in cell.chars() {
        if starts_part && matches!(c, '=' | '+' | '-' | '@' | '\t' | '＝' | '＋' | '－' | '＠') {
            safe.push('\'');
        }
        safe.push(c);
        // Spaces and quotes at the start of a part do not prevent a formula.
        starts_part = SEPARATORS.contains(&c) || (starts_part && (c.is_whitespace() || c == '"' || c == '\''));
    }
    if safe != cell || cell.contains('"') || cell.contains(SEPARATORS) {
        format!("\"{}\"", safe.replace('"', "\"\""))
    } else {
        safe
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct RefundForm {
    #[serde(default)]
    note: String,
    back: Option<String>,
}

/// Records that support started a refund.
pub(crate) async fn start_refund(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<RefundForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&REFUNDERS)?;
    let id = parse_order(path)?;
    let RefundForm { note, back } = read_form(form)?;
    let note = optional_text(tr("common.note"), Some(&note))?;
    let actor = person.actor();
    let decide = |s: &Snapshot| money::start_refund(s, &actor, note.clone()).signed_by(&actor);
    app.orders.change(&id, Basis::Fresh, decide).await?.effects.run(&app.orders).await;
    let usual = format!("/orders/{id}");
    Ok(go_back(&app.config, safe_path(back.as_deref(), &usual), "refund-start").into_response())
}

/// Records that a refund was paid, and how.
pub(crate) async fn finish_refund(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<RefundForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&REFUNDERS)?;
    let id = parse_order(path)?;
    let RefundForm { note, back } = read_form(form)?;
    let note = given_text(tr("common.note"), &note)?;
    let actor = person.actor();
    let decide = |s: &Snapshot| money::finish_refund(s, &actor, Some(note.clone())).signed_by(&actor);
    app.orders.change(&id, Basis::Fresh, decide).await?.effects.run(&app.orders).await;
    let usual = format!("/orders/{id}");
    Ok(go_back(&app.config, safe_path(back.as_deref(), &usual), "refund-done").into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule F29: No part of an exported cell is a formula, whether a spreadsheet splits cells at commas or at
    // semicolons.
    #[test]
    fn exported_cell_runs_no_formula() {
        let attacks = [
            "x;=1+1;@SUM(A1)",
            "=1+1",
            "+1",
            "-1",
            "@A1",
            "\t=1",
            "a,=1",
            "a;\"=1\"",
            "a; =1",
            "a|=1",
            "a\n=1",
            "a;\t@x",
            "\"=1",
            "a;'=1",
            "＝1",
        ];
        for attack in attacks {
            let cell = quote_cell(attack);
            for part in cell.split(SEPARATORS).flat_map(|part| [part, part.trim_start_matches(['"', ' '])]) {
                assert!(!part.starts_with(['=', '+', '-', '@', '＝']), "{attack:?} became {cell:?}: {part:?}");
            }
            assert!(cell.starts_with('"') && cell.ends_with('"'), "{cell}");
        }
        for plain in ["CUS-1", "", "a=b", "user@example.com", "150000"] {
            assert_eq!(quote_cell(plain), plain);
        }
        assert_eq!(quote_cell("x;=1"), "\"x;'=1\"");
        assert_eq!(quote_cell("a \"b\""), "\"a \"\"b\"\"\"");
    }
}
