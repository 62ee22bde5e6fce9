//! Audit page: actions of staff with person, time, address, object and reason.

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use model::messages::TRANSACTION_UNRESOLVED;
use serde::Deserialize;

use super::roles::OPERATORS;
use crate::{
    form::{encode_component, optional_text, parse_time, read_query, write_query},
    language::{Words, both},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Moment, escape, sentence, spaced},
    table::{Cell, Field, TablePage, TableRow},
};
use app::App;
use foundation::db;
use maintenance::audit::trail::{self, TrailEntry, TrailFilter, TrailPlace, TrailSource, TrailSpan};

const PAGE: u32 = 50;
const REFRESH_S: u32 = 15;
const HEADINGS: [Words; 6] = [
    both("When", "Kapan"),
    both("Who", "Siapa"),
    both("What", "Apa"),
    both("To what", "Terhadap apa"),
    both("Why", "Mengapa"),
    both("From where", "Dari mana"),
];

/// Filter in the address. An empty value matches everything.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuditQuery {
    who: String,
    source: String,
    subject: String,
    from: String,
    to: String,
    cursor: String,
}

impl AuditQuery {
    fn to_query(&self, cursor: &str) -> String {
        write_query(&[
            ("who", &self.who),
            ("source", &self.source),
            ("subject", &self.subject),
            ("from", &self.from),
            ("to", &self.to),
            ("cursor", cursor),
        ])
    }

    fn to_filter(&self) -> Result<TrailFilter, PageError> {
        let source = match self.source.as_str() {
            "" => None,
            word => Some(TrailSource::parse(word).ok_or_else(|| {
                let text = both("There is no such kind of thing.", "Tidak ada hal sejenis itu.");
                PageError::Invalid(text.into())
            })?),
        };
        Ok(TrailFilter {
            source,
            who: optional_text(both("name", "nama"), Some(&self.who))?,
            subject: optional_text(both("id", "id"), Some(&self.subject))?,
        })
    }
}

/// Returns the label of a source.
fn source_label(source: TrailSource) -> &'static str {
    let label = match source {
        TrailSource::Order => both("orders", "pesanan"),
        TrailSource::Binding => both("bindings", "binding"),
        TrailSource::Area => both("areas", "wilayah"),
        TrailSource::Alert => both("alerts", "peringatan"),
        TrailSource::Plan => both("plans", "rencana"),
        TrailSource::DeadJob => both("dead jobs", "pekerjaan mati"),
        TrailSource::System => {
            both("queues, drivers, keys, users, sessions", "antrean, pengemudi, kunci, pengguna, sesi")
        }
        TrailSource::Erasure => both("erasures", "penghapusan data"),
    };
    label.get()
}

/// Returns the page of the changed object; empty if it has none.
fn subject_page(base: &str, entry: &TrailEntry) -> String {
    match entry.source.as_str() {
        "alert" if entry.action.ends_with(TRANSACTION_UNRESOLVED) => {
            format!("{base}/bindings/{}", encode_component(&entry.subject))
        }
        "order" | "alert" => format!("{base}/orders/{}", encode_component(&entry.subject)),
        "binding" => format!("{base}/bindings/{}", encode_component(&entry.subject)),
        _ => String::new(),
    }
}

fn row_of(base: &str, entry: TrailEntry) -> TableRow {
    let href = subject_page(base, &entry);
    let address = entry.address.as_deref().unwrap_or(both("not over HTTP", "tidak lewat HTTP").get());
    let request = entry.request.as_deref().unwrap_or_default();
    let origin = format!("{} <span class=\"quiet small\">{}</span>", escape(address), escape(request));
    let cells = vec![
        Cell::html(Moment(entry.at)),
        Cell::text(&entry.actor),
        Cell::text(spaced(&entry.action)),
        if href.is_empty() { Cell::id(&entry.subject) } else { Cell::link(&href, &entry.subject) },
        Cell::text(entry.reason.unwrap_or_default()),
        Cell::html(origin),
    ];
    TableRow::plain(cells).open(href)
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let app = app.showing();
    let query: AuditQuery = read_query(query)?;
    let filter = query.to_filter()?;
    let (from, to) = (parse_time("from", &query.from)?, parse_time("to", &query.to)?);
    let now = db::database_now(&app.core.db).await?;
    let span = TrailSpan::new(from, to, now);
    let span = span.map_err(|error| PageError::Invalid(sentence(&error.to_string())))?;
    let after = match query.cursor.as_str() {
        "" => None,
        cursor => Some(cursor.parse::<TrailPlace>().map_err(|error| PageError::Invalid(sentence(&error.to_string())))?),
    };
    let entries = trail::list_trail(&app.core.db, &filter, span, after.as_ref(), PAGE).await?;
    let is_full = u32::try_from(entries.len()).is_ok_and(|n| n == PAGE);
    let next = entries.last().filter(|_| is_full).map(|entry| query.to_query(&TrailPlace::from(entry).to_string()));
    let base = &app.config.console.path;
    let rows = entries.into_iter().map(|entry| row_of(base, entry)).collect();
    let mut sources = vec![("", both("anything", "apa saja").get())];
    sources.extend(TrailSource::ALL.map(|source| (source.as_str(), source_label(source))));
    let note = match (from, to) {
        (None, None) => both(
            "What staff did in the last seven days, the newest first. For other days say from when to when.",
            "Yang dilakukan staf dalam tujuh hari terakhir, yang terbaru lebih dulu. Untuk hari lain sebutkan dari kapan sampai kapan.",
        ),
        _ => both(
            "What staff did in this time, the newest first.",
            "Yang dilakukan staf dalam waktu ini, yang terbaru lebih dulu.",
        ),
    };
    let shell = Shell::for_person(&app.config, &person, "/audit", both("Audit", "Audit"), None).made_at(now);
    let shell = shell.live(if query.cursor.is_empty() { REFRESH_S } else { 0 });
    let page = TablePage {
        note: note.into(),
        filters: vec![
            Field::text("who", both("Who, such as anna", "Siapa, misalnya anna"), &query.who),
            Field::choice("source", both("About", "Tentang"), &query.source, &sources),
            Field::text("subject", both("Id of what was changed", "Id yang diubah"), &query.subject),
            Field::time("from", both("From (UTC)", "Dari (UTC)"), &query.from),
            Field::time("to", both("to (UTC)", "sampai (UTC)"), &query.to),
        ],
        if_empty: (
            both("Nothing was done", "Tidak ada yang dilakukan"),
            both(
                "No change by staff fits these filters.",
                "Tidak ada perubahan oleh staf yang cocok dengan saringan ini.",
            ),
        ),
        next,
        ..TablePage::new(shell, &format!("/audit{}", query.to_query(&query.cursor)), &HEADINGS, rows)
    };
    render(&page)
}
