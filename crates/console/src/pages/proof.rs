//! Pages of the proof of the history: its violations, and one violation.

use std::fmt::Write as _;

use axum::{
    extract::{Path, State},
    response::Response,
};

use super::roles::OPERATORS;
use crate::{
    catalogue::{Words, fill, tr},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, escape, group_digits},
    table::{Cell, TablePage, TableRow},
};
use app::App;
use maintenance::proof::{
    status,
    violations::{self, ProofViolation},
};

const REFRESH_S: u32 = 5;

const HEADINGS: [Words; 5] =
    [tr("proof.violation"), tr("common.state"), tr("proof.subject"), tr("proof.found"), tr("common.time")];

fn state_chip(violation: &ProofViolation) -> Chip {
    match violation.gone_at {
        None => Chip::new("warn", tr("common.open")),
        Some(_) => Chip::new("plain", tr("proof.gone")),
    }
}

/// Returns HTML with the subject. An order has a link to its page.
fn draw_subject(base: &str, violation: &ProofViolation) -> String {
    match &violation.order_id {
        Some(order) if *order == violation.subject => {
            format!("<a class=\"id\" href=\"{base}/orders/{0}\">{0}</a>", escape(order))
        }
        Some(order) => {
            let (subject, order) = (escape(&violation.subject), escape(order));
            format!("<span class=\"id\">{subject}</span> <a class=\"id\" href=\"{base}/orders/{order}\">{order}</a>")
        }
        None => format!("<span class=\"id\">{}</span>", escape(&violation.subject)),
    }
}

pub(crate) async fn show_list(State(app): State<App>, person: SignedIn) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let app = app.showing();
    let status = status::read_status(&app.core.db).await?;
    let base = app.config.console.path.as_str();
    let rows = violations::list_violations(&app.core.db).await?.into_iter().map(|violation| {
        let page = format!("{base}/proof/{}", violation.id);
        let cells = vec![
            Cell::link(&page, &violation.invariant),
            Cell::html(state_chip(&violation)),
            Cell::html(draw_subject(base, &violation)),
            Cell::text(&violation.detail),
            Cell::html(Moment(violation.found_at)),
        ];
        TableRow::plain(cells).open(page)
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app.config, &person, "/proof", tr("proof.title"), None).live(REFRESH_S);
    let (event, waiting) = (group_digits(status.event.unsigned_abs()), group_digits(status.lag_events.unsigned_abs()));
    let page = TablePage {
        note: fill!("proof.note", event, waiting),
        if_empty: (tr("proof.no_violations_found"), tr("proof.violations_appear_here")),
        ..TablePage::new(shell, "/proof", &HEADINGS, rows)
    };
    render(&page)
}

/// Returns HTML with the order, the event, what was found and what was expected.
fn draw_facts(base: &str, violation: &ProofViolation) -> String {
    let event = match (violation.event_seq, &violation.event) {
        (Some(seq), Some(event)) => format!("{} {}", group_digits(seq.unsigned_abs()), escape(event)),
        _ => "–".to_owned(),
    };
    let gone = violation.gone_at.map_or_else(|| "–".to_owned(), |at| Moment(at).to_string());
    let facts = [
        (tr("common.state"), state_chip(violation).to_string()),
        (tr("proof.violation"), format!("<span class=\"id\">{}</span>", escape(&violation.invariant))),
        (tr("proof.expected"), escape(&violation.expected)),
        (tr("proof.found"), escape(&violation.detail)),
        (tr("proof.subject"), draw_subject(base, violation)),
        (tr("proof.last_event_order"), event),
        (tr("proof.step_feed"), group_digits(violation.step.unsigned_abs())),
        (tr("proof.first_found"), Moment(violation.found_at).to_string()),
        (tr("proof.last_found"), Moment(violation.seen_at).to_string()),
        (tr("proof.gone"), gone),
    ];
    let mut html = String::from("<dl class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(html, "<dt>{name}</dt><dd>{value}</dd>");
    }
    html.push_str("</dl>");
    html
}

pub(crate) async fn show_violation(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let app = app.showing();
    let unknown = || PageError::NotFound(tr("proof.no_violation_id"));
    let id: i64 = id.parse().map_err(|_| unknown())?;
    let violation = violations::find_violation(&app.core.db, id).await?.ok_or_else(unknown)?;
    let shell = Shell::for_person(&app.config, &person, "/proof", fill!("proof.violation_title", id), None);
    let page = TablePage {
        figure: draw_facts(app.config.console.path.as_str(), &violation),
        if_empty: (tr("proof.run_check_history"), tr("proof.violation_stays_open")),
        ..TablePage::new(shell.live(REFRESH_S), &format!("/proof/{id}"), &HEADINGS, Vec::new())
    };
    render(&page)
}
